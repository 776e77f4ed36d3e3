"""A schema that others have written is a fact: whatever it says beside the types, their records are read."""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from serde_chain import ConfigError, DecodeError, DeserializerChain, RecordContext, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.testing.services import SchemaRegistry
from serde_chain.wire import varint
from tests.schemas.confluent_registry import ConfluentRegistries, confluent_registries


def sized(data: bytes) -> bytes:
    return varint.encode(varint.to_zigzag(len(data))) + data


def decimal(**more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", **more}


TWO = sized(b"\2")
ENUM = {"type": "enum", "name": "state", "symbols": ["in-progress", "2nd"]}
# The type of a field, its bytes, and its value.
ODD: Mapping[str, tuple[Any, bytes, Any]] = {
    "scale above precision": (decimal(precision=38, scale=127), TWO, b"\2"),
    "negative scale": (decimal(precision=10, scale=-84), TWO, b"\2"),
    "no precision": (decimal(), TWO, b"\2"),
    "precision 0": (decimal(precision=0), TWO, b"\2"),
    "precision as text": (decimal(precision="10"), TWO, b"\2"),
    "precision as a boolean": (decimal(precision=True), TWO, b"\2"),
    "precision as a fraction": (decimal(precision=9.5), TWO, b"\2"),
    "scale as text": (decimal(precision=10, scale="2"), TWO, b"\2"),
    "more digits than the size": (
        {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 9},
        b"\2",
        b"\2",
    ),
    "decimal of text": ({"type": "string", "logicalType": "decimal", "precision": 4, "scale": 9}, sized(b"1.5"), "1.5"),
    "date of a long": ({"type": "long", "logicalType": "date"}, b"\2", 1),
    "timestamp of an int": ({"type": "int", "logicalType": "timestamp-millis"}, b"\2", 1),
    "timestamp of text": ({"type": "string", "logicalType": "timestamp-micros"}, sized(b"1"), "1"),
    "unknown": ({"type": "int", "logicalType": "io.debezium.time.Year"}, b"\2", 1),
    "not a text": ({"type": "int", "logicalType": ["date"]}, b"\2", 1),
    "one of ours": ({"type": "int", "logicalType": "serde-chain-promoted"}, b"\2", 1),
    "a valid one": (decimal(precision=4, scale=2), TWO, Decimal("0.02")),
    "in a union": (["null", decimal(precision=38, scale=127)], b"\2" + TWO, b"\2"),
    "in an array": ({"type": "array", "items": decimal(precision=0)}, b"\2" + TWO + b"\0", [b"\2"]),
    "hyphens": (ENUM, b"\2", "2nd"),
    "a hyphen in a name": ({"type": "record", "name": "net-flow.v-1", "fields": []}, b"", {}),
    "symbols twice": ({**ENUM, "symbols": ["a", "b", "a"]}, b"\4", "a"),
    "a default that is no symbol": ({**ENUM, "default": "unknown"}, b"\0", "in-progress"),
    "aliases as text": ({**ENUM, "aliases": "other"}, b"\0", "in-progress"),
    "a type in a type": ({"type": {"type": "int"}}, b"\2", 1),
    "a union in a type": ({"type": ["null", "int"]}, b"\2\2", 1),
    "an error": ({"type": "error", "name": "Failure", "fields": [{"name": "code", "type": "int"}]}, b"\2", {"code": 1}),
}
# Defaults of the wrong type.
DEFAULTS: tuple[tuple[Any, Any], ...] = (
    ("string", None), (["float", "null"], "null"), ("int", "1"), ("int", True), ("int", 1 << 40), ("bytes", 5),
    (["null", "int"], "x"), ({"type": "array", "items": "int"}, {}), ({"type": "map", "values": "int"}, {"a": "b"}),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"), ({"type": "fixed", "name": "F", "size": 2}, "a"),
    ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {}),
    ({"type": "array", "items": ["null", "int"]}, ["x"]), (decimal(precision=1), "\u00ff\u0000"),
)  # fmt: skip


