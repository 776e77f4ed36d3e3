"""``large-fields``: moved fields, references in records, and malformed headers."""

import contextlib
import copy
import dataclasses
import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    EncodeError,
    PayloadHandle,
    PayloadIntegrityError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    RecordContext,
    SerializationError,
    SerializerChain,
    UntrustedReferenceError,
)
from serde_chain.arrow import Batch
from serde_chain.base import SupportsUploads
from serde_chain.wire.large_fields import HEADER, decode
from tests.stages.protobuf.protobuf_messages import ALERT, make

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {
            "name": "cutoutScience",
            "type": [
                "null",
                {"type": "record", "name": "Cutout", "fields": [{"name": "stampData", "type": "bytes"}]},
            ],
        },
        {"name": "text", "type": "string"},
        {
            "name": "sources",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Source",
                    "fields": [{"name": "flux", "type": "double"}, {"name": "stamp", "type": ["null", "bytes"]}],
                },
            },
        },
    ],
}
LARGE = bytes(range(256)) * 40
VALUE: dict[str, Any] = {
    "id": 1,
    "cutoutScience": {"stampData": LARGE},
    "text": "ä" * 5000,
    "sources": [{"flux": 1.0, "stamp": None}, {"flux": 2.0, "stamp": LARGE[::-1]}, {"flux": 3.0, "stamp": b"small"}],
}
SMALL: dict[str, Any] = {"id": 2, "cutoutScience": None, "text": "", "sources": []}
PATHS = "cutout*.stampData, text, sources[].stamp"


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(MemoryStore())
    MemoryStore.clear()


@pytest.fixture
def config(store: FaultyStore) -> dict[str, Any]:
    return {
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": SCHEMA,
        "large.fields.paths": PATHS,
        "large.message.payload.store.class": store,
    }


def written(config: dict[str, Any], value: Any) -> tuple[bytes, list[Any]]:
    with SerializerChain.from_config(config) as chain:
        ctx = record()
        return chain(value, ctx), list(ctx.headers or ())


def record(headers: Any = None, key: bytes | None = b"key") -> RecordContext:
    return RecordContext("alerts", "value", [("user", b"1")] if headers is None else list(headers), key, 0, None, 7)


def read(config: dict[str, Any], data: bytes, headers: Any) -> tuple[Any, Any]:
    with DeserializerChain.from_config(config) as chain:
        ctx = record(headers)
        value = chain(data, ctx)
        return value, ctx.headers


def paths_in(headers: Any) -> list[str]:
    return [entry["path"] for name, header in headers if name == HEADER for entry in json.loads(header)]


def stored() -> int:
    return sum(1 for _ in MemoryStore().list("alerts"))


# Writing and reading


