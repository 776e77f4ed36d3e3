"""The writer's schema in the record's key, as in Fink's topics."""

import io
import json
from typing import Any

import fastavro
import pytest

from serde_chain import ConfigError, DecodeError, DeserializerChain, EncodeError, RecordContext, SerializerChain
from serde_chain.stages.avro.schema import AvroSchema

FIELDS: list[dict[str, Any]] = [{"name": "objectId", "type": "string"}, {"name": "stamp", "type": "bytes"}]
OLD = json.dumps({"type": "record", "name": "alert", "fields": FIELDS})
NEW = json.dumps(
    {"type": "record", "name": "alert", "fields": [*FIELDS, {"name": "roid", "type": "int", "default": -1}]}
)
CONFIG = {"avro.framing": "record-key"}


def foreign(schema: str, value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, json.loads(schema), value)
    return buffer.getvalue()


def reader(**config: object) -> DeserializerChain:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return DeserializerChain.from_config({"value.deserializer": "avro", **CONFIG, **settings})


def context(key: bytes | str | None) -> RecordContext:
    return RecordContext("t", "value", [], key.encode() if isinstance(key, str) else key)


RECORDS = [
    (OLD, {"objectId": f"ZTF{number}", "stamp": bytes(number)})
    if number % 3
    else (NEW, {"objectId": f"ZTF{number}", "stamp": bytes(number), "roid": number})
    for number in range(300)
]


def test_each_record_is_read_by_the_schema_in_its_key() -> None:
    read, into_new = reader(), reader(avro_reader_schema=NEW)
    for schema, value in RECORDS:
        data = foreign(schema, value)
        assert read(data, context(schema)) == value
        assert into_new(data, context(schema)) == {"roid": -1, **value}


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize("arrow_reader", ["auto", "record"])
@pytest.mark.parametrize("count", [3, 300])
def test_batches(native: str, arrow_reader: str, count: int) -> None:
    read = reader(avro_reader_schema=NEW, avro_native=native, avro_arrow_reader=arrow_reader)
    values = [foreign(schema, value) for schema, value in RECORDS[:count]]
    keys = [schema.encode() for schema, _ in RECORDS[:count]]
    column = read.to_arrow(values, topic="t", keys=keys)
    assert column.to_pylist() == [{"roid": -1, **value} for _, value in RECORDS[:count]]
    assert reader(avro_reader_schema=NEW).to_arrow([values[0], None], topic="t", keys=[keys[0], None]).null_count == 1
    with pytest.raises(DecodeError, match="key is not its schema"):
        read.to_arrow(values[:2], topic="t", keys=[keys[0], b"1.4_0.5.2"])
    with pytest.raises(DecodeError, match="has no key"):
        read.to_arrow(values[:2], topic="t", keys=[keys[0], None])
    with pytest.raises(DecodeError, match="has no key"):
        read.to_arrow(values[:2], topic="t")


@pytest.mark.parametrize(
    "key",
    [b"", b"1.4_0.5.2", b"\xff", b"{}", b"[" * 100_000, b'{"type": "array", "items": ' * 5000, b'"nothing"'],
    ids=lambda key: repr(key[:10]),
)
def test_a_key_that_is_no_schema(key: bytes) -> None:
    with pytest.raises(DecodeError, match=r"key is not its schema.*avro\.framing"):
        reader()(b"data", context(key))


def test_a_schema_that_claims_more_parts_than_characters_is_refused() -> None:
    fields: list[dict[str, Any]] = [{"name": "f", "type": "null"}]
    types: Any = {"type": "record", "name": "r0", "fields": fields}
    for level in range(1, 30):
        pair = [{"name": "a", "type": types}, {"name": "b", "type": f"r{level - 1}"}]
        types = {"type": "record", "name": f"r{level}", "fields": pair}
    with pytest.raises(DecodeError, match="and its records more than"):
        reader()(b"", context(json.dumps(types)))


def test_schemas_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = AvroSchema.parse

    def counted(text: str) -> AvroSchema:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(AvroSchema, "parse", counted)
    read = reader()
    long = OLD[:-1] + f', "doc": "{"x" * 200_000}"}}'  # surveys' schemas have this many characters
    for _ in range(3):
        read(foreign(OLD, RECORDS[1][1]), context(long))
    assert parsed == [long]
    stage: Any = read.stages[0]
    for number in range(150):
        read(foreign(OLD, RECORDS[1][1]), context(OLD.replace("alert", f"alert{number}")))
    assert len(stage._readers) <= 100
    for number in range(5):
        read(foreign(OLD, RECORDS[1][1]), context(long.replace("alert", f"alert{number}")))
    assert max(map(len, stage._readers)) < 1000  # of the large ones, the latest is kept


def test_without_a_key() -> None:
    for ctx in (None, context(None)):
        with pytest.raises(DecodeError, match="the record has no key"):
            reader()(b"data", ctx)


def test_a_writer_checks_that_the_key_is_the_schema() -> None:
    write = SerializerChain.from_config({"value.serializer": "avro", **CONFIG, "avro.schema": OLD})
    value = RECORDS[1][1]
    spaced = json.dumps(json.loads(OLD), indent=1)
    for key in (OLD, spaced, spaced):
        assert reader()(write(value, context(key)), context(key)) == value
    for wrong in (None, NEW, "ZTF1"):
        with pytest.raises(EncodeError, match=r"key is not the schema alert.*key\.serializer = string"):
            write(value, context(wrong))


@pytest.mark.parametrize("kind", [SerializerChain, DeserializerChain])
def test_key_chains_refuse_it(kind: Any) -> None:
    way = "serializer" if kind is SerializerChain else "deserializer"
    with pytest.raises(ConfigError, match=r"record-key is for values.*value\.avro\.framing"):
        kind.from_config({f"key.{way}": "avro", **CONFIG, "avro.schema": OLD}, is_key=True)