def record(kind: Any, **more: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "int"}, {"name": "odd", "type": kind, **more}]
    return {"type": "record", "name": "shop.Order", "fields": fields}


def in_a_file(schema: Any, data: bytes) -> bytes:
    """A container file of one record, whose header is not checked by anyone."""
    text = json.dumps(schema).encode()
    meta = b"\2" + sized(b"avro.schema") + sized(text) + b"\0"
    return b"Obj\1" + meta + bytes(16) + b"\2" + sized(data) + bytes(16)


@pytest.fixture(scope="module")
def registries() -> Iterator[ConfluentRegistries]:
    with confluent_registries() as running:
        yield running


Way = Callable[[Any, bytes], tuple[dict[str, object], bytes, RecordContext]]


@pytest.fixture(params=["container", "record-key", "registry"])
def way(request: pytest.FixtureRequest, registries: ConfluentRegistries) -> Way:
    """How a record names its schema: a configuration, the record, and what is around it."""

    def named(schema: Any, data: bytes) -> tuple[dict[str, object], bytes, RecordContext]:
        around = RecordContext("orders", "value", key=json.dumps(schema).encode())
        if request.param == "container":
            return {"avro.framing": "container"}, in_a_file(schema, data), around
        if request.param == "record-key":
            return {"avro.framing": "record-key"}, data, around
        key = registries.schemas.register_schema("orders-value", Schema(json.dumps(schema), "AVRO"))
        return {"schema.registry.url": registries.url}, b"\0" + key.to_bytes(4, "big") + data, around

    return named


def reader(**config: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "avro", **config})


def rows_and_columns(config: dict[str, object], data: bytes, around: RecordContext) -> Any:
    """The record, which is the same in a column."""
    with reader(**config) as chain:
        value = chain(data, around)
        for count in (1, 2000):
            batch = Batch([data] * count, topic="orders", keys=[around.key] * count)
            result = chain.read_batch(batch)
            assert not result.errors
            assert result.values[count - 1].as_py() == value
    return value


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_in_a_writers_schema_is_ignored(name: str, way: Way) -> None:
    kind, data, value = ODD[name]
    assert rows_and_columns(*way(record(kind), b"\2" + data)) == {"id": 1, "odd": value}


@pytest.mark.parametrize(("kind", "default"), DEFAULTS)
def test_defaults_of_a_writers_schema_mean_nothing(kind: Any, default: Any, way: Way) -> None:
    schema = record("int")
    schema["fields"].append({"name": "more", "type": ["null", "int"], "default": None})
    schema["fields"].insert(0, {"name": "wrong", "type": {"type": "array", "items": kind}, "default": default})
    schema["fields"].insert(0, {"name": "also", "type": ["null", "long"], "default": "null"})
    assert rows_and_columns(*way(schema, b"\0\0\2\4\0")) == {"also": None, "wrong": [], "id": 1, "odd": 2, "more": None}


@pytest.mark.parametrize(("kind", "default"), DEFAULTS)
def test_wrong_defaults_of_a_reader_count_where_they_are_needed(kind: Any, default: Any, way: Way) -> None:
    config, data, around = way(record("int"), b"\2\4")
    schema = record("int")
    schema["fields"].append({"name": "new", "type": kind, "default": default})
    with reader(**config, **{"avro.reader.schema": schema}) as chain:
        with pytest.raises(DecodeError, match="new: the writer's schema lacks it, and its default has the wrong type"):
            chain(data, around)
        batch = Batch([data] * 2, topic="orders", keys=[around.key] * 2)
        assert len(chain.read_batch(batch).errors) == 2
    # Not needed: the writer's schema has the field.
    same = reader(**{"avro.schema": record("int"), "avro.reader.schema": record("int", default="x")})
    assert same(b"\2\4") == {"id": 1, "odd": 2}


