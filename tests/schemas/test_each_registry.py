"""What every registry has in common, by one suite; what one has of its own is in the file with its name."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from serde_chain import ConfigError, DecodeError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.testing.services import S3Server, SchemaRegistry
from tests.schemas.java import AVRO, VALUE

Make = Callable[..., Any]
# No server listens on this port.
NOWHERE = "http://127.0.0.1:1"
FRAMINGS = {"confluent", "header", "apicurio", "glue"}
GLUE_ID = uuid.UUID(int=1).bytes


class Peer(NamedTuple):
    """A registry, and what differs between it and the others.

    Attributes:
        settings: How it is configured.
        address: The key of its address.
        framings: Those that belong to it.
        unknown: A record that names a schema which it does not have.
        absent: Its message about an unknown id.
        unregistered: The message about a schema that is not registered, of a writer that may not register it.
        malformed: Bytes that are no frame of this registry.
    """

    settings: Mapping[str, object]
    address: str
    framings: frozenset[str]
    unknown: bytes
    absent: str
    unregistered: str
    malformed: tuple[bytes, ...]


def confluent(request: pytest.FixtureRequest) -> Peer:
    registry: SchemaRegistry = request.getfixturevalue("registry")
    return Peer(
        settings={"schema.registry.url": registry.url},
        address="schema.registry.url",
        framings=frozenset({"confluent", "header"}),
        unknown=b"\0\x7f\xff\xff\xff\2",
        absent="was found|not found",
        unregistered="is not registered|not found|was found",
        malformed=(b"", b"\0", b"\0\0\0\0", b"\1ab"),
    )


def apicurio(request: pytest.FixtureRequest) -> Peer:
    registry: SchemaRegistry = request.getfixturevalue("registry")
    url = registry.url.replace("/apis/ccompat/v7", "/apis/registry/v3")
    return Peer(
        settings={"schema.registry.type": "apicurio", "schema.registry.url": url},
        address="schema.registry.url",
        framings=frozenset({"apicurio", "header"}),
        unknown=b"\0\xff\xff\xff\xff\2",
        absent="was found|No version",
        unregistered="is not registered in the group default",
        malformed=(b"", b"\0", b"\0\0\0\0\0\0", b"\1ab"),
    )


def glue(request: pytest.FixtureRequest) -> Peer:
    server: S3Server = request.getfixturevalue("s3_server")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return Peer(
        settings={"schema.registry.type": "glue", "glue.region": "eu-west-1", "glue.endpoint.url": server.url},
        address="glue.endpoint.url",
        framings=frozenset({"glue"}),
        unknown=b"\3\0" + GLUE_ID + b"\2",
        absent="Schema version is not found",
        unregistered="is not registered in Glue's registry default-registry",
        malformed=(b"", b"\3", b"\0\0\0\0\1\2", b"\3\1" + bytes(17), b"\3\5" + bytes(16) + b"\x78"),
    )


@pytest.fixture(params=[confluent, apicurio, glue], ids=lambda make: make.__name__)
def peer(request: pytest.FixtureRequest) -> Peer:
    found: Peer = request.param(request)
    return found


@pytest.fixture
def chains(peer: Peer) -> Iterator[tuple[Make, Make]]:
    with ExitStack() as stack:

        def make(kind: Any, side: str, stage: str, more: Mapping[str, object]) -> Any:
            return stack.enter_context(kind.from_config({f"value.{side}": stage, **peer.settings, **more}))

        yield (
            lambda stage, **more: make(SerializerChain, "serializer", stage, dotted(more)),
            lambda stage, more=None: make(DeserializerChain, "deserializer", stage, more or {}),
        )


def dotted(config: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "."): value for key, value in config.items()}


def value_of(topic: str) -> RecordContext:
    return RecordContext(topic, "value", [])


def test_what_is_written_is_read(chains: tuple[Make, Make], topic: str) -> None:
    data = chains[0]("avro", avro_schema=AVRO)(VALUE, value_of(topic))
    assert chains[1]("avro")(data, value_of(topic)) == VALUE


def test_writers_may_register_nothing(peer: Peer, chains: tuple[Make, Make], topic: str) -> None:
    write = chains[0]("avro", avro_schema=AVRO, auto_register_schemas=False)
    with pytest.raises(SchemaRegistryError, match=peer.unregistered):
        write(VALUE, value_of(topic))
    data = chains[0]("avro", avro_schema=AVRO)(VALUE, value_of(topic))
    assert write(VALUE, value_of(topic)) == data
    assert chains[0]("avro", use_latest_version=True)(VALUE, value_of(topic)) == data


@pytest.mark.parametrize("stage", ["avro", "json", "protobuf"])
def test_malformed_frames(peer: Peer, chains: tuple[Make, Make], topic: str, stage: str) -> None:
    read = chains[1](stage)
    for data in peer.malformed:
        with pytest.raises(DecodeError):
            read(data, value_of(topic))


def test_an_unknown_schema_is_the_records_fault(peer: Peer, chains: tuple[Make, Make], topic: str) -> None:
    with pytest.raises(SchemaRegistryError, match=peer.absent) as caught:
        chains[1]("avro")(peer.unknown, value_of(topic))
    assert caught.value.about_record


@pytest.mark.full
def test_a_registry_that_is_down_is_not_the_records_fault(peer: Peer, chains: tuple[Make, Make], topic: str) -> None:
    with pytest.raises(SchemaRegistryError, match="did not answer") as caught:
        chains[1]("avro", {peer.address: NOWHERE})(peer.unknown, value_of(topic))
    assert (caught.value.about_record, caught.value.transient) == (False, True)


def test_the_framing_belongs_to_the_registry(peer: Peer, chains: tuple[Make, Make]) -> None:
    for name in sorted(FRAMINGS - peer.framings):
        with pytest.raises(ConfigError, match=rf"avro\.framing = {name}, and schema\.registry\.type = "):
            chains[1]("avro", {"avro.framing": name})
