"""Columns written by registered schemas: by chains and by Spark's workers, they are matched to each topic's schema."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.clients.tables import TableRows
from serde_chain.errors import EncodeError, SchemaRegistryError, SerializationError
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.writing.plan import WritePlan
from serde_chain.spark.writing.worker import encode_batches
from tests.schemas.contexts import ContextRegistry, context_registry

CUSTOMER = '{"type": "record", "name": "Customer", "fields": [{"name": "id", "type": "int"}]}'
PRODUCT = '{"type": "record", "name": "Product", "fields": [{"name": "price", "type": "float"}]}'
EVENTS = f"[{CUSTOMER}, {PRODUCT}]"
MEMBERS = pa.struct([("member0", pa.struct([("id", pa.int64())])), ("member1", pa.struct([("price", pa.float64())]))])

Write = Callable[[dict[str, Any], Any, str], list[Any]]


@pytest.fixture
def registry() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running
    chains.close_all()


def by_chain(config: dict[str, Any], column: Any, topic: str) -> list[Any]:
    with SerializerChain.from_config(config) as chain:
        found: list[Any] = chain.from_arrow(column, topic=topic).values.to_pylist()
        return found


def by_spark(config: dict[str, Any], column: Any, topic: str) -> list[Any]:
    plan = WritePlan(config, ("value", "topic"), ("value",))
    batch = column, pa.array([topic] * len(column))
    return [row["value"] for part in encode_batches(pickle.dumps(plan), iter([batch])) for row in part.to_pylist()]


BOTH = pytest.mark.parametrize("write", [by_chain, by_spark])


def config_of(registry: ContextRegistry, selected: str = "latest", **more: Any) -> dict[str, Any]:
    select: dict[str, Any] = {
        "latest": {"use.latest.version": True},
        "id": {"use.schema.id": 1, "auto.register.schemas": False},
        "metadata": {"use.latest.with.metadata": "major=1"},
    }
    return {"value.serializers": "avro", "schema.registry.url": registry.url, **select[selected], **more}


def read(registry: ContextRegistry, topic: str, records: list[Any]) -> list[Any]:
    config = {"value.deserializers": "avro", "schema.registry.url": registry.url}
    with DeserializerChain.from_config(config) as chain:
        return [chain(record, RecordContext(topic, "value", [])) for record in records]


@BOTH
@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("selected", ["latest", "id", "metadata"])
def test_a_union_of_records(registry: ContextRegistry, write: Write, selected: str, native: str) -> None:
    registry.register("events-value", EVENTS, metadata={"properties": {"major": "1"}})
    rows = [{"member0": {"id": 7}, "member1": None}, {"member0": None, "member1": {"price": 0.5}}, None]
    found = write(config_of(registry, selected, **{"avro.native": native}), pa.array(rows, MEMBERS), "events")
    assert found[2] is None
    assert [record[5:] for record in found[:2]] == [b"\0\x0e", b"\2\0\0\0?"]
    assert read(registry, "events", found[:2]) == [{"id": 7}, {"price": 0.5}]


@BOTH
@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize(
    ("schema", "column", "said"),
    [
        ('"int"', pa.array([1, 2**31]), "value does not fit the schema's int"),
        ('"int"', pa.array([1.5]), "value does not fit the schema's int"),
        ('"int"', pa.array([None, True]), "value does not fit the schema's int: it is bool"),
        ('"float"', pa.array([1.0, 1e300]), "value does not fit the schema's float: a number is beyond"),
        ('["null", "float"]', pa.array([None, -1e300]), "value does not fit the schema's float: a number is beyond"),
        (CUSTOMER, pa.array([{"id": 2**31}]), r"value\.id does not fit the schema's int"),
        (EVENTS, pa.array([{"member0": {"id": 2**31}}], MEMBERS), r"value\.member0\.id does not fit the schema's int"),
        (EVENTS, pa.array([{"member1": {"price": 1e300}}], MEMBERS), r"value\.member1\.price does not fit .* float"),
        ('{"type": "array", "items": "boolean"}', pa.array([[True], [None]]), r"value\[\] does not fit .*: it is null"),
        ('"boolean"', pa.array([None, 1]), "value does not fit the schema's boolean: it is int64"),
        ('"boolean"', pa.array([None, "false"]), "value does not fit the schema's boolean: it is string"),
        ('["null", "boolean"]', pa.array([None, [True]]), "value does not fit the schema's boolean: it is list"),
        ('{"type": "map", "values": "int"}', pa.array([[("a", 1)], [("a", 2**31)]], pa.map_("str", "int64")), "int"),
        ('[["int", "string"]]'[1:-1], pa.array([{"member0": 2**31}], pa.struct({"member0": "int64", "member1": "str"})),
         r"value\.member0 does not fit the schema's int"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(  # noqa: PLR0917, cases
    registry: ContextRegistry, write: Write, schema: str, column: Any, said: str, native: str
) -> None:
    registry.register("numbers-value", schema)
    with pytest.raises(EncodeError, match=said) as raised:
        write(config_of(registry, **{"avro.native": native}), column, "numbers")
    assert (raised.value.topic, raised.value.field, raised.value.about_record) == ("numbers", "value", True)
    if write is by_chain:
        assert raised.value.row == len(column) - 1


@pytest.mark.parametrize("native", ["auto", "off"])
def test_booleans_of_a_byte_fit(registry: ContextRegistry, native: str) -> None:
    registry.register("numbers-value", '"boolean"')
    column = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
    found = by_chain(config_of(registry, **{"avro.native": native}), column, "numbers")
    assert [record and record[5:] for record in found] == [b"\1", b"\0"]


@pytest.mark.parametrize("native", ["auto", "off"])
def test_special_numbers_fit(registry: ContextRegistry, native: str) -> None:
    registry.register("numbers-value", '["null", "float"]')
    special = [float("inf"), float("-inf"), -0.0, None, 3.4e38]
    found = by_spark(config_of(registry, **{"avro.native": native}), pa.array(special), "numbers")
    assert [record and record[6:] for record in found] == [
        b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\0\0\0\x80", None, b"\x9e\xc9\x7f\x7f",
    ]  # fmt: skip


@BOTH
def test_the_registered_schema_counts_not_ones_own(registry: ContextRegistry, write: Write) -> None:
    registry.register("numbers-value", CUSTOMER)
    own = CUSTOMER.replace('"int"', '"long"')
    with pytest.raises(EncodeError, match=r"value\.id does not fit the schema's int"):
        write(config_of(registry, **{"avro.schema": own}), pa.array([{"id": 2**40}]), "numbers")


@pytest.mark.parametrize("native", ["auto", "off"])
def test_topics_of_several_schemas_in_one_batch(registry: ContextRegistry, native: str) -> None:
    registry.register("events-value", EVENTS)
    registry.register("others-value", f"[{PRODUCT}, {CUSTOMER}]".replace('"int"', '"long"'))
    both = pa.struct([("id", pa.int64()), ("price", pa.float64())])
    kind = pa.struct([("member0", both), ("member1", both)])
    rows = [
        {"member0": {"id": 7}}, {"member0": {"price": 0.5}}, None, {"member1": {"id": 2**40}}, {"member1": {"price": 2}}
    ]  # fmt: skip
    topics = pa.array(["events", "others", None, "others", "events"])
    plan = WritePlan(config_of(registry, **{"avro.native": native}), ("value", "topic"), ("value",))
    [part] = encode_batches(pickle.dumps(plan), iter([(pa.array(rows, kind), topics)]))
    found = [row["value"] for row in part.to_pylist()]
    assert found[2] is None
    for topic, at in (("events", [0, 4]), ("others", [1, 3])):
        expected = [{"id": 7}, {"price": 2}] if topic == "events" else [{"price": 0.5}, {"id": 2**40}]
        assert read(registry, topic, [found[row] for row in at]) == expected


@BOTH
def test_a_newer_schema_is_taken_after_a_while(registry: ContextRegistry, write: Write) -> None:
    registry.register("numbers-value", '"long"')
    config = {**config_of(registry), "schema.registry.cache.latest.ttl.sec": 0}
    assert [record[:5] for record in write(config, pa.array([1]), "numbers")] == [b"\0\0\0\0\1"]
    registry.register("numbers-value", '"double"')
    assert [record[:5] for record in write(config, pa.array([1]), "numbers")] == [b"\0\0\0\0\2"]


@BOTH
def test_errors_of_the_registry_have_a_place(registry: ContextRegistry, write: Write) -> None:
    with pytest.raises(SchemaRegistryError, match=r"topic=unknown, field=value, stage=avro \(1 of 1\)"):
        write(config_of(registry), pa.array([1]), "unknown")


def test_nulls_need_no_schema(registry: ContextRegistry) -> None:
    assert by_spark(config_of(registry), pa.array([None], pa.int64()), "unknown") == [None]


@BOTH
def test_behind_a_stage_that_moves_fields(registry: ContextRegistry, write: Write) -> None:
    registry.register("events-value", EVENTS)
    moved = {
        "value.serializers": "large-fields, avro",
        "large.fields.paths": "picture",
        "large.message.payload.store.class": "memory",
    }
    rows = [{"member0": {"id": 7}}, {"member1": {"price": 0.5}}]
    found = write(config_of(registry, **moved), pa.array(rows, MEMBERS), "events")
    assert read(registry, "events", found) == [{"id": 7}, {"price": 0.5}]


def test_keys_of_a_table(registry: ContextRegistry) -> None:
    registry.register("events-key", '["int", "string"]')
    config = {f"key.{name}": value for name, value in config_of(registry).items()}
    config["key.serializers"] = config.pop("key.value.serializers")
    config["value.serializers"] = "json"
    kind = pa.struct([("member0", pa.int64()), ("member1", pa.string())])
    keys = [{"member0": 7}, {"member1": "a"}, {"member0": 2**31}]
    table = pa.table({"id": pa.array(keys, kind)})
    with (
        SerializerChain.from_config(config, is_key=True) as key,
        SerializerChain.from_config(config) as value,
        TableRows(key, value, table, "events", "id", blocks=True) as rows,
    ):
        parts = rows.parts()
        made = [key(own, RecordContext("events", "key")) for _, own in next(parts).pairs]
        with pytest.raises(SerializationError, match="does not fit the schema's int") as raised:
            next(parts)
    assert [each and each[5:] for each in made] == [b"\0\x0e", b"\2\2a"]
    assert (raised.value.topic, raised.value.field, raised.value.row) == ("events", "key", 2)