def test_large_fields_are_moved_and_come_back(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    assert len(data) < 500
    assert paths_in(headers) == ["cutoutScience.stampData", "text", "sources[1].stamp"]
    assert [entry.size for entry in decode(dict(headers)[HEADER])] == [10240, 10000, 10240]
    assert read(config, data, headers) == (VALUE, [("user", b"1")])


def test_the_record_stays_valid_under_its_schema(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    plain, kept = read({**config, "value.deserializers": "avro"}, data, headers)
    assert plain["id"] == 1
    assert plain["text"].startswith("memory://")
    assert plain["cutoutScience"]["stampData"].startswith(b"memory://")
    assert plain["sources"][0] == VALUE["sources"][0]
    assert kept == headers


def test_the_callers_value_is_unchanged(config: dict[str, Any]) -> None:
    before = pickle.dumps(VALUE)
    written(config, VALUE)
    assert pickle.dumps(VALUE) == before


def test_small_records_get_no_header_and_tombstones_stay(config: dict[str, Any], store: FaultyStore) -> None:
    data, headers = written(config, SMALL)
    assert headers == [("user", b"1")]
    assert read(config, data, headers) == (SMALL, headers)
    with SerializerChain.from_config(config) as chain:
        assert chain(None, ctx := record()) is None
    assert ctx.headers == [("user", b"1")]
    assert store.calls == []


@pytest.mark.parametrize(("size", "moved"), [(99, False), (100, True)])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, str])
def test_fields_from_the_limit_on(config: dict[str, Any], kind: type, size: int, *, moved: bool) -> None:
    config |= {"large.fields.min.bytes": 100}
    value: Any = {**SMALL}
    if kind is memoryview and not moved:
        size = 100  # fastavro takes no views
    if kind is str:
        value["text"] = "ä" * (size // 2) + "a" * (size % 2)
    else:
        value["cutoutScience"] = {"stampData": kind(bytes(size))}
    data, headers = written(config, value)
    assert bool(paths_in(headers)) is (size == 100)
    expected = {**value, "cutoutScience": value["cutoutScience"] and {"stampData": bytes(size)}}
    assert read(config, data, headers)[0] == expected


def test_a_header_of_an_earlier_record_is_removed(config: dict[str, Any]) -> None:
    with SerializerChain.from_config(config) as chain:
        ctx = record()
        chain(VALUE, ctx)
        assert paths_in(ctx.headers)
        chain(SMALL, ctx)
    assert ctx.headers == [("user", b"1")]


def test_branches_of_unions_by_name_are_looked_through(config: dict[str, Any]) -> None:
    data, headers = written(config, {**VALUE, "cutoutScience": ("Cutout", {"stampData": LARGE})})
    assert read(config, data, headers)[0] == VALUE


def test_both_stages_together(config: dict[str, Any]) -> None:
    config |= {
        "value.serializers": "large-fields, avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro, large-fields",
        "large.message.threshold.bytes": 50,
    }
    data, headers = written(config, VALUE)
    assert data.startswith(b"memory://")
    assert {name for name, _ in headers} == {
        "user", HEADER, "large-message", "large-message-size", "large-message-digest",
    }  # fmt: skip
    assert read(config, data, headers) == (VALUE, [("user", b"1")])
    with DeserializerChain.from_config(config) as chain:
        ctx = record(headers)
        assert len(chain.references_in(data, ctx)) == 4
        assert ctx.headers == headers
        assert chain.to_arrow([data, None], [headers, None], topic="alerts").to_pylist() == [VALUE, None]


def test_references_are_found_out_of_the_header(config: dict[str, Any], store: FaultyStore) -> None:
    data, headers = written(config, VALUE)
    small, _ = written(config, SMALL)
    store.calls.clear()
    with DeserializerChain.from_config(config) as chain:
        assert [reference.size for reference in chain.references_in(data, record(headers))] == [10240, 10000, 10240]
        assert chain.references_in(small, record()) == ()
    assert store.calls == []


def test_json_and_dataclasses(config: dict[str, Any]) -> None:
    @dataclasses.dataclass
    class Document:
        title: str
        body: str

    config |= {
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "body, absent",
    }
    del config["avro.schema"]
    value = Document("M 51", "spiral " * 2000)
    data, headers = written(config, value)
    assert paths_in(headers) == ["body"]
    assert len(data) < 200
    assert read(config, data, headers)[0] == dataclasses.asdict(value)
    assert value.body == "spiral " * 2000


def test_names_that_a_path_cannot_contain_stay(config: dict[str, Any]) -> None:
    config |= {
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "*",
    }
    value = {"a.b": "x" * 9000, "a[0]": "y" * 9000, "c": "z" * 9000}
    data, headers = written(config, value)
    assert paths_in(headers) == ["c"]
    assert read(config, data, headers)[0] == value


@pytest.mark.parametrize("values", ["message", "dict"])
def test_protobuf(config: dict[str, Any], values: str) -> None:
    config |= {
        "value.serializers": "large-fields, protobuf",
        "value.deserializers": "protobuf, large-fields",
        "protobuf.message.class": ALERT,
        "protobuf.values": values,
        "large.fields.paths": "cutout, tags[], parent.name, history[].flux",
    }
    with pytest.raises(ConfigError, match=r"history\[\]\.flux is an array, neither bytes nor string"):
        written(config, {})
    config["large.fields.paths"] = "cutout, tags[], parent.name"
    fields: dict[str, Any] = {"id": 1, "cutout": LARGE, "tags": ["a", "b" * 9000], "parent": {"name": "c" * 9000}}
    message = make("survey.Alert")(**fields) if not isinstance(ALERT, type) else ALERT(**fields)
    for value in (fields, message):
        data, headers = written(config, value)
        assert paths_in(headers) == ["cutout", "tags[1]", "parent.name"]
        found = read(config, data, headers)[0]
        if values == "dict":
            assert (found["cutout"], found["tags"], found["parent"]["name"]) == (LARGE, fields["tags"], "c" * 9000)
        else:
            assert found.SerializeToString() == message.SerializeToString()


def test_messages_hold_no_handles(config: dict[str, Any]) -> None:
    config |= {
        "value.deserializers": "protobuf, large-fields",
        "protobuf.message.class": ALERT,
        "large.fields.fetch": "lazy",
    }
    with pytest.raises(ConfigError, match="not for messages"):
        DeserializerChain.from_config(config)


def test_files_are_streamed(config: dict[str, Any], tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    large.write_bytes(LARGE)
    small.write_bytes(b"small")
    for content, expected, moved in (
        (large, LARGE, ["cutoutScience.stampData"]),
        (small, b"small", []),
        (io.BytesIO(LARGE), LARGE, ["cutoutScience.stampData"]),
    ):
        data, headers = written(config, {**SMALL, "cutoutScience": {"stampData": content}})
        assert paths_in(headers) == moved
        assert read(config, data, headers)[0]["cutoutScience"] == {"stampData": expected}
    with pytest.raises(EncodeError, match="text has a file"):
        written(config, {**SMALL, "text": large})
    with pytest.raises(EncodeError, match="serializers requires the whole payload"):
        written({**config, "large.fields.serializers": "zstd"}, {**SMALL, "cutoutScience": {"stampData": large}})


def test_values_of_another_type_are_left_to_the_serializers_error(config: dict[str, Any], store: FaultyStore) -> None:
    with pytest.raises(EncodeError, match=r"stampData is str of length 10000, expected bytes"):
        written(config, {**SMALL, "cutoutScience": {"stampData": "x" * 10_000}})
    with pytest.raises(EncodeError, match="text is bytes of length 10000"):
        written(config, {**SMALL, "text": b"x" * 10_000})
    assert store.calls == []


def test_self_describing_chains(config: dict[str, Any]) -> None:
    config |= {"serde.chain.describe": True}
    data, headers = written(config, VALUE)
    assert dict(headers)["serde-chain"] == b"1:large-fields,avro"
    reader = {**config, "value.deserializers": "auto", "serde.chain.allow": "avro, large-fields"}
    assert read(reader, data, headers) == (VALUE, [("user", b"1")])


def test_routes_and_content_ids(config: dict[str, Any], tmp_path: Path) -> None:
    config |= {
        "large.message.id": "content",
        "large.message.route.all.topics": "alert*",
        "large.message.route.all.payload.store.class": "local",
        "large.message.route.all.local.path": str(tmp_path),
    }
    same = {**VALUE, "sources": [{"flux": 0.0, "stamp": LARGE}]}
    written(config, same)
    data, headers = written(config, same)
    assert read(config, data, headers)[0] == same
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    assert stored() == 0


def test_formats_of_whole_records_do_not_count(config: dict[str, Any]) -> None:
    config |= {"large.message.format": "bakdata-headers", "large.message.compression": "gzip"}
    data, headers = written(config, VALUE)
    assert read(config, data, headers)[0] == VALUE


# Payload stages


@pytest.mark.parametrize("stages", ["zstd", "gzip, encrypt", ["zstd", {"class": "encrypt", "encryption.mode": "siv"}]])
def test_stages_for_payloads(config: dict[str, Any], stages: Any) -> None:
    config |= {"large.fields.serializers": stages, "encryption.keys": {"k": bytes(32)}}
    data, headers = written(config, VALUE)
    entries = decode(dict(headers)[HEADER])
    assert entries[1].size < 200
    assert read(config, data, headers)[0] == VALUE
    with DeserializerChain.from_config({**config, "large.fields.fetch": "lazy"}) as chain:
        handle = chain(data, record(headers))["cutoutScience"]["stampData"]
        assert isinstance(handle, PayloadHandle)
        assert (handle.size, handle.read(), handle.open().read()) == (None, LARGE, LARGE)
        assert chain.to_arrow([data], [headers], topic="alerts").to_pylist() == [VALUE]


def test_fields_of_encrypted_records_are_encrypted(config: dict[str, Any]) -> None:
    config |= {
        "encryption.keys": {"k": bytes(32)},
        "value.serializers": "large-fields, avro, encrypt",
        "value.deserializers": "encrypt, avro, large-fields",
    }
    for kind in (SerializerChain, DeserializerChain):
        with pytest.raises(ConfigError, match="stored unencrypted") as caught:
            kind.from_config(config)
        assert caught.value.key == f"value.{kind.side.word}s"
    config["large.fields.serializers"] = "encrypt"
    data, headers = written(config, VALUE)
    assert read(config, data, headers)[0] == VALUE
    with pytest.raises(DecodeError, match="encrypt"):
        read({**config, "encryption.keys": {"k": bytes(31) + b"1"}}, data, headers)


def test_stages_for_payloads_write_no_headers(config: dict[str, Any]) -> None:
    def stamp(data: bytes, ctx: Any) -> bytes:
        ctx.headers.append(("stamp", b"1"))
        return data

    with SerializerChain.from_config({**config, "large.fields.serializers": [stamp]}) as chain:
        ctx = record()
        with pytest.raises(EncodeError, match="wrote a header"):
            chain(VALUE, ctx)
    assert ctx.headers == [("user", b"1")]
    assert stored() == 0


@pytest.mark.parametrize("stages", ["json", "large-message", "large-fields"])
def test_other_stages_for_payloads_are_refused(config: dict[str, Any], stages: str) -> None:
    for kind in (SerializerChain, DeserializerChain):
        with pytest.raises(ConfigError, match="not for the payloads of fields"):
            kind.from_config({**config, "large.fields.serializers": stages})


# Configuration


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"large.fields.paths": "cutoutSience.stampData"},
            r"is not in the schema.*Did you mean cutoutScience\.stampData",
        ),
        ({"large.fields.paths": "id"}, "id is neither bytes nor string"),
        ({"large.fields.paths": "sources.stamp"}, r"Did you mean sources\[\]\.stamp"),
        ({"large.fields.paths": "sources"}, r"sources is an array, .*Did you mean sources\[\]\.stamp"),
        ({"large.fields.paths": "cutoutScience"}, r"a record, .*Did you mean cutoutScience\.stampData"),
        ({"large.fields.paths": "id, text, txt"}, r"id is neither .*; txt is not .*Did you mean text\?"),
        (
            {"value.serializers": "large-fields, large-fields, avro"},
            r"large-fields \(2 of 3\) and large-fields \(1 of 3\) both move fields",
        ),
        ({"large.fields.paths": "a..b"}, "malformed"),
        ({"large.fields.paths": "a[0]"}, "malformed"),
        ({"large.fields.paths": ""}, "names of fields"),
        ({"large.fields.paths": None}, "paths is required"),
        ({"large.fields.min.bytes": 0}, "min.bytes"),
        ({"large.field.paths": "text"}, "Did you mean large.fields.paths"),
        ({"large.fields.path": "text"}, "Did you mean large.fields.paths"),
        ({"value.serializers": "avro, large-fields"}, "cannot come after avro"),
        ({"large.message.payload.store.class": None}, "payload.store.class is required"),
    ],
)
def test_mistakes(config: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({**config, **changes})


def test_keys_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="not for keys"):
        SerializerChain.from_config({**config, "key.serializers": "large-fields, avro"}, is_key=True)


