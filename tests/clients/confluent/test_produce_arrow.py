"""Tables to a broker, and back."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from serde_chain import ConfigError, Consumer, Producer, SerializationError, Serializer
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.conftest import NewTopic

SCHEMA = """{"type": "record", "name": "Alert", "fields": [
    {"name": "name", "type": "string"}, {"name": "flux", "type": "double"}, {"name": "stamp", "type": "bytes"}]}"""
CHAINS = {"key.serializer": "string", "key.deserializer": "string", "avro.schema": SCHEMA}
TABLE = pa.table(
    {"name": [f"M {at}" for at in range(300)], "flux": [float(at) for at in range(300)], "stamp": [b"stamp"] * 300}
)


def read(config: Mapping[str, object], topic: str, count: int) -> Any:
    with Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        tables: list[Any] = []
        while sum(map(len, tables)) < count:
            tables.append(consumer.consume_arrow(count, 1))
    return pa.concat_tables(table for table in tables if len(table)).sort_by("offset")


def flat(column: Any) -> Any:
    return pa.Table.from_struct_array(column)


@pytest.mark.parametrize("stages", ["avro", "avro, zstd", "json"])
def test_a_table_there_and_back(broker: KafkaBroker, registry: SchemaRegistry, topic: str, stages: str) -> None:
    config = {
        **broker.client_config(),
        **CHAINS,
        "schema.registry.url": registry.url,
        "value.serializers": stages,
        "value.deserializers": ", ".join(reversed(stages.split(", "))),
        # Fewer than there are rows: the call waits for deliveries.
        "queue.buffering.max.messages": 100,
    }
    table = TABLE if "avro" in stages else TABLE.drop(["stamp"])
    reports: list[Any] = []
    with Producer(config) as producer:
        count = producer.produce_arrow(
            table, topic, key="name", on_delivery=lambda error, message: reports.append((error, message.key()))
        )
        assert producer.flush(30) == 0
    assert count == 300
    assert reports == [(None, name.encode()) for name in TABLE["name"].to_pylist()]
    found = read(config, topic, 300)
    assert found["key"].to_pylist() == TABLE["name"].to_pylist()
    if "avro" in stages:
        assert found["value"].to_pylist() == table.to_pylist()


@pytest.mark.parametrize(("threshold", "times"), [(10_000, 1000), ("auto", 40_000)])
def test_large_rows_are_offloaded_in_order(
    broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path, threshold: object, times: int
) -> None:
    topic = new_topic()
    config = {
        **broker.client_config(),
        **CHAINS,
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": threshold,
    }
    stamps = [hashlib.sha256(bytes([at])).digest() * (times if at % 3 == 0 else 1) for at in range(20)]
    frame = pl.DataFrame({"name": [f"{at}" for at in range(20)], "flux": [0.5] * 20, "stamp": stamps})
    with Producer(config) as producer:
        assert producer.produce_arrow(frame, topic, "name") == 20
    found = read(config, topic, 20)
    assert flat(found["value"])["stamp"].to_pylist() == stamps
    assert found["key"].to_pylist() == frame["name"].to_list()
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 7


def test_rows_before_a_wrong_one_are_sent(broker: KafkaBroker, topic: str) -> None:
    config = {**broker.client_config(), "value.serializer": "json", "value.deserializer": "json"}
    table = pa.table({"flux": [1.0, 2.0, float("nan"), 3.0]})
    with Producer(config) as producer:
        with pytest.raises(SerializationError) as raised:
            producer.produce_arrow(table, topic)
        assert raised.value.row == 2
        assert producer.produce_arrow(table.slice(raised.value.row + 1), topic) == 1
    assert read(config, topic, 3)["value"].to_pylist() == ['{"flux":1.0}', '{"flux":2.0}', '{"flux":3.0}']


@pytest.mark.parametrize("key", [None, "stamp"])
def test_rows_before_a_time_beyond_python_are_queued(key: str | None) -> None:
    """A whole part becomes objects before its first record is produced."""
    stamps = pa.array([0] * 1000 + [2**60, 0], pa.timestamp("s"))
    table = pa.table({"name": ["x" * 10_000] * len(stamps), "stamp": stamps})
    chains = {"key.serializer": _Seconds(), "value.serializer": "json"}
    reports: list[Any] = []
    with Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **chains}) as producer:
        with pytest.raises(SerializationError, match="out of Python") as raised:
            producer.produce_arrow(table, "alerts", key, on_delivery=lambda *report: reports.append(report))
        producer.purge()
        producer.flush()
    assert raised.value.row == len(reports) == 1000


class _Seconds(Serializer[Any]):
    def __call__(self, data: Any, ctx: Any = None, /) -> bytes:
        return str(data.timestamp()).encode()


def test_without_room_the_error_names_the_row() -> None:
    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 0,
        "value.serializer": "avro",
        "avro.schema": SCHEMA,
        "queue.buffering.max.messages": 5,
        "max.block.ms": 50,
    }
    producer = Producer(config)
    with pytest.raises(BufferError, match="row 5 of the table"):
        producer.produce_arrow(TABLE, "alerts")
    assert len(producer) == 5
    producer.purge()
    producer.close()


def test_what_cannot_be_produced() -> None:
    base = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    with Producer(base) as raw, pytest.raises(ConfigError, match="requires a chain of values"):
        raw.produce_arrow(TABLE, "alerts")
    with Producer({**base, "value.serializer": "json"}) as producer:
        with pytest.raises(ConfigError, match=r"there is no column nam of keys.*Did you mean name"):
            producer.produce_arrow(TABLE, "alerts", key="nam")
        with pytest.raises(ConfigError, match="a table was expected"):
            producer.produce_arrow([{"name": "M 51"}], "alerts")
        with pytest.raises(TypeError, match="a key is bytes or str"):
            producer.produce_arrow(TABLE.drop(["stamp"]), "alerts", key="flux")
