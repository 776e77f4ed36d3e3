"""The keys of a registry's client: each works, or is refused by its name."""

import base64
import inspect
import re
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry._sync import schema_registry_client as library
from confluent_kafka.schema_registry.common import _oauthbearer as bearer
from cryptography.hazmat.primitives import serialization
from google.protobuf import timestamp_pb2

from serde_chain import ConfigError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.schemas.http_settings import LIBRARYS
from tests.certificates import Authority
from tests.http_servers import serve
from tests.schemas.contexts import ContextRegistry, context_registry

FRAMED = b"\0\0\0\0\1\2"
GLUE = {"schema.registry.type": "glue", "glue.region": "eu-west-1", "schema.registry.url": None}
APICURIO = {"schema.registry.type": "apicurio"}


@pytest.fixture
def contexts() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        running.register("alerts-value", '"int"')
        yield running


def reader(url: str = "http://127.0.0.1:1", **settings: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializer": "avro", "schema.registry.url": url, **settings})


def read(url: str, **settings: Any) -> Any:
    with reader(url, **settings) as chain:
        return chain(FRAMED, RecordContext("alerts", "value", []))


def test_the_list_is_the_librarys() -> None:
    """Every key that Confluent's client takes out of its settings, in the version that is installed."""
    parts: tuple[Any, ...] = (library._BaseRestClient, library._FieldProviderBuilder, bearer)
    source = "".join(map(inspect.getsource, parts))
    taken = set(re.findall(r"(?:conf|conf_copy)\.pop\(\s*'([a-z.]+)'", source)) | set(
        re.findall(r"'([a-z.]+)' in conf_copy", source)
    )
    assert taken - {"cache.latest.ttl.sec"} == set(LIBRARYS)  # whose age this package bounds itself


KINDS: dict[str, dict[str, Any]] = {"confluent": {}, "apicurio": APICURIO, "glue": GLUE}
TAKEN: dict[str, Any] = {
    "confluent": {"cache.capacity", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "timeout", "proxy"},
    "apicurio": {"timeout", "proxy"},
    "glue": set(),
}
VALUES: dict[str, Any] = {
    "cache.capacity": "10",
    "max.retries": "0",
    "retries.wait.ms": "1",
    "retries.max.wait.ms": "1",
    "timeout": "2.5",
    "proxy": "http://127.0.0.1:1",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted({*LIBRARYS, "tiemout", "nonsense"} - {"url"}))
def test_a_key_works_or_is_refused_by_its_name(kind: str, name: str) -> None:
    key = f"schema.registry.{name}"
    if name in TAKEN[kind]:
        reader(**KINDS[kind], **{key: VALUES[name]}).close()
        return
    with pytest.raises(ConfigError, match=r"schema\.registry\.|bearer\.auth|user:password") as caught:
        reader(**KINDS[kind], **{key: VALUES.get(name, "x")})
    assert kind != "glue" or f"{key} has no effect" in str(caught.value)


def test_a_misspelt_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"schema\.registry\.tiemout has no effect.*Did you mean.*\.timeout\?"):
        reader(**{"schema.registry.tiemout": "3"})


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("latest.cache.ttl.sec", r"Here it is schema\.registry\.cache\.latest\.ttl\.sec, in seconds"),
        ("request.timeout.ms", r"Here it is schema\.registry\.timeout, in seconds"),
        ("ssl.truststore.location", r"Here it is schema\.registry\.ssl\.ca\.location, of PEM files"),
        ("ssl.keystore.location", r"Here it is schema\.registry\.ssl\.certificate\.location, of PEM files"),
        ("basic.auth.credential.source", r"Did you mean schema\.registry\.basic\.auth\.credentials\.source\?"),
        ("nonsense", r"Remove it; docs/registries\.md has a table"),
    ],
)
@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
def test_names_of_java_are_translated(kind: dict[str, str], name: str, here: str) -> None:
    with pytest.raises(ConfigError, match=here):
        reader(**kind, **{f"schema.registry.{name}": "x"})


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "registry"])
def test_an_address_begins_with_its_scheme(url: str) -> None:
    with pytest.raises(ConfigError, match=r"expected an address such as http://localhost:8081"):
        reader(url)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "500", True])
def test_a_timeout_is_within_a_questions_deadline(seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"schema\.registry\.timeout.*expected seconds, up to 45"):
        reader(**{"schema.registry.timeout": seconds})


def test_digits_stay_text() -> None:
    with reader(**{"basic.auth.user.info": "7:12345"}) as chain:
        client = chain.stages[0]._registry._client
        assert client._rest_client.auth == ("7", "12345")
    config = {f"schema.registry.bearer.auth.{name}": "123" for name in ("token", "logical.cluster")}
    with reader(**config, **{"schema.registry.bearer.auth.credentials.source": "STATIC_TOKEN"}) as chain:
        assert chain.stages[0]._registry._client._rest_client.bearer_field_provider.token == "123"


# Logins

