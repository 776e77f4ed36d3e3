"""Record schemas configured for both keys and values, which is rarely intended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage, Side
from serde_chain.cli.findings import Finding, Level
from serde_chain.config import Config, Resolved, resolve
from serde_chain.record import KEY, VALUE
from serde_chain.stages.avro.schema import READER_SCHEMA, SCHEMA, SCHEMA_FILE, read_schema

__all__ = ["shared_schemas"]

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