@pytest.mark.parametrize(("kind", "default"), DEFAULTS)
def test_ones_own_schema_is_checked(kind: Any, default: Any) -> None:
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": record(kind, default=default)}]}
    with pytest.raises(ConfigError, match=r"avro\.schema: .*inner\.odd: its default has the wrong type"):
        reader(**{"avro.schema": schema})
    with pytest.raises(ConfigError, match=r"avro\.schema: .*inner\.odd: its default has the wrong type"):
        SerializerChain.from_config({"value.serializers": "avro", "avro.schema": schema})


@pytest.mark.parametrize("key", ["avro.schema", "avro.reader.schema"])
def test_two_fields_of_one_name_are_refused_in_ones_own_schema(key: str) -> None:
    twice = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": twice}]}
    with pytest.raises(ConfigError, match=r"inner: R has two fields a"):
        reader(**{"avro.schema": "long", key: schema})
    assert AvroSchema.parse(schema).name == "Outer"


@pytest.mark.parametrize("key", ["avro.schema", "avro.reader.schema"])
@pytest.mark.parametrize("name", [name for name, (kind, *_) in ODD.items() if "precision" in name or "scale" in name])
def test_an_invalid_decimal_of_ones_own_is_named(name: str, key: str) -> None:
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": record(ODD[name][0])}]}
    with pytest.raises(ConfigError, match=r"inner\.odd: .*decimal"):
        reader(**{"avro.schema": "long", key: schema})


# References and names


CUSTOMER = {"type": "record", "name": "shop.Customer", "fields": [{"name": "name", "type": "string"}]}
PRODUCT = {
    "type": "record",
    "name": "Product",
    "namespace": "shop",
    "fields": [{"name": "price", "type": "int"}, {"name": "owner", "type": ["null", "Customer"], "default": None}],
}
# A schema that refers to both, its bytes, and its value.
PLACES: Mapping[str, tuple[Any, bytes, Any]] = {
    "a union": (["shop.Customer", "shop.Product"], b"\2\4\0", {"price": 2, "owner": None}),
    "a bare name": ("shop.Product", b"\4\0", {"price": 2, "owner": None}),
    "a name as an object": ({"type": "shop.Product"}, b"\4\0", {"price": 2, "owner": None}),
    "an array": ({"type": "array", "items": "shop.Customer"}, b"\2\2a\0", [{"name": "a"}]),
    "a map": ({"type": "map", "values": ["null", "shop.Customer"]}, b"\2\2k\2\2a\0", {"k": {"name": "a"}}),
    "an optional union": (["null", "shop.Product"], b"\2\4\2\2a", {"price": 2, "owner": {"name": "a"}}),
    "a field": (
        {"type": "record", "name": "shop.Order", "fields": [{"name": "of", "type": "Customer"}]},
        b"\2a",
        {"of": {"name": "a"}},
    ),
    "a name in no namespace": (
        {"type": "record", "name": "shop.Order", "fields": [{"name": "of", "type": ["null", "Plain"]}]},
        b"\2\6",
        {"of": {"n": 3}},
    ),
}
PLAIN = {"type": "record", "name": "Plain", "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize("place", PLACES)
def test_references_in_any_place(place: str, registries: ConfluentRegistries) -> None:
    schema, data, value = PLACES[place]
    client, subject = registries.schemas, f"{place}-value"
    references: list[SchemaReference] = []
    for other in (CUSTOMER, PRODUCT, PLAIN):
        name = AvroSchema.parse(other, [json.dumps(CUSTOMER)]).name
        own = references[:1] if other is PRODUCT else []
        client.register_schema(name, Schema(json.dumps(other), "AVRO", own))
        references.append(SchemaReference(name, name, 1))
    key = client.register_schema(subject, Schema(json.dumps(schema), "AVRO", references))
    framed = b"\0" + key.to_bytes(4, "big") + data
    config = {"schema.registry.url": registries.url}
    around = RecordContext(place, "value")
    with reader(**config) as chain:
        assert chain(framed, around) == value
        column = {"a union": {"member0": None, "member1": value}, "a map": [("k", {"name": "a"})]}.get(place, value)
        assert chain.to_arrow([framed] * 3, topic=place).to_pylist() == [column] * 3
    writing = {"value.serializers": "avro", **config, "use.latest.version": True}
    with SerializerChain.from_config(writing) as chain:
        assert chain(value, around) == framed
        if place == "a union":
            assert chain(("shop.Product", value), around) == framed


def test_a_name_is_defined_after_its_first_use() -> None:
    """As Avro's Java implementation reads it, and within its own namespace."""
    fields = [{"name": "of", "type": ["null", "Customer"]}, {"name": "again", "type": CUSTOMER}]
    chain = reader(**{"avro.schema": {"type": "record", "name": "shop.Order", "fields": fields}})
    assert chain(b"\2\2a\2b") == {"of": {"name": "a"}, "again": {"name": "b"}}


def test_a_type_defined_twice_is_one_type_if_the_definitions_are_equal() -> None:
    fields = [{"name": "a", "type": CUSTOMER}, {"name": "b", "type": CUSTOMER}]
    assert reader(**{"avro.schema": {"type": "record", "name": "R", "fields": fields}})(b"\2a\2b")["b"] == {"name": "b"}
    other = {**CUSTOMER, "fields": []}
    with pytest.raises(ConfigError, match=r"b: the type shop\.Customer is defined twice"):
        reader(**{"avro.schema": {"type": "record", "name": "R", "fields": [fields[0], {"name": "b", "type": other}]}})


# Files


def files(folder: Path, schemas: Mapping[str, Any], mark: str = "") -> None:
    for name, schema in schemas.items():
        (folder / name).write_text(mark + json.dumps(schema), encoding="utf-8")


@pytest.mark.parametrize("names", [("shop.Customer.avsc", "shop.Product.avsc"), ("Customer.avsc", "Product.avsc")])
@pytest.mark.parametrize("mark", ["", "\ufeff", " \n"])
def test_types_are_looked_up_beside_the_file(tmp_path: Path, names: tuple[str, str], mark: str) -> None:
    """As Rubin's and ZTF's schemas are published: one file per type."""
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "of", "type": ["null", "Product"]}]}
    files(tmp_path, {"shop.Order.avsc": order, names[0]: CUSTOMER, names[1]: PRODUCT}, mark)
    path = str(tmp_path / "shop.Order.avsc")
    value = {"of": {"price": 2, "owner": {"name": "a"}}}
    with SerializerChain.from_config({"value.serializers": "avro", "avro.schema.file": path}) as chain:
        assert chain(value) == b"\2\4\2\2a"
    with reader(**{"avro.schema.file": path}) as chain:
        assert chain(b"\2\4\2\2a") == value
        assert chain.to_arrow([b"\2\4\2\2a"], topic="t").to_pylist() == [value]