def test_a_record_needs_topic_and_headers(config: dict[str, Any]) -> None:
    with SerializerChain.from_config(config) as chain:
        with pytest.raises(EncodeError, match="topic"):
            chain(VALUE, None)
        assert stored() == 0


def test_chains_are_pickled_as_their_configuration(config: dict[str, Any]) -> None:
    config["large.message.payload.store.class"] = "memory"
    with SerializerChain.from_config(config) as chain, copy.deepcopy(chain) as other:
        ctx = record()
        data = other(VALUE, ctx)
    assert read(config, data, ctx.headers)[0] == VALUE


# Failures of writers


def test_one_failed_upload_deletes_the_others(config: dict[str, Any], store: FaultyStore) -> None:
    store.fail(PayloadStoreUnavailableError("down"))
    with SerializerChain.from_config(config) as chain:
        ctx = record()
        with pytest.raises(PayloadStoreUnavailableError, match="down"):
            chain(VALUE, ctx)
    assert ctx.headers == [("user", b"1")]
    assert stored() == 0


def test_a_later_stages_error_deletes_them_too(config: dict[str, Any]) -> None:
    with SerializerChain.from_config(config) as chain, pytest.raises(EncodeError, match="id"):
        chain({**VALUE, "id": "no number"}, record())
    assert stored() == 0