ALICE = f"Basic {base64.b64encode(b'alice:secret').decode()}"
SASL = {"sasl.username": "alice", "sasl.password": "secret", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize("prefix", ["", "schema.registry."])
@pytest.mark.parametrize(
    ("source", "settings"),
    [
        (None, {"basic.auth.user.info": "alice:secret"}),
        ("USER_INFO", {"basic.auth.user.info": "alice:secret"}),
        ("user_info", {"schema.registry.basic.auth.user.info": "alice:secret"}),
        ("SASL_INHERIT", SASL),
    ],
)
def test_a_login(contexts: ContextRegistry, prefix: str, source: str | None, settings: dict[str, str]) -> None:
    named = {f"{prefix}basic.auth.credentials.source": source}
    assert read(contexts.url, **named, **settings) == 1
    assert set(contexts.logins) == {ALICE}


def test_a_login_in_the_address(contexts: ContextRegistry) -> None:
    url = contexts.url.replace("//", "//alice:secret@")
    assert read(url, **{"basic.auth.credentials.source": "URL"}) == 1
    assert set(contexts.logins) == {ALICE}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, r"SASL_INHERIT requires sasl\.username and sasl\.password"),
        ({"basic.auth.credentials.source": "SASL_INHERIT", "sasl.username": "a"}, "requires sasl"),
        ({"basic.auth.credentials.source": "USER_INFO"}, r"USER_INFO requires basic\.auth\.user\.info"),
        ({"basic.auth.credentials.source": "URL", "basic.auth.user.info": "a:b"}, r"= URL, and .*\.url has no login"),
        ({"basic.auth.credentials.source": "KERBEROS"}, "expected one of user_info, url, sasl_inherit"),
        ({"basic.auth.user.info": "alice"}, "not of the form user:password"),
    ],
)
@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
def test_a_login_that_is_not_there(kind: dict[str, str], settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        reader(**kind, **settings)
    assert "secret" not in str(caught.value)


# TLS


def files(tmp_path: Path) -> dict[str, str]:
    authority, other = Authority(), Authority()
    certificate, key = authority.issue("registry")
    _, other_key = other.issue("registry")
    contents = {
        "ca": authority.certificate, "certificate": certificate, "key": key, "other.key": other_key, "text": "hello",
        "empty": "",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    return {name: str(tmp_path / name) for name in (*contents, "missing")} | {"folder": str(tmp_path)}


WRONG_FILES = {
    "no such authority": ({"ca": "missing"}, r"ssl\.ca\.location = .*missing' cannot be read: No such file"),
    "an authority that is none": ({"ca": "text"}, r"ssl\.ca\.location = .*text' holds no certificates"),
    "an empty authority": ({"ca": "empty"}, r"ssl\.ca\.location = .*empty' holds no certificates"),
    "no such certificate": ({"certificate": "missing"}, r"ssl\.certificate\.location = .*cannot be read: No such file"),
    "no such key": (
        {"certificate": "certificate", "key": "missing"},
        r"ssl\.key\.location = .*missing' cannot be read: No such file",
    ),
    "another certificate's key": (
        {"certificate": "certificate", "key": "other.key"},
        r"ssl\.certificate\.location and ssl\.key\.location do not hold a certificate and its key: KEY_VALUES_MISMATCH",
    ),
    "a key that is none": ({"certificate": "certificate", "key": "text"}, "do not hold a certificate and its key"),
    "a certificate without its key": (
        {"certificate": "certificate"},
        r"ssl\.certificate\.location does not hold a certificate and its key",
    ),
    "a key alone": ({"key": "key"}, r"ssl\.key\.\* requires schema\.registry\.ssl\.certificate\.location"),
}


@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
@pytest.mark.parametrize("name", WRONG_FILES)
def test_files_of_tls_are_checked_at_once(tmp_path: Path, name: str, kind: dict[str, str]) -> None:
    wrong, message = WRONG_FILES[name]
    made = files(tmp_path)
    settings = {f"schema.registry.ssl.{part}.location": made[file] for part, file in wrong.items()}
    with pytest.raises(ConfigError, match=message) as caught:
        reader("https://127.0.0.1:1", **kind, **settings)
    assert str(caught.value.key) in str(caught.value)


@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
def test_an_encrypted_key_without_its_password_asks_no_terminal(tmp_path: Path, kind: dict[str, str]) -> None:
    made = files(tmp_path)
    key = serialization.load_pem_private_key(Path(made["key"]).read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"12345")
    encrypted = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    Path(made["key"]).write_bytes(encrypted)
    settings = {f"schema.registry.ssl.{part}.location": made[part] for part in ("certificate", "key")}
    passwords: list[Any] = [None, "wrong"]
    for password in passwords:
        with pytest.raises(ConfigError, match=r"set schema\.registry\.ssl\.key\.password"):
            reader(**kind, **settings, **{"schema.registry.ssl.key.password": password})
    reader(**kind, **settings, **{"schema.registry.ssl.key.password": "12345"}).close()


def test_a_file_of_the_environment_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"refuses its settings: .*No such file"):
        reader("https://127.0.0.1:1")


@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
@pytest.mark.parametrize("trusted", ["right", "other", "none", "off"])
def test_the_certificate_of_a_registry(
    contexts: ContextRegistry, tmp_path: Path, kind: dict[str, str], trusted: str
) -> None:
    made, other = files(tmp_path), tmp_path / "other"
    other.mkdir()
    settings: dict[str, Any] = {"schema.registry.max.retries": 0} if not kind else {}
    name = "schema.registry.ssl.ca.location"
    settings |= {"right": {name: made["ca"]}, "other": {name: files(other)["ca"]}, "off": {name: "false"}}.get(
        trusted, {}
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made["certificate"], made["key"])
    with serve(contexts.answer, tls) as url:
        if trusted in {"right", "off"} and not kind:
            assert read(url, **settings) == 1
        else:
            with pytest.raises(SchemaRegistryError) as caught:
                read(url, **kind, **settings)
            if trusted in {"other", "none"}:
                assert "the schema registry's certificate is refused" in str(caught.value)
                assert "ssl.ca.location" in str(caught.value)
            assert not caught.value.transient
            assert not caught.value.about_record


def test_https_where_there_is_none_is_no_outage(contexts: ContextRegistry) -> None:
    with pytest.raises(SchemaRegistryError, match="cannot be encrypted") as caught:
        read(contexts.url.replace("http:", "https:"), **{"schema.registry.max.retries": 0})
    assert not caught.value.transient


# Other keys of one meaning per registry


@pytest.mark.parametrize("kind", [APICURIO, GLUE], ids=["apicurio", "glue"])
def test_what_only_confluents_registry_has_is_refused_elsewhere(kind: dict[str, Any]) -> None:
    config = {"value.serializer": "avro", "schema.registry.url": "http://127.0.0.1:1", **kind}
    with pytest.raises(ConfigError, match=r"use\.latest\.with\.metadata requires"):
        SerializerChain.from_config({**config, "use.latest.with.metadata": "major=1"})


@pytest.mark.parametrize("stage", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("side", ["serializer", "deserializer"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use.schema.id", 1),
        ("use.latest.version", True),
        ("use.latest.with.metadata", "major=1"),
        ("schema.references", [{"name": "shop.Customer", "subject": "customers"}]),
    ],
)
def test_what_needs_a_registry_says_so(stage: str, side: str, name: str, value: Any) -> None:
    kind = SerializerChain if side == "serializer" else DeserializerChain
    own = {"avro.schema": '"int"', "json.schema": {}, "protobuf.message.class": timestamp_pb2.Timestamp}
    with pytest.raises(ConfigError, match=rf"{name} requires a schema registry, and schema\.registry\.url is not set"):
        kind.from_config({f"value.{side}": stage, **own, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use.schema.id", "x"),
        ("use.schema.id", 0),
        ("use.schema.id", True),
        ("use.latest.with.metadata", "major"),
        ("use.latest.with.metadata", "{"),
        ("use.latest.with.metadata", ""),
        ("use.latest.with.metadata", []),
        ("schema.registry.cache.latest.ttl.sec", -2),
        ("schema.registry.cache.latest.ttl.sec", "x"),
        ("schema.references", "x"),
        ("schema.references", [{"name": "a"}]),
        ("schema.references", [{"name": "a", "subject": "a", "version": "1"}]),
        ("schema.references", [{"name": "a", "subject": "a", "verison": 1}]),
    ],
)
def test_values_that_are_none(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(name)):
        reader(**{name: value})


WRONG_ADDRESSES = (
    "localhost:8081", "ftp://host", "http://", "http:///path", "http://[::1", "http://host:port", "http://host:99999",
    "http://host\n/path", "::::",
)  # fmt: skip


@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
@pytest.mark.parametrize("name", ["url", "proxy"])
@pytest.mark.parametrize("address", WRONG_ADDRESSES)
def test_what_is_no_address_is_refused_by_its_key(kind: dict[str, str], name: str, address: str) -> None:
    """The clients take some for servers that do not answer, which is waited for, and raise errors of their own."""
    config = {"schema.registry.url": "http://127.0.0.1:1", **kind, f"schema.registry.{name}": address}
    with pytest.raises(ConfigError, match="expected an address such as http://") as caught:
        DeserializerChain.from_config({"value.deserializer": "avro", **config})
    assert caught.value.key == f"schema.registry.{name}"


@pytest.mark.parametrize("kind", [{}, APICURIO], ids=["confluent", "apicurio"])
def test_a_proxy_that_requires_a_package(monkeypatch: pytest.MonkeyPatch, kind: dict[str, str]) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    config = {"schema.registry.url": "http://127.0.0.1:1", **kind, "schema.registry.proxy": "socks5://127.0.0.1:1"}
    with pytest.raises(ConfigError, match="pip install socksio"):
        DeserializerChain.from_config({"value.deserializer": "avro", **config})
