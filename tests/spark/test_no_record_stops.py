"""No record stops a query, either, in the modes that pass records over; see tests/clients/confluent."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from payload_stores import open_store
from serde_chain.catalogue import FORMATS, find_format
from serde_chain.spark import decode, deserialize
from serde_chain.testing.services import SchemaRegistry
from tests.hostile import GOOD, MOST_BYTES, mutated, placeholders
from tests.spark.records import kafka, row
from tests.spark.test_every_kind import KINDS, TOPIC, configs, encoded, plain, stores

pytestmark = pytest.mark.full

__all__ = ["stores"]  # the fixture

SMALL = b"a small one"


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
# Those that are only read: tests/wire/test_foreign.py.
@pytest.mark.parametrize(
    "name", [name for name in FORMATS.builtins if (found := find_format(name)).writes and not found.whole_record]
)
def test_no_placeholder_stops_a_query(spark: SparkSession, tmp_path: Path, name: str, mode: str) -> None:
    config: dict[str, Any] = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.format": name,
        "large.message.accept": name,
        "large.message.max.payload.bytes": MOST_BYTES,
    }
    store = open_store("local", config)
    good, large = store.publish("alerts", GOOD), store.publish("alerts", bytes(2 * MOST_BYTES))
    store.close()
    [(small, no_headers)] = encoded(config, [SMALL])
    records: list[tuple[Any, Any]] = [*placeholders(name, good, "alerts", [large]), (small, no_headers or [])]
    rows = [row(value, headers, at) for at, (value, headers) in enumerate(records)]
    found = kafka(spark, rows).transform(decode(config, mode=mode)).orderBy("offset").collect()
    assert found[-1]["value"] == SMALL
    assert GOOD in [one["value"] for one in found]
    if mode == "PERMISSIVE":
        assert len(found) == len(rows)
        assert any(one["serde_error"] for one in found)
    else:
        assert len(found) < len(rows)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "long"])
def test_no_value_stops_a_query(
    spark: SparkSession,
    registry: SchemaRegistry,
    stores: dict[bool, dict[str, Any]],
    tmp_path: Path,
    kind: str,
) -> None:
    writing, reading = configs(kind, registry, stores, tmp_path)
    [good] = encoded(writing, KINDS[kind].values[:1])
    records = [*mutated(good[0] or b"", [*(good[1] or [])]), (b"\xff" * 100, []), (b"\0" * 100, []), good]
    rows = [(at, value, headers or None) for at, (value, headers) in enumerate(records)]
    columns = "at int, value binary, headers array<struct<key:string,value:binary>>"
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    lit = functions.lit(TOPIC)
    column = deserialize("value", "headers", reading, topic=lit, schema=KINDS[kind].schema, mode="PERMISSIVE")
    found = frame.select("at", column.alias("v")).orderBy("at").collect()
    assert len(found) == len(rows)
    stage, [value, *_] = KINDS[kind].encoded_by, KINDS[kind].values
    if stage is not None:
        [(value, _)] = encoded({"value.serializers": stage}, [value])
    assert plain(found[-1]["v"]) == value
