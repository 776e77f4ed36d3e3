"""The step that fetches one field, without Spark."""

import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from serde_chain.errors import DecodeError, PayloadTooLargeError
from serde_chain.spark.fields.plan import FetchPlan, FieldColumn
from serde_chain.spark.fields.worker import fetch_batches
from tests.spark.records import encoded

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [{"name": "flux", "type": "double"}, {"name": "stamp", "type": "bytes"}],
}
STAMP = b"stamp" * 100
TOLD = ("headers", "topic", "partition", "offset", "key")


def settings(folder: Path) -> dict[str, Any]:
    return {
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": json.dumps(SCHEMA),
        "large.fields.paths": "stamp",
        "large.fields.min.bytes": 100,
        "large.message.payload.store.class": "local",
        "local.path": str(folder),
    }


def told(header: bytes, **others: Any) -> str:
    """A record as Spark's ``to_json`` writes it: bytes as base64, and nothing for null."""
    return json.dumps({"headers": b64encode(header).decode(), **others})


def fetched(config: dict[str, Any], *batches: tuple[pa.Array, ...]) -> list[Any]:
    plan = FetchPlan(config, FieldColumn(("stamp",), pa.binary()), TOLD, "FAILFAST")
    return list(fetch_batches(cloudpickle.dumps(plan), iter(batches)))  # type: ignore[no-untyped-call]  # pyspark's


def test_rows_with_the_header_get_their_payload(tmp_path: Path) -> None:
    config = settings(tmp_path)
    headers: list[Any] = []
    data = encoded(config, {"flux": 1.0, "stamp": STAMP}, headers)
    record: Any = fastavro.schemaless_reader(io.BytesIO(data), SCHEMA, None)
    ((name, header),) = headers
    assert name == "large-fields"
    values = pa.array([None, record["stamp"], None], pa.binary())
    records = pa.array([None, told(header, topic="alerts", partition=0, offset=1), None])
    parts = fetched(config, (values, records))
    assert pa.chunked_array(parts).to_pylist() == [None, STAMP, None]


def test_an_error_names_the_record(tmp_path: Path) -> None:
    """What the driver put into JSON is what stages and errors get, also bytes that are no text."""
    values = pa.array([b"small", b"no reference"], pa.binary())
    header = b'[{"path":"stamp"}]\xff'
    records = pa.array([None, told(header, topic="alerts", partition=3, offset=1 << 60, key="/w==")])
    with pytest.raises(DecodeError, match=f"topic=alerts, .*partition=3, offset={1 << 60}"):
        fetched(settings(tmp_path), (values, records))


def test_a_batch_without_references_is_passed_on(tmp_path: Path) -> None:
    """As it came: nothing is made for its rows."""
    values = pa.array([None, b"small"], pa.binary())
    (part,) = fetched(settings(tmp_path), (values, pa.nulls(2, pa.string())))
    assert part is values or part.buffers()[2].address == values.buffers()[2].address
    assert part.to_pylist() == [None, b"small"]


def test_the_limit_is_that_of_a_column(tmp_path: Path) -> None:
    """The worker of one column does not know which others a query uses, if any."""
    two = {**SCHEMA, "fields": [{"name": name, "type": "bytes"} for name in ("stamp", "template")]}
    config = settings(tmp_path) | {"avro.schema": json.dumps(two), "large.fields.paths": "stamp, template"}
    headers: list[Any] = []
    data = encoded(config, {"stamp": STAMP, "template": STAMP}, headers)
    record: Any = fastavro.schemaless_reader(io.BytesIO(data), two, None)
    batch = pa.array([record["stamp"]], pa.binary()), pa.array([told(headers[0][1], topic="alerts")])
    enough = config | {"large.message.max.payload.bytes": len(STAMP)}
    assert pa.chunked_array(fetched(enough, batch)).to_pylist() == [STAMP]
    with pytest.raises(PayloadTooLargeError, match="the field stamp"):
        fetched(config | {"large.message.max.payload.bytes": len(STAMP) - 1}, batch)
