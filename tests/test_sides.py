"""Keys of stages that count for keys or for values alone: ``key.avro.schema.file``."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, Consumer, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.builders import DeserializerChainBuilder, SerializerChainBuilder
from serde_chain.clients.client_chains import ClientChains
from serde_chain.config import check_keys, is_secret, resolve
from serde_chain.record import KEY, VALUE
from serde_chain.testing.services import KafkaBroker, SchemaRegistry

RECORD_KEY: Final = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'
RECORD_VALUE: Final = (
    '{"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}'
)
CHAINS: Final = {
    "key.serializer": "avro",
    "value.serializers": "avro, zstd",
    "key.deserializer": "avro",
    "value.deserializers": "zstd, avro",
}
SECONDS: Final = 60.0
KEY_OBJECT: Final = {"id": 1}
VALUE_OBJECT: Final = {"id": 1, "s": "one"}


def in_mapping(folder: Path) -> Any:
    return {**CHAINS, "key.avro.schema": RECORD_KEY, "value.avro.schema.file": str(folder / "value.avsc")}


def in_properties(folder: Path) -> Any:
    path = folder / "client.properties"
    path.write_text("\n".join(f"{key} = {value}" for key, value in in_mapping(folder).items()))
    return path


def in_toml(folder: Path) -> Any:
    path = folder / "client.toml"
    chains = "\n".join(f'"{key}" = "{value}"' for key, value in CHAINS.items())
    path.write_text(f"{chains}\n[key.avro]\nschema = '''{RECORD_KEY}'''\n[value.avro]\nschema.file = 'value.avsc'\n")
    return path


@pytest.mark.parametrize("source", [in_mapping, in_properties, in_toml])
def test_key_and_value_have_schemas_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Callable[[Path], Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "value.avsc").write_text(RECORD_VALUE)
    config = source(tmp_path)
    writer = ClientChains.of_writer(config)
    reader = ClientChains.of_reader(config)
    assert writer.key is not None
    assert writer.value is not None
    assert reader.key is not None
    assert reader.value is not None
    assert reader.key(writer.key(KEY_OBJECT)) == KEY_OBJECT
    assert reader.value(writer.value(VALUE_OBJECT)) == VALUE_OBJECT
    assert resolve(config).client == {}


def test_builders_of_confluents_clients_have_them_too() -> None:
    config = {**CHAINS, "key.avro.schema": RECORD_KEY, "value.avro.schema": RECORD_VALUE, "client.id": "a"}
    for is_key, value in ((True, KEY_OBJECT), (False, VALUE_OBJECT)):
        write, left = SerializerChainBuilder().build(config, is_key)
        read, _ = DeserializerChainBuilder().build(config, is_key)
        assert read(write(value)) == value
        assert left == {"client.id": "a"}


def test_what_counts_first() -> None:
    """A stage's own options, then those of the side, then those for both."""
    config = {
        "key.serializers": [{"class": "avro", "avro.schema": '"int"'}],
        "value.serializers": "avro",
        "key.avro.schema": '"string"',
        "avro.schema": '"boolean"',
    }
    assert SerializerChain.from_config(config, is_key=True)(1) == b"\x02"
    assert SerializerChain.from_config(config)(True) == b"\x01"
    assert SerializerChain.from_config({**config, "value.avro.schema": '"string"'})("a") == b"\x02a"


def test_a_key_of_a_side_takes_the_place_of_what_excludes_it(tmp_path: Path) -> None:
    (tmp_path / "value.avsc").write_text(RECORD_VALUE)
    config = {**CHAINS, "avro.schema.file": str(tmp_path / "value.avsc"), "key.avro.schema": "long"}
    assert SerializerChain.from_config(config, is_key=True)(1) == b"\x02"
    assert DeserializerChain.from_config(config)(SerializerChain.from_config(config)(VALUE_OBJECT)) == VALUE_OBJECT


def test_each_side_has_its_store_and_threshold() -> None:
    config = {
        "key.serializers": "string, large-message",
        "value.serializers": "string, large-message",
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": 100,
        "key.large.message.threshold.bytes": 10,
    }
    ctx = {field: RecordContext("t", field, []) for field in (KEY, VALUE)}
    try:
        key, value = (SerializerChain.from_config(config, is_key=is_key) for is_key in (True, False))
        assert key("k" * 50, ctx[KEY]) != b"k" * 50
        assert value("v" * 50, ctx[VALUE]) == b"v" * 50
    finally:
        MemoryStore.clear()


