"""Avro: schemas, evolution, and what does not fit."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_chain import DecodeError, DeserializerChain, EncodeError, RecordContext, SerializationError, SerializerChain
from serde_chain.errors import BytesExpectedError, ConfigError, MissingDependencyError
from serde_chain.stages.avro import native
from serde_chain.testing.alerts import ALERT_SCHEMA, alert
from tests.hypothesis_profiles import examples


def record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more}


def writer(schema: Any, **config: Any) -> SerializerChain:
    return SerializerChain.from_config({"value.serializer": "avro", "avro.schema": json.dumps(schema), **config})


def reader(schema: Any, target: Any = None, **config: Any) -> DeserializerChain:
    if target is not None:
        config["avro.reader.schema"] = json.dumps(target)
    return DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": json.dumps(schema), **config})


# Where the schema comes from


def test_the_schema_may_be_a_file_or_a_mapping(tmp_path: Path) -> None:
    schema = record(("id", "long"))
    path = tmp_path / "r.avsc"
    path.write_text(json.dumps(schema))
    for config in ({"avro.schema.file": str(path)}, {"avro.schema": schema}, {"avro.schema": json.dumps(schema)}):
        chain = SerializerChain.from_config({"value.serializer": "avro", **config})
        assert chain({"id": 1}) == b"\x02"


def test_a_realistic_record_comes_back() -> None:
    for framing in ("none", "single-object"):
        write = writer(ALERT_SCHEMA, **{"avro.framing": framing})
        read = reader(ALERT_SCHEMA, **{"avro.framing": framing})
        for size in (1000, 50_000):
            assert read(write(alert(7, size))) == alert(7, size)


# Evolution

OLD = record(("id", "int"), ("mag", "float"), ("gone", "string"))
NEW = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "magnitude", "type": "double", "aliases": ["mag"]},
        {"name": "id", "type": "long"},
        {"name": "band", "type": "string", "default": "r"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.mark.parametrize("framing", ["none", "single-object"])
def test_a_readers_schema_resolves_what_was_written(framing: str) -> None:
    data = writer(OLD, **{"avro.framing": framing})({"id": 7, "mag": 0.5, "gone": "x"})
    got = reader(OLD, NEW, **{"avro.framing": framing})(data)
    assert got == {"magnitude": 0.5, "id": 7, "band": "r", "note": None}


def test_schemas_that_do_not_resolve_are_an_error() -> None:
    data = writer(OLD)({"id": 7, "mag": 0.5, "gone": "x"})
    for target in (record(("id", "string")), record(("id", "int"), ("new", "int"))):
        with pytest.raises(DecodeError, match=r"does not resolve into the reader's: (id: int cannot|new: the writer)"):
            reader(OLD, target)(data)


def test_single_objects_of_an_unknown_schema_are_refused() -> None:
    data = writer(OLD, **{"avro.framing": "single-object"})({"id": 7, "mag": 0.5, "gone": "x"})
    with pytest.raises(DecodeError, match=r"fingerprint [0-9a-f]{16}, which is not configured.*avro\.schema"):
        reader(NEW, **{"avro.framing": "single-object"})(data)


# What does not fit

NESTED = record(
    ("id", "long"),
    ("position", record(("ra", "double"), ("dec", "double"), name="Position")),
    ("detections", {"type": "array", "items": record(("flux", ["null", "float"]), name="Detection")}),
    ("band", {"type": "enum", "name": "Band", "symbols": ["g", "r"]}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 2}),
)
GOOD: dict[str, Any] = {
    "id": 1,
    "position": {"ra": 1.0, "dec": 2.0},
    "detections": [{"flux": None}],
    "band": "g",
    "hash": b"ab",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "seven"}, r"R\.id is str of length 5, expected long"),
        ({"id": 2**63}, r"R\.id is int of 64 bits, expected long"),
        ({"id": None}, r"R\.id is missing or None, expected long"),
        ({"position": {"ra": 1.0}}, r"Position\.dec is missing or None, expected double"),
        ({"position": {"ra": "east", "dec": 2.0}}, r"Position\.ra is str of length 4, expected double"),
        ({"detections": [{"flux": 1.0}, {"flux": "faint"}]}, r"\.flux is str of length 5, expected null or float"),
        ({"detections": {"flux": 1.0}}, r"R\.detections is .* expected array"),
        ({"band": "z"}, r"R\.band is str of length 1, expected enum Band"),
        ({"hash": b"abc"}, r"R\.hash is bytes of length 3, expected fixed Hash"),
        ({"id": "7", "band": "z"}, r"R\.id is str of length 1, expected long [^;]*$"),
    ],
)  # fmt: skip
def test_the_field_that_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EncodeError, match=message) as caught:
        writer(NESTED)({**GOOD, **change}, RecordContext("alerts", "value", []))
    assert (caught.value.topic, caught.value.stage) == ("alerts", "avro (1 of 1)")


@pytest.mark.parametrize(
    ("kind", "value", "expects_bytes"),
    [
        ("bytes", "text", True),
        (["null", "bytes"], "text", True),
        ({"type": "map", "values": {"type": "array", "items": "bytes"}}, {"a": [b"", "text"]}, True),
        ({"type": "fixed", "name": "Hash", "size": 4}, "text", True),
        ({"type": "fixed", "name": "Hash", "size": 4}, b"abc", False),
        ("string", b"text", False),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "text", False),
    ],
)
def test_what_should_have_been_bytes_is_marked(kind: Any, value: Any, *, expects_bytes: bool) -> None:
    with pytest.raises(EncodeError) as caught:
        writer(record(("a", kind)))({"a": value})
    assert isinstance(caught.value, BytesExpectedError) is expects_bytes


@pytest.mark.parametrize("value", [1.5, 2**31, True], ids=str)
def test_validation_refuses_what_fastavro_would_write(value: object) -> None:
    schema = record(("at", record(("n", "int"), name="Inner")))
    assert isinstance(writer(schema)({"at": {"n": value}}), bytes)
    with pytest.raises(EncodeError, match=r"R\.(at\.)?Inner\.n is .*, expected int"):
        writer(schema, **{"avro.validate": "true"})({"at": {"n": value}})
    assert writer(schema, **{"avro.validate": "true"})({"at": {"n": 1}}) == b"\x02"


def test_a_missing_field_is_named() -> None:
    with pytest.raises(EncodeError, match=r"R\.id is missing or None"):
        writer(NESTED)({key: value for key, value in GOOD.items() if key != "id"})


@pytest.mark.parametrize("value", ["text", 1, [], object()])
def test_what_is_no_record_is_refused(value: object) -> None:
    with pytest.raises(EncodeError, match="does not match the schema"):
        writer(NESTED)(value)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(EncodeError) as caught:
        writer(NESTED)({**GOOD, "id": "x" * 10_000})
    assert len(str(caught.value)) < 400


# Bytes


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(DecodeError, match="the Avro record is followed by 3 bytes"):
        reader(NESTED)(writer(NESTED)(GOOD) + b"abc")


def test_truncated_bytes_are_refused() -> None:
    data = writer(NESTED)(GOOD)
    for end in range(len(data)):
        with pytest.raises(DecodeError, match=r"truncated|not a record"):
            reader(NESTED)(data[:end])


def test_equal_faults_have_equal_errors() -> None:
    """Without the address of a buffer, by which no two errors of a thousand would be alike."""
    texts = set()
    for data in (b"1234567", b"7654321"):
        with pytest.raises(DecodeError) as caught:
            reader({"type": "double"})(data)
        texts.add(str(caught.value).partition(" [")[0].partition(".")[0])
    assert texts == {"the Avro record is truncated: cannot read double"}


# Any schema

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=30),
    "string": st.text(st.characters(codec="utf-8"), max_size=20),
}
SIMPLE = st.sampled_from(sorted(PRIMITIVES))
SHAPES = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "map", "values": values}),
        st.lists(inner, max_size=4).map(lambda types: {"type": "record", "types": types}),
        SIMPLE.filter(lambda name: name != "null").map(lambda name: ["null", name]),
    ),
    max_leaves=6,
)


def named(shape: Any, counter: list[int]) -> Any:
    """A schema out of a shape: records get names."""
    if isinstance(shape, dict) and shape["type"] == "record":
        counter[0] += 1
        name = f"R{counter[0]}"
        fields = [{"name": f"f{at}", "type": named(kind, counter)} for at, kind in enumerate(shape["types"])]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(shape, dict):
        return {key: part if key == "type" else named(part, counter) for key, part in shape.items()}
    return shape


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, str):
        return PRIMITIVES[schema]
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    if schema["type"] == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if schema["type"] == "map":
        return st.dictionaries(PRIMITIVES["string"], values(schema["values"]), max_size=3)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})


@settings(max_examples=examples(150))
@given(st.data(), st.sampled_from(["zstd", "lz4", "gzip", "snappy"]), st.randoms(use_true_random=False))
def test_any_record_goes_through_a_chain_and_damage_is_reported(data: st.DataObject, codec: str, source: Any) -> None:
    schema = named(data.draw(SHAPES), [0])
    value = data.draw(values(schema).filter(lambda value: value is not None))
    config = {
        "value.serializers": f"avro, {codec}, large-message",
        "value.deserializers": f"large-message, {codec}, avro",
        "avro.schema": json.dumps(schema),
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": source.choice([0, 1000]),
        "large.message.id": "content",
    }
    write, read = SerializerChain.from_config(config), DeserializerChain.from_config(config)
    headers: list[Any] = []
    encoded = write(value, RecordContext("t", "value", headers))
    assert read(encoded, RecordContext("t", "value", list(headers))) == value
    damaged = bytearray(encoded)
    damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
    try:
        read(bytes(damaged), RecordContext("t", "value", list(headers)))
    except SerializationError as error:
        assert error.stage  # noqa: PT017, anything else that is raised fails the test by itself
    plain = reader(schema)
    bare = bytearray(writer(schema)(value))
    if bare:
        bare[source.randrange(len(bare))] ^= 1 << source.randrange(8)
        try:
            plain(bytes(bare))
        except DecodeError as error:
            assert error.message  # noqa: PT017, as above


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "built without its compiled part. Install .* cargo"),
        (types.SimpleNamespace(INTERFACE=0), r"beside a compiled part of other sources \(make build\).*cargo"),
        ("switched off", "run with SERDE_CHAIN_NATIVE = off. Remove the environment variable SERDE_CHAIN_NATIVE$"),
    ],
)
def test_the_compiled_part_may_be_required(found: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is missing, is of another interface, as one in place that is stale, or is hidden from the process."""
    if found == "switched off":
        monkeypatch.setenv("SERDE_CHAIN_NATIVE", "off")
    else:
        monkeypatch.delenv("SERDE_CHAIN_NATIVE", raising=False)
        monkeypatch.setitem(sys.modules, "serde_chain._native", found)
    monkeypatch.setattr(native, "find", native.find.__wrapped__)  # it remembers what it has found
    assert native.library() is None
    config = {"avro.schema": '"string"'}
    assert SerializerChain.from_config({"value.serializers": "avro", **config})("a", None) == b"\2a"
    with pytest.raises(MissingDependencyError, match=rf"avro\.native = on, but serde-chain is {why}") as raised:
        DeserializerChain.from_config({"value.deserializers": "avro", "avro.native": "on", **config})
    assert "pip" not in str(raised.value)


@pytest.mark.parametrize("value", ["no", "", "0", "OFF"])
def test_a_misspelt_switch_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a process would use what its operator meant to turn off."""
    monkeypatch.setenv("SERDE_CHAIN_NATIVE", value)
    monkeypatch.setattr(native, "find", native.find.__wrapped__)
    with pytest.raises(ConfigError, match=f"SERDE_CHAIN_NATIVE is '{value}', expected off, on or auto"):
        SerializerChain.from_config({"value.serializers": "avro", "avro.schema": '"string"'})


def test_a_compiled_part_that_does_not_load_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def of_another_system(_: str) -> None:
        raise ImportError("version `GLIBC_2.99' not found")

    monkeypatch.delenv("SERDE_CHAIN_NATIVE", raising=False)
    monkeypatch.setattr(native, "import_module", of_another_system)
    found, why = native.find.__wrapped__()
    assert found is None
    assert "GLIBC_2.99' not found" in why
    assert "GLIBC_2.99' not found" in caplog.text
