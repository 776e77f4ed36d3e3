"""What the configuration alone shows: ``check-config`` and the first part of ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from payload_stores.options import Option, boolean, integer
from serde_chain.catalogue import DESERIALIZE, DESERIALIZERS, SERIALIZE, SERIALIZERS, ConfiguredStage, Side, settings_of
from serde_chain.cli.findings import Finding, Level
from serde_chain.config import Config, Resolved, resolve
from serde_chain.record import KEY, VALUE
from serde_chain.stages.avro import native
from serde_chain.stages.avro.reader import CONTAINER
from serde_chain.stages.avro.schema import READER_SCHEMA, SCHEMA, SCHEMA_FILE, read_schema
from serde_chain.stages.avro.stage import FRAMING

_IDEMPOTENCE: Final = Option("enable.idempotence", boolean, False)
_TRANSACTIONAL_ID: Final = "transactional.id"
# librdkafka's default for both names.
_LONG_MS: Final = 300_000
_TIMES: Final = tuple(Option(name, integer(0), _LONG_MS) for name in ("message.timeout.ms", "delivery.timeout.ms"))
# Codecs, each of which reads the others, and stages that leave the bytes unchanged. Only zlib's own reader reads zlib.
_CODECS: Final = frozenset({"zstd", "lz4", "gzip", "snappy"})
_COMPRESS: Final = "compress"
_AUTO: Final = "auto"
_IDLE: Final = frozenset({"bytes", "describe"})
_OF_AVRO: Final = (SCHEMA.name, SCHEMA_FILE.name, READER_SCHEMA.name)
_MODELS: Final = ("avro.type", "json.type", "protobuf.type")
_NAMES: Final = (
    *_OF_AVRO,
    "protobuf.message.class",
    "protobuf.message.name",
    "json.schema",
    "json.schema.file",
    *_MODELS,
)


def offline(config: Resolved) -> Iterator[Finding]:
    """Find what needs no network, whether the configuration writes or reads.

    Args:
        config: A configuration without mistakes.
    """
    yield from shared_schemas(config)
    yield from compiled(config)
    writer = _names(config, SERIALIZE)
    if writer:
        yield from compared(config, "value.serializers", writer)


def short_delivery_times(config: Config) -> Iterator[Finding]:
    """Find a delivery timeout that is too short for an idempotent producer (librdkafka's issue 4953).

    Longer outages write other records twice.

    Args:
        config: A flat configuration without mistakes.

    Example:
        >>> [found] = short_delivery_times({"enable.idempotence": "true", "message.timeout.ms": "30000"})
        >>> found.message
        'with enable.idempotence, an outage of more than message.timeout.ms (30 s) writes acknowledged records twice'
    """
    if not _IDEMPOTENCE.read(config) or _TRANSACTIONAL_ID in config:
        return
    for option in _TIMES:
        limit_ms = option.read(config)
        if 0 < limit_ms < _LONG_MS:  # 0 is unlimited
            longer = f"an outage of more than {option.name} ({limit_ms / 1000:g} s)"
            message = f"with {_IDEMPOTENCE.name}, {longer} writes acknowledged records twice"
            change = f"Set {option.name} well above any outage ({_LONG_MS} or more), or use transactions"
            yield Finding("delivery", Level.WARNING, message, change)


def compiled(config: Resolved) -> Iterator[Finding]:
    """What reads and writes Avro."""
    if not any("avro" in (_names(config, side) or ()) for side in (SERIALIZE, DESERIALIZE)):
        return
    settings = settings_of(config.settings, is_key=False)
    if native.native(settings) is None:
        off = native.NATIVE.read(settings) == "off"
        why = f"{native.NATIVE.name} = off" if off else f"serde-chain is {native.absence()}"
        slower = "several times slower than compiled"
        message = f"by fastavro, record by record, {slower}: {why}"
        yield Finding("avro", Level.OK, message, "" if off else native.remedy())
    else:
        # fastavro writes container files, and reads them one by one.
        where = " for batches; container files otherwise by fastavro" if FRAMING.read(settings) == CONTAINER else ""
        yield Finding("avro", Level.OK, f"compiled{where}")


def compared(config: Resolved, writer: str, stages: list[str], topic: str | None = None) -> Iterator[Finding]:
    """Whether value.deserializers reverses the stages of a writer; nothing if its stages are found in each record.

    Args:
        config: The configuration.
        writer: The writer.
        stages: Its stages.
        topic: The topic concerned.
    """
    written, read = _busy(stages), _names(config, DESERIALIZE)
    if not read or _AUTO in read:
        return
    if _plain(written) == _plain(read)[::-1]:
        message = f"value.deserializers reverses {writer}: {', '.join(written)}"
        yield Finding("deserializers", Level.OK, message, topic=topic)
        return
    # The advice has the names of stages in the configuration: zstd, not compress, if the user writes so.
    words = [*read, *(_names(config, SERIALIZE) or ())]
    message = f"{writer} has {', '.join(written)}, and value.deserializers reverses {', '.join(read[::-1])}"
    change = f"Set value.deserializers = {', '.join(_in_words(written[::-1], words))}"
    yield Finding("deserializers", Level.ERROR, message, change, topic)


def _names(config: Resolved, side: Side) -> list[str] | None:
    """The names of a value chain's stages; None without a chain, or if a stage has no name."""
    items = [stage.item for stage in config.of(side, is_key=False)]
    names = [item.target for item in items if isinstance(item.target, str)]
    catalogue = SERIALIZERS if side is SERIALIZE else DESERIALIZERS
    short = [catalogue.aliases.get(name, name) for name in names]
    return _busy(short) if items and len(names) == len(items) and set(short) <= set(catalogue.names()) else None


def _busy(names: list[str]) -> list[str]:
    return [name for name in names if name not in _IDLE]


def _plain(names: list[str]) -> list[str]:
    """The names with one for all codecs."""
    return [_COMPRESS if name in _CODECS else name for name in names]


def _in_words(names: list[str], words: list[str]) -> list[str]:
    codec = next((word for word in words if word in _CODECS), _COMPRESS)
    return [codec if name == _COMPRESS else name for name in names]


def shared_schemas(config: Config | Resolved) -> Iterator[Finding]:
    """Find the keys that name one record schema for both chains.

    Args:
        config: A configuration without mistakes.

    Example:
        >>> stages = {"key.serializer": "avro", "value.serializer": "avro"}
        >>> schema = {"type": "record", "name": "R", "fields": []}
        >>> [found.change for found in shared_schemas({**stages, "avro.schema": schema})]
        ['Set key.avro.schema and value.avro.schema']
    """
    resolved = resolve(config)
    for name in _NAMES:
        sides = [side for side in (SERIALIZE, DESERIALIZE) if _is_shared(name, resolved, side)]
        if sides:
            what = " and ".join(f"{side.word}s" for side in sides)
            message = f"{name} names one record schema for the {what} of keys and of values"
            yield Finding("schemas", Level.WARNING, message, f"Set {KEY}.{name} and {VALUE}.{name}")


def _is_shared(name: str, config: Resolved, side: Side) -> bool:
    if not config.settings.get(name) or any(f"{field}.{name}" in config.settings for field in (KEY, VALUE)):
        return False
    users = [_user(name, config, side, is_key=is_key) for is_key in (True, False)]
    return None not in users and len({stage.kind for stage in users if stage is not None}) == 1


def _user(name: str, config: Resolved, side: Side, *, is_key: bool) -> ConfiguredStage | None:
    """The stage of a chain that uses the schema of the common key."""
    for stage in config.of(side, is_key=is_key):
        if name not in stage.item.options and any(option.name == name for option in stage.options):
            return stage if name not in _OF_AVRO or _is_record(name, stage.settings) else None
    return None


def _is_record(name: str, settings: Config) -> bool:
    schema = read_schema(settings, READER_SCHEMA if name == READER_SCHEMA.name else SCHEMA)
    return schema is not None and isinstance(schema.parsed, dict) and schema.parsed["type"] == "record"
