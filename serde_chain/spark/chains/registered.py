"""Types from the registry: the driver takes the topics' newest schema before the first record.

For Protobuf without a message class, workers get its descriptor as ``protobuf.descriptor.set.file``; for Avro with
``use.latest.version``, its text as ``avro.reader.schema``. So the column's type is known, and all records are read
into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.catalogue import DESERIALIZE
from serde_chain.config import stages_of
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.schemas.registry import SchemaRegistry
from serde_chain.schemas.schema_registry import is_configured, named_framing, open_registry
from serde_chain.stages.avro.schema import READER_SCHEMA, read_schema
from serde_chain.stages.avro.stage import FRAMING as AVRO_FRAMING
from serde_chain.stages.avro.stage import AvroDeserializer, parse_registered, record_name
from serde_chain.stages.protobuf import schema as protobuf_schema
from serde_chain.stages.protobuf.schema import DESCRIPTOR_SET, MESSAGE_NAME
from serde_chain.stages.protobuf.stage import FRAMING, ProtobufDeserializer


def with_registered(settings: Mapping[str, object], topics: Sequence[str]) -> dict[str, object]:
    """A configuration with the messages and schemas that the registry describes.

    Args:
        settings: The configuration, with the contents of files.
        topics: The topics, whose subjects have the schemas.

    Returns:
        The settings; unchanged without topics or a registry, and with a configured message or schema to read into.

    Raises:
        ConfigError: The schema contains several messages and none is named, or not the named one.
        SchemaRegistryError: The registry is down, refuses the request, or does not know the topics' schemas.
    """
    changed = dict(settings)
    for is_key in (False, True):
        for stage in stages_of(settings, DESERIALIZE, is_key=is_key) if topics else ():
            describe = next((describe for kind, describe in _DESCRIBE if stage.kind is kind), None)
            if describe is not None and not stage.item.options:
                side = KEY if is_key else VALUE
                described = describe(stage.settings, topics, is_key)
                changed |= {f"{side}.{name}": value for name, value in described.items()}
    return changed


def _latest_schema(config: Mapping[str, object], topics: Sequence[str], is_key: bool) -> dict[str, object]:
    _, framing = named_framing(AVRO_FRAMING, config, is_key=is_key)
    if framing is None or not is_configured(config) or READER_SCHEMA.read(config) is not None:
        return {}
    registry = open_registry(config, is_key=is_key)
    try:
        if not registry.reads_latest:
            return {}
        own = read_schema(config)
        latest = [registry.latest(subject, "AVRO") for subject in registry.subjects(topics, record_name(own))]
    finally:
        registry.close()
    newest = max(latest, key=lambda registered: registered.order or 0)
    return {READER_SCHEMA.name: parse_registered(newest).text_as_ones_own}


def _described(config: Mapping[str, object], topics: Sequence[str], is_key: bool) -> dict[str, object]:
    _, framing = named_framing(FRAMING, config, is_key=is_key)
    if framing is None or not is_configured(config) or protobuf_schema.message_class(config) is not None:
        return {}
    registry, name = open_registry(config, is_key=is_key), MESSAGE_NAME.read(config)
    try:
        files = _newest(registry, registry.subjects(topics, name or ""))
    finally:
        registry.close()
    messages = protobuf_schema.top_level_names(files)
    if name is None:
        if len(messages) != 1:
            raise ConfigError(
                f"the registered file of {', '.join(topics)} has {len(messages)} messages",
                hint=f"Set {MESSAGE_NAME.name} to one of {', '.join(messages[:10])}",
                key=MESSAGE_NAME.name,
            )
        (name,) = messages
    descriptors: Any = require("google.protobuf.descriptor_pb2", "protobuf")
    return {DESCRIPTOR_SET.name: descriptors.FileDescriptorSet(file=files).SerializeToString(), MESSAGE_NAME.name: name}


def _newest(registry: SchemaRegistry, subjects: Sequence[str]) -> list[Any]:
    """The files of the newest schema: its imports, and last its own."""
    latest = [registry.latest(subject, "PROTOBUF") for subject in subjects]
    return protobuf_schema.files_of(max(latest, key=lambda registered: registered.order or 0))


_DESCRIBE: Final[tuple[tuple[type, Callable[[Mapping[str, object], Sequence[str], bool], dict[str, object]]], ...]] = (
    (AvroDeserializer, _latest_schema),
    (ProtobufDeserializer, _described),
)
