"""Self-describing chains: what is written, what is undone, and what is refused."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from serde_chain import (
    ConfigError,
    Consumer,
    DecodeError,
    DeserializerChain,
    EncodeError,
    ForeignFormatError,
    Producer,
    RecordContext,
    SerializationError,
    SerializerChain,
)
from serde_chain.arrow import Batch
from serde_chain.record import get_header
from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic

KEY = bytes(range(32))
SETTINGS: dict[str, Any] = {
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": 100,
    "encryption.keys": {"k": KEY},
    "avro.schema": '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}',
}
ALLOW = "json, avro, compress, zstd, encrypt, large-message, entry-metadata, string"


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    MemoryStore.clear()


def writer(stages: object, **config: object) -> SerializerChain:
    return SerializerChain.from_config(
        {"value.serializers": stages, "serde.chain.describe": "true", **SETTINGS, **config}
    )


def reader(**config: object) -> DeserializerChain:
    chain = {f"serde.chain.{key}": value for key, value in {"allow": ALLOW, **config}.items()}
    return DeserializerChain.from_config({"value.deserializers": "auto", **SETTINGS, **chain})


def context(headers: Any = None) -> RecordContext:
    return RecordContext("t", "value", [] if headers is None else headers)


@pytest.mark.parametrize(
    ("stages", "header"),
    [
        ("json", b"1:json"),
        ("avro, zstd", b"1:avro,zstd"),
        ("json, encrypt, large-message", b"1:json,encrypt,large-message"),
        ("json, zstd, large-message, entry-metadata", b"1:json,zstd,large-message,entry-metadata"),
        (["json", {"class": "compress", "compression.type": "lz4"}], b"1:json,compress"),
        ("org.apache.kafka.common.serialization.StringSerializer", b"1:string"),
    ],
)
def test_what_is_listed_is_undone(stages: object, header: bytes) -> None:
    write, read = writer(stages), reader()
    for value in ("small", "large" * 1000) if header == b"1:string" else ({"id": 7}, {"id": 8}):
        ctx = context([("user", b"own")])
        data = write(value, ctx)
        assert get_header(ctx, "serde-chain") == header
        assert read(data, ctx) == value
        assert ctx.headers == [("user", b"own")]


def test_chains_mix_in_one_topic() -> None:
    read = reader(default="json")
    for stages in ("json", "avro, zstd", "json, zstd, encrypt", "json, large-message"):
        ctx = context()
        assert read(writer(stages)({"id": 7}, ctx), ctx) == {"id": 7}
    assert read(b'{"id": 7}', context()) == {"id": 7}  # from before the switch


def test_nothing_is_written_unless_it_is_switched_on() -> None:
    ctx = context()
    SerializerChain.from_config({"value.serializers": "json"})({"id": 7}, ctx)
    assert ctx.headers == []
    assert len(SerializerChain.from_config({"value.serializers": "json"}).stages) == 1


def test_a_tombstone_adds_no_header() -> None:
    ctx = context()
    assert writer("json")(None, ctx) is None
    assert reader()(None, ctx) is None
    assert ctx.headers == []


def test_key_and_value_have_headers_of_their_own() -> None:
    config = {"key.serializers": "json, zstd", "value.serializers": "json", "serde.chain.describe": True}
    ctx = context()
    key = SerializerChain.from_config(config, is_key=True)({"id": 1}, ctx)
    value = SerializerChain.from_config(config)({"id": 2}, ctx)
    assert ctx.headers == [("serde-chain-key", b"1:json,zstd"), ("serde-chain", b"1:json")]
    settings = {"key.deserializers": "auto", "value.deserializers": "auto", "serde.chain.allow": "json, zstd"}
    assert DeserializerChain.from_config(settings, is_key=True)(key, ctx) == {"id": 1}
    assert DeserializerChain.from_config(settings)(value, ctx) == {"id": 2}
    assert ctx.headers == []


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"2:json", "unknown version 2"),
        (b"0:json", "unknown version 0"),
        (b"99999999999:json", "instead of a version"),
        (b"json", "instead of a version"),
        (b"1:", "instead of a version"),
        (b"1:json,,zstd", "instead of a version"),
        (b"1:json\n", "instead of a version"),
        (b"1:gzip", "written with gzip, which is not allowed"),
        (b"1:json,os.system", r"written with os\.system, which is not allowed"),
        (b"1:auto", "written with auto"),
        (b"1:zstd,json", r"an invalid order \(zstd, json\): auto: zstd \(2 of 2\) cannot come after auto: json"),
        (
            b"1:json,large-message,zstd",
            r"zstd \(1 of 3\) cannot come before auto: large-message",
        ),
        (b"1:" + b",".join([b"zstd"] * 17), "lists 17 stages"),
        (b"1:json,zstd,zstd", "lists zstd more often than it is allowed"),
        (b"1:" + b",".join([b"zstd"] * 15), "lists zstd more often than it is allowed"),
    ],
)
def test_headers_fail_closed(header: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        reader()(b'{"id": 7}', context([("serde-chain", header)]))


@pytest.mark.parametrize("config", [{"allow": "json, zstd, zstd"}, {"allow": "json", "default": "json, zstd, zstd"}])
def test_a_stage_is_undone_as_often_as_it_is_named(config: dict[str, object]) -> None:
    ctx = context()
    data = writer("json, zstd, zstd")({"id": 7}, ctx)
    assert reader(**config)(data, ctx) == {"id": 7}
    with pytest.raises(DecodeError, match=r"name it in serde\.chain\.allow as many times"):
        reader(**config)(data, context([("serde-chain", b"1:json,zstd,zstd,zstd")]))


def test_a_record_without_the_header_is_refused() -> None:
    with pytest.raises(DecodeError, match="no header serde-chain"):
        reader()(b"{}", context())


@given(st.binary(max_size=40) | st.binary(max_size=30).map(lambda rest: b"1:json" + rest), st.binary(max_size=40))
def test_any_header_is_read_or_refused(header: bytes, data: bytes) -> None:
    try:
        reader()(data, context([("serde-chain", header)]))
    except SerializationError as error:
        assert str(error)  # noqa: PT017, another error fails the test by itself


@pytest.mark.parametrize("stages", [b"1:json,encrypt,large-message", b"1:encrypt,large-message"])
def test_a_header_does_not_lead_around_encrypt(stages: bytes) -> None:
    chain = DeserializerChain.from_config(
        {"value.deserializers": "auto", **SETTINGS, "serde.chain.allow": ALLOW, "large.message.accept": "hop"}
    )
    headers = [("serde-chain", stages), ("_format", b"avro")]
    with pytest.raises(ForeignFormatError) as caught:
        chain(b"not encrypted", context(headers))
    assert caught.value.data is None
    assert chain.read_batch(Batch([b"not encrypted"], [headers], topic="t")).errors.keys() == {0}
    headers[0] = ("serde-chain", b"1:json,large-message")
    assert chain(b"not encrypted", context(headers)) == b"not encrypted"


def test_errors_name_the_stage() -> None:
    with pytest.raises(DecodeError) as caught:
        reader()(b"not zstd", context([("serde-chain", b"1:json,zstd")]))
    assert caught.value.stage == "auto: zstd (1 of 2)"
    assert caught.value.topic == "t"


def lower(data: bytes, _ctx: object) -> bytes:
    return data.lower()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"value.serializers": ["string", lower]}, "lower has no short name"),
        ({"value.serializers": ["serde_chain.stages.json.stage.JsonSerializer"]}, "has no short name"),
        ({"value.serializers": "json, large-message", "large.message.format": "hop"}, "whole records"),
        ({"value.serializers": "json", "serde.chain.describe": "perhaps"}, "expected true or false"),
        ({"value.serializers": "json", "serde.chain.descrieb": "true"}, "Did you mean serde.chain.describe"),
    ],
)
def test_wrong_settings_of_writers_are_said(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({"serde.chain.describe": True, **SETTINGS, **config})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"allow": None}, "serde.chain.allow is required"),
        ({"allow": "jsson"}, "Did you mean json"),
        ({"allow": "json, auto"}, "auto, which is not a stage"),
        ({"default": "zstd, json"}, "serde.chain.default: the record lists an invalid order"),
    ],
)
def test_wrong_settings_of_readers_are_said(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reader(**config)


def test_settings_of_allowed_stages_are_wanted_at_once() -> None:
    config = {"value.deserializers": "auto", "serde.chain.allow": "json, encrypt"}
    with pytest.raises(ConfigError, match="no keys"):
        DeserializerChain.from_config(config)


def test_headers_need_a_place() -> None:
    with pytest.raises(EncodeError, match="without a list of headers"):
        writer("json")({}, None)


def test_chains_travel() -> None:
    write, read = (pickle.loads(pickle.dumps(chain)) for chain in (writer("json, zstd"), reader()))  # noqa: S301
    ctx = context()
    assert read(write({"id": 7}, ctx), ctx) == {"id": 7}


def test_through_the_clients(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic()
    shared = {**SETTINGS, "bootstrap.servers": broker.bootstrap_servers, "serde.chain.allow": ALLOW}
    values = [{"id": 1}, {"id": 2, "text": "x" * 2000}]
    for value, stages in zip(values, ("json, encrypt", "json, zstd, large-message"), strict=True):
        config = {**shared, "value.serializers": stages, "serde.chain.describe": True}
        with Producer(config) as producer:
            producer.produce(topic, value)
            producer.flush(30)
    with Consumer(
        {**shared, "value.deserializers": "auto", "group.id": topic, "auto.offset.reset": "earliest"}
    ) as consumer:
        consumer.subscribe([topic])
        found = [consumer.poll(30) for _ in values]
    assert [message.value() for message in found if message is not None] == values
    assert all(message is not None and not message.headers() for message in found)


def test_a_format_that_stores_whole_records_is_refused_as_an_option_of_one_stage_too() -> None:
    stage = {"class": "large-message", "large.message.format": "hop"}
    with pytest.raises(ConfigError, match="cannot describe the record's chain"):
        SerializerChain.from_config(
            {
                "serde.chain.describe": True,
                "value.serializers": ["json", stage],
                "large.message.payload.store.class": "hop",
                "bootstrap.servers": "127.0.0.1:1",
            }
        )