def test_one_side_alone_describes_itself() -> None:
    config = {"key.serializers": "string", "value.serializers": "string", "value.serde.chain.describe": "true"}
    assert SerializerChain.from_config(config).labels == ("describe (1 of 2)", "string (2 of 2)")
    assert SerializerChain.from_config(config, is_key=True).labels == ("string (1 of 1)",)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("key.value.deserializers", r"Did you mean value\.deserializers\?"),
        ("key.avro.shema", r"Did you mean key\.avro\.schema\?"),
        ("value.avro.schema.fiel", r"Did you mean value\.avro\.schema\.file\?"),
        ("value.serialisers", r"Did you mean value\.serializers\?"),
        ("value.compresion.type", r"Did you mean value\.compression\.type\?"),
        ("key.large.message.route.a.treshold.bytes", None),
        ("value.large.message.uploads.in.flight", r"of the client, .*write large\.message\.uploads\.in\.flight"),
        ("key.serde.error.policy", r"of the client, .*write serde\.error\.policy"),
        ("value.linger.ms", None),
    ],
)
def test_misspelt_keys_of_a_side(key: str, hint: str | None) -> None:
    with pytest.raises(ConfigError, match=f"{key}' is not a configuration key.*{hint or ''}") as caught:
        check_keys({"value.serializers": "string, zstd", key: "1"})
    assert caught.value.key == key


def test_an_error_names_the_key_as_it_is_written() -> None:
    config = {"key.serializer": "avro", "key.avro.schema.file": "/nowhere/key.avsc"}
    with pytest.raises(ConfigError, match=r"key=key\.avro\.schema\.file"):
        SerializerChain.from_config(config, is_key=True)
    with pytest.raises(ConfigError, match=r"key=value\.compression\.level"):
        SerializerChain.from_config({"value.serializer": "zstd", "value.compression.level": "high"})


def test_secrets_of_a_side_are_secrets() -> None:
    config = resolve({"value.serializers": "string, encrypt", "value.encryption.keys": {"a": bytes(32)}})
    assert is_secret("value.encryption.keys", config.options)
    assert resolve(config).client == {}


def test_a_consumer_takes_the_writers_schema_for_keys(
    broker: KafkaBroker, registry: SchemaRegistry, topic: str
) -> None:
    """Only the values' is named: no good record is passed over."""
    common = {
        **broker.client_config(),
        **CHAINS,
        "schema.registry.url": registry.url,
        "value.avro.schema": RECORD_VALUE,
    }
    with Producer({**common, "key.avro.schema": RECORD_KEY}) as producer:
        for at in range(10):
            producer.produce(topic, {"id": at, "s": "s"}, key={"id": at})
    reading = {**common, "group.id": topic, "auto.offset.reset": "earliest", "serde.error.policy": "skip"}
    read: list[Any] = []
    with Consumer(reading) as consumer:
        consumer.subscribe([topic])
        until = time.monotonic() + SECONDS
        while len(read) < 10:
            assert time.monotonic() < until, f"{len(read)} of 10 records came"
            read += [(message.key(), message.value()) for message in consumer.consume(10, 0.5)]
    assert sorted(key["id"] for key, _ in read) == list(range(10))
    assert all(key["id"] == value["id"] for key, value in read)


def test_protobuf_and_json_have_sides() -> None:
    config = {
        "key.serializer": "protobuf",
        "value.serializer": "protobuf",
        "key.protobuf.message.class": "google.protobuf.wrappers_pb2.Int64Value",
        "value.protobuf.message.class": "google.protobuf.wrappers_pb2.StringValue",
    }
    assert SerializerChain.from_config(config, is_key=True)({"value": 1}) == b"\x08\x01"
    assert SerializerChain.from_config(config)({"value": "a"}) == b"\n\x01a"
    schema = json.dumps({"type": "integer"})
    assert (
        SerializerChain.from_config(
            {"key.serializer": "json", "value.serializer": "json", "value.json.schema": schema}, is_key=True
        )("a")
        == b'"a"'
    )
