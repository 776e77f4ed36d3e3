"""Typical mistakes: each is one line with the place and, where there is one, the remedy; no library's internals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serde_chain import (
    ConfigError,
    Consumer,
    DecodeError,
    DeserializerChain,
    EncodeError,
    Producer,
    RecordContext,
    SerializationError,
    SerializerChain,
)
from serde_chain.clients.confluent.share_consumer import ShareConsumer

SCHEMA = '{"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}'
AVRO = {"value.serializers": "avro", "avro.schema": SCHEMA}
MEMORY = {"large.message.payload.store.class": "memory"}
OFFLOADING = {"value.serializers": "bytes, large-message", **MEMORY}
FIELDS = {"value.serializers": "large-fields, avro", "avro.schema": SCHEMA, **MEMORY}
CLIENT = {"bootstrap.servers": "127.0.0.1:1", "group.id": "mistakes"}
KEYS = {"value.serializers": "bytes, encrypt", "encryption.keys": {"2026": bytes(32)}}


# By what somebody did: how the chain is made; the error; its text; and its place or remedy.
WRITERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "misspelt stage": ({"value.serializers": "arvo, zstd"}, "there is no stage 'arvo'", "Did you mean avro?"),
    "misspelt key": ({"value.serializers": "avro", "avro.shema": SCHEMA}, "'avro.shema' is not", "mean avro.schema?"),
    "misspelt key of a store": ({**OFFLOADING, "s3.buket": "b"}, "'s3.buket' is not", "mean s3.bucket?"),
    "misspelt store": ({**OFFLOADING, "large.message.payload.store.class": "s4"}, "no payload store 's4'", "Known are"),
    "no schema": ({"value.serializers": "avro"}, "no schema for writing", "Set avro.schema, avro.schema.file"),
    "schema file missing": (
        {"value.serializers": "avro", "avro.schema.file": "/no/such.avsc"},
        "'/no/such.avsc' cannot be read",
        "[key=avro.schema.file]",
    ),
    "schema is no JSON": ({**AVRO, "avro.schema": "{"}, "the schema is not JSON", "[key=avro.schema]"),
    "schema with a misspelt type": ({**AVRO, "avro.schema": SCHEMA.replace("long", "lnog")}, "lnog", "key=avro.schema"),
    "wrong order": (
        {**AVRO, "value.serializers": "zstd, avro"},
        "avro (2 of 2) cannot come after zstd",
        "go from object",
    ),
    "something after large-message": (
        {**AVRO, **MEMORY, "value.serializers": "avro, large-message, zstd"},
        "zstd (3 of 3) cannot come after large-message",
        "Offload last",
    ),
    "large-fields after avro": (
        {**FIELDS, "value.serializers": "avro, large-fields"},
        "large-fields (2 of 2) cannot come after avro",
        "it takes objects",
    ),
    "no store": ({"value.serializers": "bytes, large-message"}, "payload.store.class is required", "a store (memory"),
    "no bucket": ({**OFFLOADING, "large.message.payload.store.class": "s3"}, "s3.bucket is required", "Set it: bucket"),
    "no path": (
        {**OFFLOADING, "large.message.payload.store.class": "local"},
        "local.path is required",
        "Set it: folder",
    ),
    "threshold with a unit": (
        {**OFFLOADING, "large.message.threshold.bytes": "1MB"},
        "'1MB': expected a whole",
        "or auto",
    ),
    "one key twice": ({**AVRO, "value.serializer": "avro"}, "exclude each other", "Set one of them"),
    "misspelt codec": ({"value.serializers": "compress", "compression.type": "zst"}, "'zst': expected", "mean zstd?"),
    "level that does not exist": (
        {"value.serializers": "zstd", "compression.level": 99},
        "not 99",
        "compression.level",
    ),
    "no encryption key": ({"value.serializers": "bytes, encrypt"}, "encrypt has no keys", "Set encryption.keys"),
    "short encryption key": ({**KEYS, "encryption.keys": {"k": "AAAA"}}, "the key k has 3 bytes", "openssl rand"),
    "unknown encryption key": ({**KEYS, "encryption.key.id": "2025"}, "2025 is not among the keys", "there are 2026"),
    "no message class": ({"value.serializers": "protobuf"}, "no message to write", "Set protobuf.message.class"),
    "message class not installed": (
        {"value.serializers": "protobuf", "protobuf.message.class": "no_such.Message"},
        "'no_such.Message' cannot be imported",
        "Check the spelling",
    ),
    "no message class, but a class": (
        {"value.serializers": "protobuf", "protobuf.message.class": "collections.OrderedDict"},
        "is not a message class",
        "such as alerts_pb2.Alert",
    ),
    "stage not installed": ({"value.serializers": "no_such.Stage"}, "'no_such.Stage' cannot be", "PYTHONPATH"),
    "stage misspelt in its module": ({"value.serializers": "collections.Nope"}, "no attribute 'Nope'", "spelling"),
    "no stage, but a class": ({"value.serializers": "collections.OrderedDict"}, "is not a serializer", "Give a name"),
    "empty list": ({"value.serializers": ""}, "is not a list of stages", 'Write for instance "avro, zstd'),
    "number for a list": ({"value.serializers": 5}, "is not a list of stages", "[key=value.serializers]"),
    "boolean that is none": (
        {"value.serializers": "json", "json.validate": "maybe"},
        "'maybe': expected true",
        "json.val",
    ),
    "no fields to move": (FIELDS, "large.fields.paths is required", "for example to cutout*"),
    "field that does not exist": ({**FIELDS, "large.fields.paths": "idd"}, "idd is not in the schema", "fields.paths"),
    "field that is not large": ({**FIELDS, "large.fields.paths": "id"}, "neither bytes nor string", "fields.paths"),
    "model not installed": (
        {"value.serializers": "avro", "avro.type": "no_such.Model"},
        "cannot be imported",
        "spelling",
    ),
    "model without its module": (
        {"value.serializers": "avro", "avro.type": "Alert"},
        "the model 'Alert' has no module",
        "Write its dotted path: package.module.Alert",
    ),
    "model that is another class": (
        {"value.serializers": "avro", "avro.type": int},
        "is not a model, but the class int",
        "msgspec.Struct",
    ),
    "model that is a function": (
        {"value.serializers": "avro", "avro.type": "json.dumps"},
        "not a model",
        "msgspec.Struct",
    ),
    "model of another stage": (
        {"value.serializers": "json", "avro.type": "datetime.date"},
        "'avro.type' has no effect: no list of stages names avro",
        "Did you mean json.type?",
    ),
    "model of another stage, for a side": (
        {**AVRO, "value.json.type": "datetime.date"},
        "'value.json.type' has no effect",
        "Did you mean avro.type?",
    ),
    "model and schema": ({**AVRO, "avro.type": "datetime.date"}, "avro.type and avro.schema exclude", "is derived"),
    "framing without a registry": ({**AVRO, "avro.framing": "confluent"}, "requires a schema registry", "registry.url"),
    "misspelt registry": ({**AVRO, "schema.registry.type": "gleu"}, "'gleu': expected", "did you mean glue?"),
}
READERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "readers in the writer's order": (
        {"value.deserializers": "avro, zstd", "avro.schema": SCHEMA},
        "zstd (2 of 2) cannot come after avro",
        "deserializers from bytes to object",
    ),
    "auto without a list": (
        {"value.deserializers": "auto"},
        "serde.chain.allow is required",
        "stages that auto reverses",
    ),
}
VALUES: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "field missing": (AVRO, {"ident": 1}, "Alert.id is missing", "stage=avro"),
    "field of a wrong type": (AVRO, {"id": "x"}, "Alert.id is str of length 1, expected long", "stage=avro"),
    "object in JSON": ({"value.serializers": "json"}, {"a": object()}, "not JSON", "stage=json"),
    "bytes for text": (
        {"value.serializers": "string"},
        b"x",
        "string takes str, not bytes",
        "Begin the chain with bytes",
    ),
    "number for text": ({"value.serializers": "string"}, 5, "string takes str, not int", "such as json or long"),
    "text for bytes": (
        {"value.serializers": "bytes"},
        "x",
        "bytes takes bytes, not str",
        "Begin the chain with string",
    ),
    "object for bytes": (
        {"value.serializers": "bytes"},
        {"a": 1},
        "bytes takes bytes, not dict",
        "such as json or avro",
    ),
    "number too large": ({"value.serializers": "integer"}, 2**40, "does not fit in 4 bytes", "stage=integer"),
    "list for an array": ({"value.serializers": "npy"}, [1, 2], "npy takes numpy.ndarray", "numpy.asarray"),
}
BYTES: dict[str, tuple[dict[str, Any], bytes, str, str]] = {
    "not compressed": ({"value.deserializers": "zstd, bytes"}, b"plain", "not compressed", "compression.min.bytes"),
    "no Avro": ({"value.deserializers": "avro", "avro.schema": SCHEMA}, b"", "truncated", "stage=avro"),
    "no JSON": ({"value.deserializers": "json"}, b"{", "not JSON", "stage=json"),
    "no Unicode": ({"value.deserializers": "string"}, b"\xff", "not UTF-8", "stage=string"),
}
CLIENTS: dict[str, tuple[Callable[[], object], str, str]] = {
    "list for a configuration": (lambda: Producer([1]), "a mapping or the path of a file", "not list"),  # type: ignore[arg-type]
    "file missing": (lambda: Producer("/no/such.toml"), "/no/such.toml cannot be read", "No such file"),
    "file of a wrong kind": (lambda: Producer("client.yaml"), "neither TOML nor properties", "Write .toml"),
    "threshold above the client's limit": (
        lambda: Producer({**CLIENT, **OFFLOADING, "large.message.threshold.bytes": 5_000_000}),
        "exceeds the largest value that the client sends",
        "Lower the threshold",
    ),
    "misspelt policy": (
        lambda: Consumer({**CLIENT, "serde.error.policy": "ignore"}), "'ignore': expected", "raise, skip, dead-letter"
    ),
    "dead letters to nowhere": (
        lambda: Consumer({**CLIENT, "serde.error.policy": "dead-letter"}), "needs a topic", "serde.dead.letter.topic"
    ),
    "share group with a policy of its own": (
        lambda: ShareConsumer({**CLIENT, "serde.error.policy": "ignore"}), "'ignore': expected", "serde.error.policy"
    ),
}  # fmt: skip


def told(error: Exception, text: str, more: str) -> None:
    """The whole error is a line with both texts, and nothing of an implementation."""
    line = str(error)
    assert text in line
    assert more in line
    assert "\n" not in line
    for internal in ("Traceback", "object at 0x", "site-packages", "<class ", "cimpl."):
        assert internal not in line


@pytest.mark.parametrize("mistake", WRITERS)
def test_writers(mistake: str) -> None:
    config, *texts = WRITERS[mistake]
    with pytest.raises(ConfigError) as raised:
        SerializerChain.from_config(config)
    told(raised.value, *texts)


@pytest.mark.parametrize("mistake", READERS)
def test_readers(mistake: str) -> None:
    config, *texts = READERS[mistake]
    with pytest.raises(ConfigError) as raised:
        DeserializerChain.from_config(config)
    told(raised.value, *texts)


@pytest.mark.parametrize("mistake", VALUES)
def test_values(mistake: str) -> None:
    config, value, *texts = VALUES[mistake]
    with pytest.raises(EncodeError) as raised:
        SerializerChain.from_config(config)(value, RecordContext("alerts", "value"))
    told(raised.value, *texts)


@pytest.mark.parametrize("mistake", BYTES)
def test_bytes(mistake: str) -> None:
    config, data, *texts = BYTES[mistake]
    with pytest.raises(DecodeError) as raised:
        DeserializerChain.from_config(config)(data, RecordContext("alerts", "value"))
    told(raised.value, *texts)


@pytest.mark.parametrize("mistake", CLIENTS)
def test_clients(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make, *texts = CLIENTS[mistake]
    with pytest.raises(ConfigError) as raised:
        make()
    told(raised.value, *texts)


def test_a_chain_without_the_record_around_the_data() -> None:
    chain = SerializerChain.from_config({**OFFLOADING, "large.message.threshold.bytes": 1})
    with pytest.raises(SerializationError) as raised:
        chain(b"payload")
    told(raised.value, "requires the record around the data", "stage=large-message (2 of 2)")