def test_clients_see_an_uploading_stage(config: dict[str, Any]) -> None:
    with SerializerChain.from_config(config) as chain:
        stage = chain.stages[0]
        assert isinstance(stage, SupportsUploads)
        step = chain.begin(VALUE, record())
        places = step.places()
        assert len(places) == 3
        assert step.made(step.run()) == places
        assert step.size == 10240 + 10000 + 10240
        for reference in places:
            assert stage.owns(reference)
            stage.delete(reference)
    assert stored() == 0


# Readers


def test_lazy_reads_ask_for_nothing(config: dict[str, Any], store: FaultyStore) -> None:
    data, headers = written(config, VALUE)
    store.calls.clear()
    with DeserializerChain.from_config({**config, "large.fields.fetch": "lazy"}) as chain:
        value = chain(data, record(headers))
        assert store.calls == []
        handle = value["sources"][1]["stamp"]
        assert (value["id"], value["sources"][2]["stamp"], handle.size) == (1, b"small", 10240)
        assert handle.read() == LARGE[::-1]
        assert value["text"].read() == VALUE["text"].encode()
        with handle.open() as file:
            file.seek(256)
            assert file.read(4) == LARGE[::-1][256:260]


def test_lazy_values_are_written_again_with_their_payloads(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    with DeserializerChain.from_config({**config, "large.fields.fetch": "lazy"}) as chain:
        value = chain(data, record(headers))
        with pytest.raises(EncodeError, match=r"cutoutScience\.stampData has a PayloadHandle.*handle\.read\(\)"):
            written(config, value)
        value["text"] = value["text"].read().decode()
        value["sources"][1]["stamp"] = value["sources"][1]["stamp"].read()
        with value["cutoutScience"]["stampData"].open() as file:
            value["cutoutScience"]["stampData"] = file
            copied, headers = written(config, value)
    assert read(config, copied, headers)[0] == VALUE


def test_columns_of_a_batch_fetch_only_their_fields(config: dict[str, Any], store: FaultyStore) -> None:
    data, headers = written(config, VALUE)
    store.calls.clear()
    with DeserializerChain.from_config(config) as chain:

        def rows(*columns: str) -> list[Any]:
            found: list[Any] = chain.to_arrow(
                [data, None], [headers, None], topic="alerts", columns=columns
            ).to_pylist()
            return found

        assert rows("id", "sources.flux")[0] == {"id": 1, "sources": [{"flux": 1.0}, {"flux": 2.0}, {"flux": 3.0}]}
        assert store.calls == []
        assert rows("text")[0] == {"text": VALUE["text"]}
        assert store.calls == ["download_verified"] or len(store.calls) == 1
        assert rows("sources.stamp")[0] == {"sources": [{"stamp": each["stamp"]} for each in VALUE["sources"]]}
        assert len(store.calls) == 2
        with pytest.raises(ConfigError, match="Did you mean text"):
            rows("texd")


def test_fields_that_a_readers_schema_leaves_out_are_passed_over(config: dict[str, Any], store: FaultyStore) -> None:
    data, headers = written(config, VALUE)
    store.calls.clear()
    reader = {**SCHEMA, "fields": [SCHEMA["fields"][0], {**SCHEMA["fields"][2], "name": "words", "aliases": ["text"]}]}
    config |= {"avro.reader.schema": reader}
    assert read(config, data, headers)[0] == {"id": 1, "words": VALUE["text"]}
    assert len(store.calls) == 1
    with DeserializerChain.from_config(config) as chain:
        assert chain.to_arrow([data], [headers], topic="alerts").to_pylist() == [{"id": 1, "words": VALUE["text"]}]
    del reader["fields"][1]
    store.calls.clear()
    assert read(config, data, headers) == ({"id": 1}, [("user", b"1")])
    assert store.calls == []


def changed(headers: Any, **changes: Any) -> list[Any]:
    """The headers of a record whose first moved field is described differently."""
    first, *others = json.loads(dict(headers)[HEADER])
    return [(HEADER, json.dumps([{**first, **changes}, *others]).encode())]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"path": "text"}, DecodeError, "twice"),
        ({"path": "id"}, DecodeError, "is int, neither bytes nor text"),
        ({"path": "sources[0].stamp"}, DecodeError, "NoneType"),
        ({"path": "sources[2].stamp"}, UntrustedReferenceError, "none of the configured"),
        ({"path": "sources[9].stamp"}, DecodeError, "is not there"),
        ({"size": 10**17}, PayloadTooLargeError, "allowed"),
        ({"size": 10**9}, PayloadTooLargeError, "allowed|together"),
        ({"digest": "sha256:0"}, DecodeError, "digest"),
        ({"more": 1}, DecodeError, "other members"),
    ],
)
def test_the_whole_header_is_checked_before_the_first_request(
    config: dict[str, Any], store: FaultyStore, changes: dict[str, Any], error: type[SerializationError], message: str
) -> None:
    config |= {"large.message.max.payload.bytes": 10**9 + 1000}
    data, headers = written(config, VALUE)
    store.calls.clear()
    with DeserializerChain.from_config(config) as chain:
        for attempt in (chain, chain.begin):
            with pytest.raises(error, match=message) as caught:
                attempt(data, record(changed(headers, **changes)))
            failure: Any = caught.value
            assert failure.about_record
            assert (failure.topic, failure.offset) == ("alerts", 7)
        result = chain.read_batch(Batch([data, data], [changed(headers, **changes), headers], topic="alerts"))
        assert isinstance(result.errors[0], error)
        assert result.values.to_pylist() == [None, VALUE]


