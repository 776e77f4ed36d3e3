"""Batches of Avro whose records name their schemas, with a real schema registry."""

import itertools
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import ConfigError, DecodeError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.schemas.confluent import ConfluentRegistry
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.testing.services import SchemaRegistry
from tests.schemas.contexts import context_registry

ID: dict[str, Any] = {"name": "id", "type": "long"}
READING: dict[str, str] = {}
V1 = json.dumps({"type": "record", "name": "Alert", "fields": [ID]})
V2 = json.dumps({"type": "record", "name": "Alert", "fields": [ID, {"name": "band", "type": "string", "default": "r"}]})


@pytest.fixture(autouse=True, params=["auto", "off"])
def native(request: pytest.FixtureRequest) -> str:
    """Whether the compiled part may read."""
    READING["avro.native"] = request.param
    return str(request.param)


def reader(registry: SchemaRegistry | None = None, field: str = "value", **config: Any) -> DeserializerChain:
    where = {} if registry is None else {"schema.registry.url": registry.url}
    named = {key.replace("_", "."): value for key, value in config.items()}
    settings = {f"{field}.deserializer": "avro", **READING, **where, **named}
    return DeserializerChain.from_config(settings, is_key=field == "key")


def encoded(
    registry: SchemaRegistry | None, schema: str, records: list[Any], topic: str, field: str = "value", **config: Any
) -> tuple[list[bytes], list[Any]]:
    where = {} if registry is None else {"schema.registry.url": registry.url}
    named = {key.replace("_", "."): value for key, value in config.items()}
    whole = {f"{field}.serializer": "avro", "avro.schema": schema, **where, **named}
    values, headers = [], []
    with SerializerChain.from_config(whole, is_key=field == "key") as write:
        for record in records:
            ctx = RecordContext(topic, field, [])
            values.append(write(record, ctx))
            headers.append(ctx.headers)
    return values, headers