def test_a_schema_in_several_files_is_registered_as_one(tmp_path: Path, registries: ConfluentRegistries) -> None:
    files(tmp_path, {"union.avsc": ["Customer", "shop.Product"], "Customer.avsc": {**CUSTOMER, "name": "Customer"},
                     "Product.avsc": PRODUCT, "shop.Customer.avsc": CUSTOMER})  # fmt: skip
    config = {"avro.schema.file": str(tmp_path / "union.avsc"), "schema.registry.url": registries.url}
    with SerializerChain.from_config({"value.serializers": "avro", **config}) as chain:
        data = chain({"price": 1, "owner": None}, RecordContext("several-files", "value"))
    text = registries.schemas.get_latest_version("several-files-value").schema.schema_str
    assert AvroSchema.parse(text).parsed == AvroSchema.parse(AvroSchema.parse(text).text).parsed
    assert reader(**{"schema.registry.url": registries.url})(data) == {"price": 1, "owner": None}


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    files(tmp_path, {"order.avsc": {"type": "array", "items": "shop.Customer"}})
    with pytest.raises(ConfigError, match=rf"the type shop\.Customer is not defined.*\.avsc in {tmp_path}"):
        reader(**{"avro.schema.file": str(tmp_path / "order.avsc")})
    with pytest.raises(ConfigError, match=rf"It was looked for at {tmp_path}/none\.avsc"):
        reader(**{"avro.schema.file": str(tmp_path / "none.avsc")})
    files(tmp_path, {"shop.Customer.avsc": PLAIN})
    with pytest.raises(ConfigError, match=r"the definition found for the type shop\.Customer is of another"):
        reader(**{"avro.schema.file": str(tmp_path / "order.avsc")})