def test_references_of_other_stores_are_refused_before_the_first_request(
    config: dict[str, Any], store: FaultyStore
) -> None:
    data, headers = written(config, VALUE)
    at = data.index(b"memory:")
    foreign = data[:at] + b"nemory:" + data[at + 7 :]
    store.calls.clear()
    with pytest.raises(UntrustedReferenceError, match=r"^the field [\w.\[\]]+: the reference is not followed"):
        read(config, foreign, headers)
    assert store.calls == []


def test_payloads_are_verified(config: dict[str, Any], store: FaultyStore) -> None:
    data, headers = written(config, VALUE)
    with pytest.raises(PayloadIntegrityError):
        read(config, data, changed(headers, digest="sha256:" + 64 * "0"))
    with pytest.raises(PayloadIntegrityError):
        read(config, data, changed(headers, size=10241))
    store.damage()
    with pytest.raises(PayloadIntegrityError, match=r"the field (cutoutScience\.stampData|text|sources\[1\]\.stamp): "):
        read(config, data, headers)


def test_payloads_of_one_record_are_limited_together(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    with pytest.raises(PayloadTooLargeError, match="together"):
        read({**config, "large.message.max.payload.bytes": 25_000}, data, headers)
    config |= {"large.fields.serializers": "zstd"}
    data, headers = written(config, VALUE)
    with pytest.raises(PayloadTooLargeError, match="together"):
        read({**config, "large.message.max.payload.bytes": 25_000}, data, headers)


def test_strings_are_text(config: dict[str, Any]) -> None:
    with pytest.raises(EncodeError, match="text is not text"):
        written(config, {**SMALL, "text": "\ud800" * 9000})


def test_any_bytes_in_the_header_end_in_a_documented_error(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    good = dict(headers)[HEADER]
    with DeserializerChain.from_config(config) as chain:

        @settings(deadline=None, derandomize=True)
        @given(st.integers(0, len(good) - 1), st.binary(max_size=3))
        def check(at: int, junk: bytes) -> None:
            with contextlib.suppress(SerializationError):
                chain(data, record([(HEADER, good[:at] + junk + good[at + 1 :])]))

        check()


# Batches


VALUES = st.fixed_dictionaries({
    "id": st.integers(-100, 100),
    "cutoutScience": st.none() | st.fixed_dictionaries({"stampData": st.binary(max_size=30)}),
    "text": st.text(st.characters(codec="utf-8"), max_size=20),
    "sources": st.lists(
        st.fixed_dictionaries({"flux": st.floats(-1, 1), "stamp": st.none() | st.binary(max_size=30)}), max_size=3
    ),
})  # fmt: skip


@pytest.mark.full
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | VALUES, max_size=6), st.integers(1, 200), st.integers(0, 3))
def test_batches_equal_single_records(config: dict[str, Any], values: list[Any], most: int, start: int) -> None:
    import pyarrow as pa

    config |= {"large.fields.min.bytes": 10}
    rows = [(None, None) if value is None else written(config, value) for value in values]
    data, headers = [row[0] for row in rows], [row[1] for row in rows]
    with DeserializerChain.from_config(config) as chain:
        assert chain.to_arrow(data, headers, topic="alerts").to_pylist() == values
        column = pa.array([None] * start + data, pa.binary())[start:]
        parts = list(chain.read_parts(Batch(column, headers, topic="alerts"), most))
        assert [row for part in parts for row in part.column.to_pylist()] == values
        assert all(HEADER not in dict(row or ()) for part in parts for row in part.headers_after())


