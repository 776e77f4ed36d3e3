"""``large-fields`` against hostile records, unusual values, and callers that reuse their objects."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SerializationError,
    SerializerChain,
)
from serde_chain.arrow import Batch
from serde_chain.stages.avro.fields import field_type
from serde_chain.stages.large_fields.batch import _Texts
from serde_chain.transfer import Transfer
from serde_chain.wire.large_fields import HEADER, MAX_STEPS, decode, encode, longest, split
from tests.stages.protobuf.protobuf_messages import ALERT

LARGE = "x" * 9000


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(MemoryStore())
    MemoryStore.clear()


@pytest.fixture
def config(store: FaultyStore) -> dict[str, Any]:
    return {
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "*",
        "large.message.payload.store.class": store,
    }


def avro(config: dict[str, Any], paths: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return {
        **config,
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": schema,
        "large.fields.paths": paths,
    }


def record(headers: Any = ()) -> RecordContext:
    return RecordContext("alerts", "value", list(headers), b"key", 0, None, 7)


def written(config: dict[str, Any], value: Any) -> tuple[bytes, list[Any]]:
    with SerializerChain.from_config(config) as chain:
        ctx = record()
        return chain(value, ctx), list(ctx.headers or ())


def read(config: dict[str, Any], data: bytes, headers: Any) -> Any:
    with DeserializerChain.from_config(config) as chain:
        return chain(data, record(headers))


def stored() -> int:
    return sum(1 for _ in MemoryStore().list("alerts"))


# Callers


def test_later_changes_of_an_object_do_not_reach_its_record(config: dict[str, Any]) -> None:
    @dataclasses.dataclass(frozen=True)
    class Source:
        fluxes: list[float]

    value: dict[str, Any] = {"text": LARGE, "id": 1, "tags": ["a"], "source": Source([1.0])}
    with SerializerChain.from_config(config) as chain:
        step = chain.begin(value, record())
        value["id"] = 2
        value["tags"].append("b")
        value["source"].fluxes.append(2.0)
        while isinstance(step, Transfer):
            step = step.resume(step.run())
    found = json.loads(step)
    assert (found["id"], found["tags"], found["source"]) == (1, ["a"], {"fluxes": [1.0]})


def test_a_buffer_may_be_reused(config: dict[str, Any]) -> None:
    config = avro(config, "data", ("data", "bytes"))
    buffer = bytearray(LARGE, "ascii")
    ctx = record()
    with SerializerChain.from_config(config) as chain:
        step = chain.begin({"data": buffer}, ctx)
        buffer[:] = bytes(len(buffer))
        while isinstance(step, Transfer):
            step = step.resume(step.run())
    assert read(config, step, ctx.headers) == {"data": LARGE.encode()}


def test_a_message_may_be_reused(config: dict[str, Any]) -> None:
    config |= {
        "value.serializers": "large-fields, protobuf",
        "value.deserializers": "protobuf, large-fields",
        "protobuf.message.class": ALERT,
        "protobuf.values": "dict",
        "large.fields.paths": "cutout",
    }
    message = written({**config, "value.serializers": "protobuf"}, {"id": 1, "cutout": LARGE.encode()})[0]
    value = read({**config, "value.deserializers": "protobuf", "protobuf.values": "message"}, message, [])
    ctx = record()
    with SerializerChain.from_config(config) as chain:
        step = chain.begin(value, ctx)
        value.id = 2
        while isinstance(step, Transfer):
            step = step.resume(step.run())
    assert read(config, step, ctx.headers)["id"] == 1


def test_dataclasses_are_not_initialized_again(config: dict[str, Any]) -> None:
    @dataclasses.dataclass
    class Document:
        body: str
        length: int = dataclasses.field(default=0, init=False)

        def __post_init__(self) -> None:
            self.length = len(self.body)

    assert read(config, *written(config, Document(LARGE))) == {"body": LARGE, "length": 9000}


# Names and types


@pytest.mark.parametrize("name", ["", "x" * 1001])
def test_names_that_no_path_has_stay_in_the_record(config: dict[str, Any], name: str) -> None:
    data, headers = written(config, {name: LARGE})
    assert headers == []
    assert read(config, data, headers) == {name: LARGE}


def test_names_that_are_no_text_upload_nothing(config: dict[str, Any], store: FaultyStore) -> None:
    with pytest.raises(EncodeError):
        written(config, {"\ud800": LARGE})
    assert store.calls == []


def test_globs_pass_over_maps_and_fixed(config: dict[str, Any]) -> None:
    fixed = {"type": "fixed", "name": "F", "size": 9000}
    inner = {
        "type": "record",
        "name": "Q",
        "fields": [{"name": "data", "type": "bytes"}, {"name": "raw", "type": fixed}],
    }
    config = avro(config, "*.*", ("inner", inner), ("map", {"type": "map", "values": "bytes"}))
    large = LARGE.encode()
    value = {"inner": {"data": large, "raw": large}, "map": {"data": large}}
    data, headers = written(config, value)
    assert [entry.path for entry in decode(dict(headers)[HEADER])] == [("inner", "data")]
    assert read(config, data, headers) == value


def test_unions_of_bytes_text_and_arrays_in_batches(config: dict[str, Any]) -> None:
    kinds = ["null", "bytes", "string", {"type": "array", "items": "string"}]
    config = avro(config, "u, u[]", ("u", kinds))
    values: list[Any] = [LARGE.encode(), LARGE, ["a", LARGE], None]
    rows = [written(config, {"u": value}) for value in values]
    assert [len(headers) for _, headers in rows] == [1, 1, 1, 0]
    assert [read(config, *row) for row in rows] == [{"u": value} for value in values]
    with DeserializerChain.from_config(config) as chain:
        column = chain.to_arrow([row[0] for row in rows], [row[1] for row in rows], topic="alerts")
    found = [row["u"] and [member for member in row["u"].values() if member] for row in column.to_pylist()]
    assert found == [[values[0]], [values[1]], [values[2]], None]


def test_a_null_with_a_header_is_none_in_batches_too(config: dict[str, Any]) -> None:
    data, headers = written(config, {"a": LARGE})
    assert read(config, b"null", headers) is None
    with DeserializerChain.from_config(config) as chain:
        column = chain.to_arrow([b"null", data], [headers, headers], topic="alerts")
        malformed = chain.to_arrow([b" null"], [[(HEADER, b"{")]], topic="alerts")
    assert [json.loads(text) for text in column.to_pylist()] == [None, {"a": LARGE}]
    assert read(config, b" null", [(HEADER, b"{")]) is None
    assert [json.loads(text) for text in malformed.to_pylist()] == [None]


# Headers


def test_no_header_is_written_that_readers_refuse(config: dict[str, Any], store: FaultyStore) -> None:
    config |= {"large.fields.paths": "a[]", "large.fields.min.bytes": 10}
    with pytest.raises(EncodeError, match=r"10000 large fields.*no reader accepts"):
        written(config, {"a": ["x" * 20] * 10_000})
    assert store.calls == []


def test_the_longest_header_is_known_before_the_uploads(config: dict[str, Any]) -> None:
    _, headers = written(config, {"a": LARGE, "b": LARGE})
    header = dict(headers)[HEADER]
    assert len(header) <= longest([("a",), ("b",)]) < len(header) + 40


def test_paths_are_not_deep(config: dict[str, Any]) -> None:
    assert len(split(".".join("a" * MAX_STEPS))) == MAX_STEPS
    for path in (".".join("a" * (MAX_STEPS + 1)), "a" + "[0]" * MAX_STEPS, "next." * 200_000 + "b"):
        with pytest.raises(ValueError, match="more than 100 names and positions"):
            split(path)
    data, headers = written(config, {"a": LARGE})
    (entry,) = decode(dict(headers)[HEADER])
    for levels in (MAX_STEPS, MAX_STEPS + 1):
        deep = b'{"a":' * (levels - 1) + data + b"}" * (levels - 1)
        header = encode([entry._replace(path=("a",) * levels)])
        if levels == MAX_STEPS:
            read(config, deep, [(HEADER, header)])
        else:
            with pytest.raises(DecodeError, match="more than 100"):
                read(config, deep, [(HEADER, header)])
    with pytest.raises(ConfigError, match="more than 100"):
        written({**config, "large.fields.paths": "a" + "[]" * MAX_STEPS}, {})


def test_types_are_made_once() -> None:
    """A header of 1 MiB names fields of recursive types 100,000 times; in unions of records, types doubled a level."""
    following = {"name": "next", "type": ["null", "A", "B"]}
    b = {"type": "record", "name": "B", "fields": [following, {"name": "data", "type": "bytes"}]}
    a = {"type": "record", "name": "A", "fields": [{**following, "type": ["null", "A", b]}]}
    kind = field_type(a, {"A": a, "B": b}).fields()["next"]
    assert kind.fields() is kind.fields()
    assert kind.fields()["next"] is kind
    assert kind.fields()["data"].holds_bytes


def test_references_of_renamed_fields_are_found(config: dict[str, Any]) -> None:
    config = avro(config, "b", ("b", "bytes"))
    data, headers = written(config, {"b": LARGE.encode()})
    fields = [{"name": "c", "aliases": ["b"], "type": "bytes"}]
    config["avro.reader.schema"] = {"type": "record", "name": "R", "fields": fields}
    with DeserializerChain.from_config(config) as chain:
        assert [reference.size for reference in chain.references_in(data, record(headers))] == [9000]


def test_one_parsed_document_is_held_at_a_time() -> None:
    import pyarrow as pa

    texts = _Texts(pa.array(['{"a":"1"}', '{"a":"2"}']))
    assert [texts.content(row, ("a",)) for row in (0, 1, 1, 0)] == ["1", "2", "2", "1"]
    assert sum(isinstance(held, tuple) for held in vars(texts).values()) == 1
    assert texts._contents == {}


def test_errors_have_no_payload(config: dict[str, Any]) -> None:
    data, headers = written(config, {"a": LARGE, "secret": "s3cr3t" * 2000})
    for changed in (data.replace(b"memory", b"nemory"), data.replace(b'"a"', b'"b"')):
        with pytest.raises(SerializationError) as caught:
            read(config, changed, headers)
        shown = repr((caught.value, vars(caught.value), caught.value.__cause__))
        assert "s3cr3t" not in shown


def test_parts_are_cut_by_contents_too(config: dict[str, Any]) -> None:
    """A payload of 2 KB may have 8 MB after its stages."""
    config = avro({**config, "large.fields.serializers": "zstd"}, "data", ("data", "bytes"))
    data, headers = written(config, {"data": bytes(100_000)})
    with DeserializerChain.from_config(config) as chain:
        parts = list(chain.read_parts(Batch([data] * 5, [headers] * 5, topic="alerts"), 250_000))
    assert [len(part) for part in parts] == [2, 2, 1]
    assert [row for part in parts for row in part.column.to_pylist()] == [{"data": bytes(100_000)}] * 5