def test_a_type_that_is_missing_says_where_it_could_be(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    files(tmp_path, {path.name: {"type": "array", "items": "shop.Customer"}})
    with pytest.raises(ConfigError, match=r"as <full name>\.avsc or <name>\.avsc in .* set schema\.references"):
        reader(**{"avro.schema.file": str(path)})
    with pytest.raises(ConfigError, match=r"set avro\.schema\.file; .* set schema\.references"):
        reader(**{"avro.schema": '["shop.Customer"]'})
    with pytest.raises(ConfigError, match=r"strng is not defined; did you mean string\?"):
        reader(**{"avro.schema": {"type": "map", "values": "strng"}})
    with pytest.raises(ConfigError, match=r"set avro\.schema\.file, which is for readers too, instead of"):
        reader(**{"avro.reader.schema": str(path)})
    with pytest.raises(ConfigError, match=r"\[key=avro\.schema\.file\]\. It is the path of a file.* set avro\.schema$"):
        reader(**{"avro.schema.file": json.dumps(CUSTOMER)})


def test_other_faults_of_a_file_say_nothing_about_files_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    for text in ("{", json.dumps(decimal(precision=2, scale=3))):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            SerializerChain.from_config({"value.serializers": "avro", "avro.schema.file": str(path)})
        assert caught.value.hint is None


def test_the_file_beside_that_is_broken_is_named(tmp_path: Path) -> None:
    files(tmp_path, {"order.avsc": {"type": "array", "items": "shop.Customer"}})
    (tmp_path / "Customer.avsc").write_text("{")
    with pytest.raises(ConfigError, match=rf"{tmp_path}/Customer\.avsc: the schema is not JSON"):
        reader(**{"avro.schema.file": str(tmp_path / "order.avsc")})


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "order.avsc"
    path.write_bytes(json.dumps(CUSTOMER).encode(encoding))
    assert reader(**{"avro.schema.file": str(path)})(b"\2a") == {"name": "a"}
    assert reader(**{"avro.schema.file": path.read_bytes()})(b"\2a") == {"name": "a"}
    assert reader(**{"avro.schema": "\ufeff" + json.dumps(CUSTOMER)})(b"\2a") == {"name": "a"}


def test_primitive_schemas_are_registered_as_json(registry: SchemaRegistry) -> None:
    for number, text in enumerate(("string", '"string"', '{"type": "string"}')):
        config = {"value.serializers": "avro", "avro.schema": text, "schema.registry.url": registry.url}
        with SerializerChain.from_config(config) as chain:
            chain("a", RecordContext(f"primitive-{number}", "value"))
        with registry.client() as client:
            found = client.get_latest_version(f"primitive-{number}-value").schema.schema_str
        assert json.loads(found) in ("string", {"type": "string"})


def test_the_fingerprint_is_fastavros() -> None:
    for schema in (record("int"), ["null", CUSTOMER], {"type": "array", "items": ENUM | {"symbols": ["A"]}}):
        canonical = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(schema))
        assert AvroSchema.parse(schema).fingerprint.hex() == fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")


def test_a_container_is_written_with_the_whole_schema(tmp_path: Path) -> None:
    files(tmp_path, {"order.avsc": {"type": "array", "items": "shop.Customer"}, "shop.Customer.avsc": CUSTOMER})
    config = {"avro.schema.file": str(tmp_path / "order.avsc"), "avro.framing": "container"}
    with SerializerChain.from_config({"value.serializers": "avro", **config}) as chain:
        assert list(fastavro.reader(io.BytesIO(chain([{"name": "a"}])))) == [[{"name": "a"}]]