def mixed(registry: SchemaRegistry, topic: str, **config: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Records of two schemas in turns, with nulls between: values, headers, and what the newer schema makes of them."""
    old = encoded(registry, V1, [{"id": n} for n in range(50)], topic, **config)
    new = encoded(registry, V2, [{"id": n, "band": f"b{n}"} for n in range(50)], topic, **config)
    values, headers, expected = [], [], []
    for n in range(50):
        values += [new[0][n], None, old[0][n]]
        headers += [new[1][n], None, old[1][n]]
        expected += [{"id": n, "band": f"b{n}"}, None, {"id": n, "band": "r"}]
    return values, headers, expected


@pytest.mark.parametrize("framing", ["confluent", "header"])
@pytest.mark.parametrize("own", [None, V1], ids=["newest in the batch", "reader schema"])
def test_several_ids_in_one_batch(registry: SchemaRegistry, topic: str, framing: str, own: str | None) -> None:
    values, headers, expected = mixed(registry, topic, avro_framing=framing)
    with reader(registry, **({} if own is None else {"avro_reader_schema": own})) as read:
        result = read.read_batch(Batch(values, headers, topic=topic))
        assert not result.errors
        if own is not None:
            expected = [row and {"id": row["id"]} for row in expected]
        assert result.values.to_pylist() == expected
        ctx = RecordContext(topic, "value", list(headers[0]))
        read(values[0], ctx)
        assert result.headers[0] == ctx.headers
        # A slice of a column, and chunks of it, begin elsewhere in the same buffers.
        for kind in (pa.binary(), pa.large_binary()):
            column = pa.array(values, kind)
            assert read.to_arrow(column[7:101], headers[7:101], topic=topic).to_pylist() == expected[7:101]
            chunks = pa.chunked_array([column[3:5], column[5:5], column[5:90]])
            assert read.to_arrow(chunks, headers[3:90], topic=topic).to_pylist() == expected[3:90]


def test_a_wrong_id_is_reported_with_its_rows(registry: SchemaRegistry, topic: str) -> None:
    values, _, expected = mixed(registry, topic)
    for row in (2, 101):
        values[row] = b"\0\x7f\xff\xff\xff" + values[row][5:]
        expected[row] = None
    with reader(registry) as read:
        result = read.read_batch(Batch(values, topic=topic))
        assert sorted(result.errors) == [2, 101]
        assert all(isinstance(error, SchemaRegistryError) for error in result.errors.values())
        assert [(result.errors[row].row, result.errors[row].topic) for row in (2, 101)] == [(2, topic), (101, topic)]
        assert result.values.to_pylist() == expected
        with pytest.raises(SchemaRegistryError, match="2147483647") as caught:
            read.to_arrow(values, topic=topic)
        assert (caught.value.row, caught.value.stage) == (2, "avro (1 of 1)")


def test_foreign_and_truncated_bytes_are_reported_and_the_rest_is_read(registry: SchemaRegistry, topic: str) -> None:
    values, _, expected = mixed(registry, topic)
    damaged = {0: b"", 3: b"\0", 5: b"\0\0", 9: b"no Avro at all", 12: values[12][:-1], 147: values[147] + b"?"}
    for row, data in damaged.items():
        values[row], expected[row] = data, None
    with reader(registry) as read:
        result = read.read_batch(Batch(values, topic=topic))
        assert sorted(result.errors) == sorted(damaged)
        assert all(isinstance(error, DecodeError) for error in result.errors.values())
        assert result.values.to_pylist() == expected


@pytest.mark.full
def test_known_ids_are_read_without_the_registry(topic: str) -> None:
    with SchemaRegistry() as own:
        values, _, expected = mixed(own, topic)
        read = reader(own, schema_registry_timeout=1, schema_registry_max_retries=0)
        assert read.to_arrow(values, topic=topic).to_pylist() == expected
    assert read.to_arrow(values, topic=topic).to_pylist() == expected
    values[1] = b"\0\x7f\xff\xff\xff\x02"
    result = read.read_batch(Batch(values, topic=topic))
    assert [(row, type(error)) for row, error in result.errors.items()] == [(1, SchemaRegistryError)]
    assert result.values.to_pylist() == expected


def test_guids() -> None:
    # The registry for tests has no GUIDs; Confluent's stand-in has them.
    with SchemaRegistryClient.new_client({"url": "mock://batch"}) as client:
        read = reader(schema_registry_url="mock://batch")
        read.stages[0]._registry._client = client
        conf = {"schema.id.serializer": header_schema_id_serializer}
        values, headers = [], []
        for n, schema in itertools.product(range(20), (V1, V2)):
            found: list[Any] = []
            ctx = SerializationContext("t", MessageField.VALUE, found)
            values.append(AvroSerializer(client, schema, conf=conf)({"id": n, "band": "g"}, ctx))
            headers.append(found)
        in_front = [pairs[0][1] + data for pairs, data in zip(headers, values, strict=True) if data is not None]
        for found_values, found_headers in ((values, headers), (in_front, None)):
            rows = read.to_arrow(found_values, found_headers, topic="t").to_pylist()
            assert [row["id"] for row in rows] == [n for n in range(20) for _ in range(2)]


def test_single_object_framing() -> None:
    records = [{"id": n} for n in range(20)]
    values, _ = encoded(None, V1, records, "t", avro_framing="single-object")
    read = reader(avro_schema=V1, avro_framing="single-object")
    assert read.to_arrow([None, *values], topic="t").to_pylist() == [None, *records]
    values[4] = b"\xc3\x01" + bytes(8) + values[4][10:]
    result = read.read_batch(Batch(values, topic="t"))
    assert list(result.errors) == [4]
    assert result.values.to_pylist() == [*records[:4], None, *records[5:]]


def test_keys(registry: SchemaRegistry, topic: str) -> None:
    records = [{"id": n} for n in range(20)]
    values, _ = encoded(registry, V1, records, topic, "key")
    with reader(registry, "key") as read:
        assert read.to_arrow(values, topic=topic).to_pylist() == records
        with pytest.raises(DecodeError) as caught:
            read.to_arrow([*values, b"?"], topic=topic)
        assert (caught.value.field, caught.value.row) == ("key", 20)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}, "the field price is a decimal"),
        (["null", "Price"], "the Avro schema is recursive: Price"),
    ],
)
def test_a_registered_schema_without_an_arrow_type_is_not_the_records_fault(kind: Any, said: str) -> None:
    """A policy such as ``skip`` would drop each record of the topic; a schema to read into has a type."""
    schema = {"type": "record", "name": "Price", "fields": [{"name": "price", "type": kind}]}
    with context_registry() as registry:
        number = registry.register("prices-value", json.dumps(schema))
        record = b"\0" + number.to_bytes(4, "big") + b"\0"
        config = {"value.deserializer": "avro", "schema.registry.url": registry.url, **READING}
        with DeserializerChain.from_config(config) as chain, pytest.raises(ConfigError, match=said) as raised:
            chain.read_batch(Batch([record] * 3, topic="prices"))
        assert raised.value.key == "avro.reader.schema"
        assert "avro.reader.schema" in str(raised.value.hint)


def test_an_empty_batch_asks_nobody() -> None:
    read = reader(schema_registry_url="http://localhost:1")
    assert read.to_arrow([], topic="t").to_pylist() == []
    assert read.to_arrow([None, None], topic="t").equals(pa.nulls(2))
    assert reader(avro_schema=V1).to_arrow(pa.chunked_array([], pa.binary()), topic="t").type == pa.struct(
        [pa.field("id", pa.int64(), nullable=False)]
    )


@pytest.mark.parametrize(
    ("values", "headers", "keys"),
    [
        ([b"\2"], pa.array(["h"]), None),
        ([b"\2"], pa.array([[{"only": "h"}]]), None),
        ([b"\2"], [None, None], None),
        ([b"\2"], None, [b"a", b"b"]),
        (pa.array([1]), None, None),
    ],
    ids=["headers of text", "headers of one field", "too many headers", "too many keys", "numbers"],
)
def test_columns_that_do_not_fit_are_refused(values: Any, headers: Any, keys: Any) -> None:
    with pytest.raises(ConfigError, match=r"headers|keys|int64"):
        reader(avro_schema=V1).to_arrow(values, headers, topic="t", keys=keys)


class Answers:
    """What a registry knows, instead of one that cannot be made to give these GUIDs, or to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, schemas: dict[object, str]) -> None:
        self.asked: list[object] = []

        def get(_self: object, key: Any, _type: str, _form: str | None = None) -> RegisteredSchema:
            self.asked.append(key)
            if key not in schemas:
                raise SchemaRegistryError("it is down")
            return RegisteredSchema(key, schemas[key])

        monkeypatch.setattr(ConfluentRegistry, "get", get)