def test_a_failed_payload_fails_its_row_alone(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    bad = changed(headers, digest="sha256:" + 64 * "0")
    with DeserializerChain.from_config(config) as chain:
        result = chain.read_batch(Batch([data, data, data], [headers, bad, headers], topic="alerts"))
    assert result.values.to_pylist() == [VALUE, None, VALUE]
    assert isinstance(result.errors[1], PayloadIntegrityError)
    assert result.errors[1].message.count("the field ") == 1


def test_parts_are_cut_by_payloads(config: dict[str, Any]) -> None:
    data, headers = written(config, VALUE)
    with DeserializerChain.from_config(config) as chain:
        batch = Batch([data] * 5, [headers] * 5, topic="alerts")
        assert [len(part) for part in chain.read_parts(batch, 70_000)] == [2, 2, 1]


def test_unions_of_records_in_batches(config: dict[str, Any]) -> None:
    kinds = [
        {"type": "record", "name": name, "fields": [{"name": field, "type": kind}, {"name": "n", "type": "int"}]}
        for name, field, kind in (("Image", "data", "bytes"), ("Text", "words", "string"))
    ]
    config |= {
        "avro.schema": {"type": "record", "name": "R", "fields": [{"name": "body", "type": ["null", *kinds]}]},
        "large.fields.paths": "body.data, body.words",
    }
    values: list[dict[str, Any]] = [
        {"body": {"data": LARGE, "n": 1}},
        {"body": None},
        {"body": {"words": "x" * 9000, "n": 2}},
    ]
    rows = [written(config, value) for value in values]
    assert [paths_in(headers) for _, headers in rows] == [["body.data"], [], ["body.words"]]
    assert [read(config, *row)[0] for row in rows] == values
    with DeserializerChain.from_config(config) as chain:
        found = chain.to_arrow([row[0] for row in rows], [row[1] for row in rows], topic="alerts").to_pylist()
    assert [[member for member in (row["body"] or {}).values() if member] for row in found] == [
        [values[0]["body"]], [], [values[2]["body"]],
    ]  # fmt: skip


def test_json_in_batches_is_text(config: dict[str, Any], store: FaultyStore) -> None:
    config |= {
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "a[].b",
    }
    values = [{"a": [{"b": "x" * 9000}, {"b": "ü"}]}, {"a": []}]
    rows = [written(config, value) for value in values]
    store.calls.clear()
    with DeserializerChain.from_config(config) as chain:
        found = chain.to_arrow([*(row[0] for row in rows), None], [*(row[1] for row in rows), None], topic="alerts")
        assert [text and json.loads(text) for text in found.to_pylist()] == [*values, None]
    assert len(store.calls) == 1


def test_stages_without_batch_forms(config: dict[str, Any]) -> None:
    def dump(value: Any, _ctx: Any) -> bytes:
        return json.dumps(value).encode()

    def load(data: bytes, _ctx: Any) -> Any:
        return json.loads(data)

    config |= {"value.serializers": ["large-fields", dump], "value.deserializers": [load, "large-fields"]}
    value = {"id": 1, "text": "x" * 9000}
    data, headers = written(config, value)
    assert paths_in(headers) == ["text"]
    with DeserializerChain.from_config(config) as chain:
        assert chain.to_arrow([data, None], [headers, None], topic="alerts").to_pylist() == [value, None]


def test_protobuf_in_batches(config: dict[str, Any]) -> None:
    config |= {
        "value.serializers": "large-fields, protobuf",
        "value.deserializers": "protobuf, large-fields",
        "protobuf.message.class": "google.protobuf.source_context_pb2.SourceContext",
        "large.fields.paths": "file_name",
    }
    values = [{"file_name": "a" * 9000}, {"file_name": "b"}]
    rows = [written(config, value) for value in values]
    with DeserializerChain.from_config(config) as chain:
        found = chain.to_arrow([row[0] for row in rows], [row[1] for row in rows], topic="alerts")
    assert found.to_pylist() == values
