"""Checks of the topics' records and of the schema registry: are the newest records readable here?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from serde_chain.catalogue import DESERIALIZE, DESERIALIZERS, SERIALIZE, SERIALIZERS, Side, StageItem
from serde_chain.cli.decoding import Decoding
from serde_chain.cli.doctor.base import Check, Level, Look, number
from serde_chain.cli.doctor.topics import newest_to_read
from serde_chain.cli.shared_schemas import shared_schemas
from serde_chain.errors import SchemaRegistryError, SerializationError
from serde_chain.schemas.schema_registry import OPTIONS, is_configured, open_registry
from serde_chain.stages.avro import native
from serde_chain.stages.avro.reader import CONTAINER
from serde_chain.stages.avro.stage import FRAMING

__all__ = ["compiled", "readers", "registry", "schemas"]

_LISTED: Final = re.compile(rb"\d+:([A-Za-z0-9._,-]+)")
# Codecs, each of which reads the others, and stages that leave the bytes unchanged. Only zlib's own reader reads zlib.
_CODECS: Final = frozenset({"zstd", "lz4", "gzip", "snappy"})
_AUTO: Final = "auto"
_IDLE: Final = frozenset({"bytes", "describe"})


def schemas(look: Look) -> Iterator[Check]:
    """Whether keys and values have separate schemas."""
    for message, change in shared_schemas(look.config):
        yield Check("schemas", Level.WARNING, message, change)


def registry(look: Look) -> Iterator[Check]:
    """Whether the schema registries answer and accept the credentials."""
    asked: list[dict[str, object]] = []
    for is_key in (False, True):
        settings = StageItem("avro", {}).settings(look.config.settings, is_key=is_key)
        registries = {key: value for key, value in settings.items() if any(option.matches(key) for option in OPTIONS)}
        if is_configured(registries) and registries not in asked:
            asked.append(registries)
            yield from _registry(registries)


def compiled(look: Look) -> Iterator[Check]:
    """Whether the compiled part reads and writes Avro."""
    if not any("avro" in (_names(look, side) or ()) for side in (SERIALIZE, DESERIALIZE)):
        return
    version = native.version()
    settings = StageItem("avro", {}).settings(look.config.settings, is_key=False)
    if version is not None and native.native(settings) is not None:
        # fastavro writes container files, and reads them one by one.
        where = " for batches; container files otherwise by fastavro" if FRAMING.read(settings) == CONTAINER else ""
        yield Check("avro", Level.OK, f"compiled: serde-chain-native {version}{where}")


def _registry(config: dict[str, object]) -> Iterator[Check]:
    asked = open_registry(config, is_key=False)
    try:
        asked.check()
    except SchemaRegistryError as error:
        yield Check("registry", Level.ERROR, error.message, error.hint or "Check its address and credentials")
        return
    finally:
        asked.close()
    yield Check("registry", Level.OK, "it answers")


def readers(look: Look) -> Iterator[Check]:
    """Whether the deserializers undo the configuration's serializers, and those listed in the newest records."""
    of_writer, of_reader = (_names(look, side) for side in (SERIALIZE, DESERIALIZE))
    if of_writer and of_reader and _AUTO not in of_reader:
        yield _compared("value.serializers", of_writer, of_reader, None)
    if not look.reads:
        return
    with look.reader() as reader, closing(Decoding(look.config.settings, lazy=True)) as decoding:
        for topic in look.topics:
            messages = newest_to_read(reader, topic)
            with_values = [message for message in messages if message.value() is not None]
            headers = {name: value for message in with_values for name, value in message.headers() or ()}
            listed = headers.get("serde-chain")
            named = _LISTED.fullmatch(listed or b"")
            if named is not None and of_reader and _AUTO not in of_reader:
                check = _compared("the newest record", _plain(named[1].decode().split(",")), of_reader, topic)
                yield check
                if check.level is not Level.OK:
                    continue
            yield from _read(decoding, messages, topic)


def _read(decoding: Decoding, messages: list[Any], topic: str) -> Iterator[Check]:
    partitions = len({message.partition() for message in messages})
    try:
        failures = [error for _, error in decoding.read(messages) if error is not None]
    except SerializationError as error:
        failures = [error]
    if failures:
        message = f"the newest record is unreadable: {failures[0].message} ({failures[0].stage or 'in its chain'})"
        change = failures[0].hint or "Look at it with serde-chain inspect, and make the deserializers match"
        yield Check("records", Level.ERROR, message, change, topic)
    else:
        read = f"the newest record of {number(partitions, 'partition')} is readable"
        message = read if messages else "there are no records to read"
        yield Check("records", Level.OK, message, topic=topic)


def _compared(what: str, written: list[str], read: list[str], topic: str | None) -> Check:
    if written == read[::-1]:
        return Check("deserializers", Level.OK, f"they undo what {what} has: {', '.join(written)}", topic=topic)
    return Check(
        "deserializers",
        Level.ERROR,
        f"{what} has {', '.join(written)}, and value.deserializers undo {', '.join(read[::-1])}",
        f"Set value.deserializers = {', '.join(written[::-1])}",
        topic,
    )


def _names(look: Look, side: Side) -> list[str] | None:
    """The names of a value chain's stages; None without a chain, or if a stage has no name."""
    items = look.config.of(side, is_key=False)
    names = [item.target for item in items if isinstance(item.target, str)]
    catalogue = SERIALIZERS if side is SERIALIZE else DESERIALIZERS
    short = [catalogue.aliases.get(name, name) for name in names]
    return _plain(short) if items and len(names) == len(items) and set(short) <= set(catalogue.names()) else None


def _plain(names: list[str]) -> list[str]:
    return ["compress" if name in _CODECS else name for name in names if name not in _IDLE]
