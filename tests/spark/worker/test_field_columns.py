"""The step that fetches one field, without Spark."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyspark import cloudpickle

from serde_chain.spark.plan.field_columns import FetchPlan, FieldColumn
from serde_chain.spark.worker.field_columns import fetch_batches
from tests.spark.records import encoded

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [{"name": "flux", "type": "double"}, {"name": "stamp", "type": "bytes"}],
}
STAMP = b"stamp" * 100


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


def fetched(config: dict[str, Any], *batches: tuple[pa.Array, ...]) -> list[Any]:
    plan = FetchPlan(config, ("value", "header", "topic"), FieldColumn(("stamp",), pa.binary()), "FAILFAST")
    return list(fetch_batches(cloudpickle.dumps(plan), iter(batches)))  # type: ignore[no-untyped-call]  # pyspark's


def test_rows_with_the_header_get_their_payload(tmp_path: Path) -> None:
    config = settings(tmp_path)
    headers: list[Any] = []
    data = encoded(config, {"flux": 1.0, "stamp": STAMP}, headers)
    record: Any = fastavro.schemaless_reader(io.BytesIO(data), SCHEMA, None)
    ((name, header),) = headers
    assert name == "large-fields"
    values = pa.array([None, record["stamp"], None], pa.binary())
    parts = fetched(config, (values, pa.array([None, header, None], pa.binary()), pa.array([None, "alerts", None])))
    assert pa.chunked_array(parts).to_pylist() == [None, STAMP, None]


def test_a_batch_without_references_is_passed_on(tmp_path: Path) -> None:
    """As it came: nothing is made for its rows."""
    values = pa.array([None, b"small"], pa.binary())
    (part,) = fetched(settings(tmp_path), (values, pa.nulls(2, pa.binary()), pa.nulls(2, pa.string())))
    assert part is values or part.buffers()[2].address == values.buffers()[2].address
    assert part.to_pylist() == [None, b"small"]