def test_guids_that_begin_alike_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    Answers(
        monkeypatch, {one: V1, two: json.dumps({"type": "record", "name": "Alert", "fields": [{**ID, "name": "no"}]})}
    )
    merged = {"type": "record", "name": "Alert", "fields": [{**ID, "default": 0}, {**ID, "name": "no", "default": 0}]}
    settings = {"schema.registry.url": "http://127.0.0.1:1", "avro.reader.schema": json.dumps(merged)}
    values = [b"\1" + guid.bytes + bytes((2 * row,)) for row, guid in enumerate((one, two, one, two))]
    array = DeserializerChain.from_config({"value.deserializer": "avro", **settings}).to_arrow(values, topic="t")
    expected = [{"id": 0, "no": 0}, {"id": 0, "no": 1}, {"id": 2, "no": 0}, {"id": 0, "no": 3}]
    assert array.to_pylist() == expected


def test_a_registry_that_is_down_is_asked_once_per_batch_and_id(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch, {})
    settings = {"schema.registry.url": "http://127.0.0.1:1", "value.deserializer": "avro"}
    values = [b"\0\0\0\0" + bytes((at % 2, at)) for at in range(20)]
    result = DeserializerChain.from_config(settings).read_batch(Batch(values, topic="t"))
    assert result.errors.keys() == set(range(20))
    assert [error.row for _, error in sorted(result.errors.items())] == list(range(20))
    assert sorted(map(str, answers.asked)) == ["0", "1"]
