"""Configurations: files, lists and single forms, misspelt keys, what goes to the client, secrets."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from payload_stores.options import CLIENT_PREFIXES, Option, integer
from serde_chain import (
    ConfigError,
    Data,
    Deserializer,
    DeserializerChain,
    EncodeError,
    Producer,
    Serializer,
    SerializerChain,
)
from serde_chain.catalogue import StageItem
from serde_chain.config import _builtin_options, check_keys, is_secret, load, resolve
from serde_chain.testing.services import S3Server

STORE_CLASS = "large.message.payload.store.class"
STORE = {STORE_CLASS: "memory"}
LARGE = {"value.serializers": "large-message", **STORE}
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'

TOML = """
"bootstrap.servers" = "localhost:9092"

[value]
serializers = ["avro", {class = "zstd", compression.level = 19}, "large-message"]

[avro]
schema = '''{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'''

[large.message]
threshold.bytes = 0
payload.store.class = "memory"
"""

PROPERTIES = """\
# As a Java client has it.
bootstrap.servers = localhost:9092
value.serializers = avro, zstd, \\
                    large-message
avro.schema : {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
large.message.threshold.bytes=0
large.message.payload.store.class=memory
"""


# Files


@pytest.mark.parametrize(("name", "content"), [("client.toml", TOML), ("client.properties", PROPERTIES)])
@pytest.mark.parametrize("kind", [str, Path])
def test_a_chain_is_read_from_a_file(tmp_path: Path, name: str, content: str, kind: type) -> None:
    path = tmp_path / name
    path.write_text(content)
    chain = SerializerChain.from_config(kind(path))
    assert chain.labels == ("avro (1 of 3)", "zstd (2 of 3)", "large-message (3 of 3)")
    assert resolve(load(path)).client == {"bootstrap.servers": "localhost:9092"}


def test_toml_tables_are_dotted_keys(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    tables = "[a.b]\nc = 1\n[a.b.d]\ne = [1, 2]\nclass = 'x'\n[i]\n'j.k' = {l = true}\n"
    path.write_text(tables + "[value]\nserializer = {class = 'x', y.z = 2}\n")
    flat = {"a.b.c": 1, "a.b.d.e": [1, 2], "a.b.d.class": "x", "i.j.k.l": True}
    assert load(path) == {**flat, "value.serializer": {"class": "x", "y.z": 2}}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.toml", None, "missing.toml cannot be read: .*No such file"),
        ("bad.toml", b"a = ", r"bad\.toml cannot be read: Invalid value"),
        ("tables.toml", b"[a]\n[a]\n", r"tables\.toml cannot be read: Cannot declare .*Set each key once"),
        ("twice.toml", b'"a" = 1\n"a" = 2', r"twice\.toml cannot be read: Cannot overwrite .*Set each key once"),
        ("bare.toml", b"local.path = /data", r"bare\.toml cannot be read: .*line 1.*text stands in quotes"),
        ("latin.toml", b"a = '\xe4'", r"latin\.toml cannot be read: line 1 is not UTF-8"),
        ("bad.properties", b"a = \\u12", r"bad\.properties cannot be read"),
        ("latin.properties", b"# a\r\nb = \xe4", r"latin\.properties cannot be read: line 2 is not UTF-8"),
        ("client.yaml", b"a: 1", "neither TOML nor properties"),
        ("deep.toml", b"a = " + b"[" * 5000 + b"]" * 5000, r"deep\.toml is nested too deeply"),
        ("keys.toml", b"a" + b".a" * 2000 + b" = 1", r"keys\.toml is nested too deeply"),
        ("large.toml", b"#" * (16 * 2**20 + 1), r"large\.toml has more than 16,777,216 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / name)


@pytest.mark.parametrize("content", ["client.id = é\n", '"client.id" = "é"\n'])
def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path: Path, content: str) -> None:
    path = tmp_path / ("client.toml" if content.startswith('"') else "client.properties")
    path.write_text(content, encoding="utf-8-sig")
    assert load(path) == {"client.id": "é"}


def test_a_mapping_is_copied_and_its_keys_are_strings() -> None:
    config = {"value.serializer": "string"}
    assert load(config) == config
    assert load(config) is not config
    with pytest.raises(ConfigError, match="the configuration key 1 is not a string"):
        load({1: "a"})  # type: ignore[dict-item]


# Lists


@pytest.mark.parametrize(
    "many", ["json, zstd", "json,zstd,", ["json", "zstd"], ("json", " zstd "), [{"class": "json"}, "zstd"]]
)
def test_forms_of_a_list(many: object) -> None:
    assert SerializerChain.from_config({"value.serializers": many}).labels == ("json (1 of 2)", "zstd (2 of 2)")


def test_the_single_form() -> None:
    assert SerializerChain.from_config({"key.serializer": "string"}, is_key=True)("a") == b"a"
    assert DeserializerChain.from_config({"value.deserializer": {"class": "string"}})(b"a") == "a"


@pytest.mark.parametrize("side", ["serializer", "deserializer"])
@pytest.mark.parametrize("field", ["key", "value"])
def test_both_forms_exclude_each_other(field: str, side: str) -> None:
    chain = SerializerChain if side == "serializer" else DeserializerChain
    config = {f"{field}.{side}": "string", f"{field}.{side}s": "string"}
    with pytest.raises(ConfigError, match=rf"{field}\.{side} and {field}\.{side}s exclude each other"):
        chain.from_config(config, is_key=field == "key")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"value.serializers": ""}, "value.serializers is not a list of stages"),
        ({"value.serializers": []}, "value.serializers is not a list of stages"),
        ({"value.serializers": " , "}, "value.serializers is not a list of stages"),
        ({"value.serializers": 7}, "value.serializers is not a list of stages"),
        ({"value.serializer": "json, zstd"}, "names several stages.*Set value.serializers"),
        ({"value.serializer": ["json"]}, "value.serializer is a list.*Set value.serializers"),
        ({"value.serializers": "large-message"}, "large.message.payload.store.class is required"),
        ({**LARGE, "large.message.threshold.bytes": "1MB"}, "'1MB': expected a whole"),
        ({"value.serializers": "zstd", "compression.level": 23}, "zstd has levels .* to 22, not 23"),
        ({"value.serializers": "snappy", "compression.level": 1}, "snappy has no levels"),
        ({"value.serializers": "compress", "compression.type": "zip"}, "expected one of zstd, lz4.*snappy, zlib.*gzip"),
        ({"value.serializers": "avro"}, "avro has no schema for writing"),
        ({"value.serializers": "avro", "avro.schema": "{"}, "the schema is not JSON"),
        ({"value.serializers": "avro", "avro.schema": "strin"}, "not an Avro schema"),
        ({"value.serializers": "avro", "avro.schema": "alert.avsc"}, "For the path of a file, set avro.schema.file"),
        ({"value.serializers": "avro", "avro.schema": '{"type": "record"}'}, "not an Avro schema"),
        ({"value.serializers": "avro", "avro.schema.file": "/no/such.avsc"}, "'/no/such.avsc' cannot be read"),
        ({"value.serializers": "avro", "avro.schema": "int", "avro.schema.file": "x"}, "exclude each other"),
        ({"value.serializers": "avro", "avro.schema": "int", "avro.framing": "confluent"}, "requires a schema regist"),
        ({"value.serializers": "avro", "avro.schema": "int", "avro.framing": "soe"}, "expected one of confluent"),
        ({"value.serializers": "json", "json.validate": True}, "json.validate requires a schema"),
        ({"value.serializers": "json", "json.schema": "{"}, "json.schema is not a JSON Schema"),
        ({"value.serializers": "json", "json.schema": '{"type": "thing"}'}, "json.schema is not a JSON Schema"),
        ({**LARGE, STORE_CLASS: "s4"}, "no payload store 's4' \\[key=large.message.payload.store.class\\].*s3"),
        ({**LARGE, STORE_CLASS: "json.loads"}, "not a payload store"),
        ({**LARGE, "large.message.format": "kip"}, "no large-message format 'kip'"),
        ({**LARGE, "large.message.id": "uuid"}, "expected one of random, content"),
        ({**LARGE, STORE_CLASS: "s3"}, "s3.bucket is required"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(config: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config(config)


@pytest.mark.parametrize("source", [7, ["json"], b"client.toml"])
def test_what_is_no_configuration_is_refused(source: object) -> None:
    with pytest.raises(ConfigError, match=r"a mapping or the path of a file, not (int|list|bytes)"):
        load(source)  # type: ignore[arg-type]


def test_deserializers_need_a_schema_too() -> None:
    with pytest.raises(ConfigError, match="avro has no schema for reading"):
        DeserializerChain.from_config({"value.deserializers": "avro"})


# Misspelt keys


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("avro.shema", "avro.schema"),
        ("json.validat", "json.validate"),
        ("large.message.treshold.bytes", "large.message.threshold.bytes"),
        ("large.message.payload.store", "large.message.payload.store.class"),
        ("s3.buckets", "s3.bucket"),
        ("local.pth", "local.path"),
        ("value.serialisers", "value.serializers"),
        ("key.deserialisers", "key.deserializers"),
        ("compression.min.byte", "compression.min.bytes"),
        ("auto.register.schema", "auto.register.schemas"),
        ("use.latest.versions", "use.latest.version"),
        ("subject.name.strategies", "subject.name.strategy"),
        ("basic.auth.user.infos", "basic.auth.user.info"),
        ("schema.registri.url", "schema.registry."),
        ("large.message.routes.images.topics", "large.message.route.images.topics"),
    ],
)
def test_a_misspelt_key_names_the_nearest(key: str, near: str) -> None:
    config = {"value.serializers": "avro, zstd, large-message", "avro.schema": SCHEMA, **STORE, key: "1"}
    with pytest.raises(ConfigError, match=f"'{key}' is not a configuration key.*Did you mean {near}") as caught:
        SerializerChain.from_config(config)
    assert caught.value.key == key


@pytest.mark.parametrize("make", [SerializerChain.from_config, Producer])
@pytest.mark.parametrize(
    ("key", "more"),
    [("max.message.bytes", "limit is message.max.bytes; with "), ("retention.ms", "Set it when the topic")],
)
def test_a_setting_of_topics_is_none_of_a_client(make: Any, key: str, more: str) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "value.serializers": "json", key: "1000"}
    with pytest.raises(ConfigError, match=f"'{key}' is a setting of topics.*{more}.*--add-config {key}=") as caught:
        make(config)
    assert caught.value.key == key


@pytest.mark.parametrize("key", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("servers", ["http://user:hush@127.0.0.1:9092", "127.0.0.1:9092, HTTPS://127.0.0.1:9093"])
def test_an_address_of_another_protocol_is_none_of_a_broker(key: str, servers: str) -> None:
    """librdkafka reports it on standard error, and waits."""
    with pytest.raises(ConfigError, match=rf"{key} has an address with (http|HTTPS)://.*Write host:port") as caught:
        Producer({key: servers})
    assert "hush" not in str(caught.value)
    Producer({key: "PLAINTEXT://127.0.0.1:1,sasl_ssl://[::1]:2"}).close()


def test_keys_of_stages_that_are_not_used_are_no_error() -> None:
    config = {"value.serializers": "json", "avro.schema": SCHEMA, **STORE, "s3.bucket": "b"}
    assert SerializerChain.from_config(config)({}) == b"{}"


def test_librdkafkas_own_keys_are_never_refused() -> None:
    import confluent_kafka

    keys = [
        "acks", "batch.size", "linger.ms", "compression.codec", "compression.type", "compression.level",
        "message.max.bytes", "max.poll.interval.ms",
        "max.in.flight", "sasl.username", "ssl.ca.location", "security.protocol", "group.id",
        "auto.offset.reset", "enable.idempotence", "transactional.id", "retries", "retry.backoff.ms", "topic.blacklist",
        "statistics.interval.ms", "session.timeout.ms", "fetch.message.max.bytes", "receive.message.max.bytes", "debug",
        "metadata.max.age.ms", "message.copy.max.bytes", "message.send.max.retries", "allow.auto.create.topics",
        "request.timeout.ms", "message.timeout.ms", "delivery.timeout.ms", "queue.buffering.max.kbytes", "client.rack",
        "key.of.the.user", "error_cb", "stats_cb", "on_delivery", "logger", "plugin.library.paths",
    ]  # fmt: skip
    config: dict[str, object] = {"value.serializers": "avro, compress, large-message", "avro.schema": SCHEMA, **STORE}
    check_keys({**config, **dict.fromkeys((key for key in keys if not key.startswith("key.")), "1")})
    assert confluent_kafka.libversion()[0]


# For the client


def test_what_is_left_goes_to_the_client() -> None:
    config = {
        "bootstrap.servers": "b:9092",
        "linger.ms": 5,
        "compression.type": "lz4",
        "compression.level": 3,
        "value.serializers": "avro, zstd, large-message",
        "key.serializer": "string",
        "avro.schema": SCHEMA,
        "schema.registry.url": "http://registry",
        "auto.register.schemas": "false",
        **STORE,
        "s3.bucket": "not used",
        "some.interceptor": "x",
    }
    assert resolve(config).client == {
        "bootstrap.servers": "b:9092",
        "linger.ms": 5,
        # zstd as a stage takes its level from here; the codec is the client's.
        "compression.type": "lz4",
        "some.interceptor": "x",
    }


def test_no_option_of_a_stage_reaches_a_client_that_does_not_know_it() -> None:
    """One configuration for two clients, of which only one has the stage."""
    for option in _builtin_options():
        if option.name.partition(".")[0] in CLIENT_PREFIXES:
            try:
                confluent_kafka.Producer({option.name: "none"})
            except confluent_kafka.KafkaException as error:
                known = "No such configuration property" not in str(error)
            else:
                known = True
            passed_on = resolve({"value.serializer": "string", option.name: "none"}).client
            assert (option.name in passed_on) == known, option.name


def test_an_option_that_the_producer_has_too_is_its_own_without_a_stage_that_writes_it() -> None:
    class Reads(Deserializer[str]):
        options = (Option("linger.ms", integer(), 5, of_producer=True),)

    class Writes(Serializer[str]):
        options = Reads.options

    config = {"value.deserializers": [Reads], "linger.ms": 1, "value.linger.ms": 2}
    assert resolve(config).client == {"linger.ms": 1}
    assert resolve({**config, "value.serializers": [Writes]}).client == {}


def test_compression_type_is_the_stages_when_one_reads_it() -> None:
    config = {"value.serializers": "json, compress", "compression.type": "gzip", "acks": "all"}
    assert resolve(config).client == {"acks": "all"}
    assert SerializerChain.from_config(config)({})[:2] == b"\x1f\x8b"
    assert resolve({"value.serializers": "json", "compression.type": "gzip"}).client == {"compression.type": "gzip"}


def test_both_sides_in_one_configuration() -> None:
    config = {"value.serializers": "json, zstd", "value.deserializers": "zstd, json", "group.id": "g"}
    assert DeserializerChain.from_config(config)(SerializerChain.from_config(config)([1])) == [1]
    assert resolve(config).client == {"group.id": "g"}


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_booleans_and_numbers_as_text(text: str) -> None:
    schema = '{"type": "integer"}'
    chain = SerializerChain.from_config({"value.serializer": "json", "json.schema": schema, "json.validate": text})
    with pytest.raises(
        EncodeError, match=r'does not match json\.schema: \$ is str of length 4, against type: "integer"'
    ):
        chain("text")


# Secrets


def test_secrets_are_never_shown(s3_server: S3Server, bucket: str) -> None:
    config = {
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "s3",
        **s3_server.store_config(bucket),
        "s3.secret.key": "hush-hush",
        "sasl.password": "hush-hush",
        "basic.auth.user.info": "me:hush-hush",
    }
    with SerializerChain.from_config(config) as chain:
        shown = [repr(chain), *map(repr, chain.stages), *map(str, chain.stages)]
    for wrong in ({"s3.secret.key": ["hush-hush"]}, {"s3.bucket": 1}, {"large.message.threshold.bytes": "x"}):
        with pytest.raises(ConfigError) as caught:
            SerializerChain.from_config({**config, **wrong})
        error: BaseException | None = caught.value
        while error is not None:
            shown.append(repr(error) + str(error))
            error = error.__cause__ or error.__context__
    assert not [text for text in shown if "hush" in text]


@pytest.mark.parametrize("wrong", ["clas", "klass", "name", None])
def test_a_stage_without_its_class_shows_no_values(wrong: str | None, tmp_path: Path) -> None:
    item: dict[str, object] = {"encryption.keys": "k1 = hush-hush", "encryption.key.id": "hush"}
    if wrong is not None:
        item[wrong] = "encrypt"
    path = tmp_path / "client.toml"
    path.write_text(
        '"value.serializers" = ["bytes", {'
        + ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in item.items())
        + "}]"
    )
    for config in ({"value.serializers": ["bytes", item]}, {"value.serializer": item}, path):
        with pytest.raises(ConfigError, match=r"encryption\.keys.*names no class") as caught:
            SerializerChain.from_config(config)
        assert "hush" not in str(caught.value)
        if wrong in {"clas", "klass"}:
            assert f"Did you mean class, not {wrong}?" in str(caught.value)


def test_values_that_may_hold_secrets_are_not_shown() -> None:
    store = {"class": "s3", "s3.secret.kez": "hush-hush"}
    for wrong in (
        {"large.message.payload.store.class": store},
        {"large.message.payload.store.classes": [store]},
        {"large.message.threshold.bytes": store},
        {"large.message.threshold.bytes": [store]},
    ):
        config = {"large.message.payload.store.class": "memory", "value.serializers": "bytes, large-message", **wrong}
        with pytest.raises(ConfigError) as caught:
            SerializerChain.from_config(config)
        assert "hush" not in str(caught.value)
    assert "hush" not in repr(StageItem.of({"class": "encrypt", "encryption.keys": "k = hush"}))


def test_what_is_declared_decides_what_is_secret() -> None:
    options = [Option("a.*", str, "", secret=True), Option("a.url", str, "")]
    assert [is_secret(key, options) for key in ("a.url", "a.pin", "b", "sasl.password")] == [False, True, False, True]


class Mask(Serializer[bytes]):
    takes = gives = Data.BYTES
    options = (Option("mask.byte", integer(), 0, doc="the mask"),)

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data


@pytest.mark.parametrize("side", ["", "value."])
def test_a_misspelt_prefix_of_an_option_is_refused(side: str) -> None:
    config = {"value.serializers": [Mask], f"{side}maks.byte": 1}
    with pytest.raises(ConfigError, match=rf"Did you mean {side}mask\.byte\?") as caught:
        SerializerChain.from_config(config)
    assert caught.value.key == f"{side}maks.byte"


@pytest.mark.parametrize("key", ["task.other", "client.id", "byte", "bootstrap_servers", "m3.byte", "app.byte"])
def test_a_prefix_of_others_is_not_refused(key: str) -> None:
    SerializerChain.from_config({"value.serializers": [Mask], key: "1"}).close()


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"value.serializers": "avro", "avro.schema.file": "alert.avsc"}, "looked for at {folder}/alert.avsc"),
        ({"value.serializers": "avro", "avro.schema.file": "../alert.avsc"}, "looked for at {folder}/../alert.avsc"),
        ({"value.serializers": "avro", "avro.schema.file": "/no/such.avsc"}, "looked for at /no/such.avsc"),
        (
            {
                "value.serializers": "protobuf",
                "protobuf.descriptor.set.file": "alert.desc",
                "protobuf.message.name": "Alert",
            },
            "looked for at {folder}/alert.desc",
        ),
        (
            {"value.serializers": "json, encrypt", "encryption.key.id": "a", "encryption.keys": "a=file:keys/a"},
            "at {folder}/keys/a",
        ),
    ],
)
def test_a_file_that_is_not_there_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Mapping[str, object], hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        SerializerChain.from_config(config)
    assert hint.format(folder=tmp_path) in str(caught.value)
    assert caught.value.key is not None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("large.message.threshold.bytes", "2MB", "a whole number of bytes, at least 0, or auto"),
        ("compression.max.output.bytes", "2MB", "a whole number of bytes, at least 1"),
        ("objects.part.bytes", 1, "a whole number of bytes from 5242880 to"),
        ("large.message.grace.ms", "1h", "a whole number of milliseconds, at least"),
        ("compression.level", "high", "a whole number \\["),
    ],
)
def test_numbers_have_units(key: str, value: object, expected: str) -> None:
    (option,) = {option for option in _builtin_options() if option.name == key}
    with pytest.raises(ConfigError, match=f"expected {expected}"):
        option.read({key: value})
