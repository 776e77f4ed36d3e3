"""The names of stages and reference formats, and how a configured item becomes a stage.

Third parties register a :class:`~serde_chain.base.StagePair` under the entry point group ``serde_chain.stages``, and a
:class:`~serde_chain.wire.reference_format.ReferenceFormat` under ``serde_chain.formats``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from payload_stores.plugins import Catalogue, Item, configure, declared, make
from serde_chain import bakdata_config
from serde_chain.base import Deserializer, Serializer, Stage, SupportsBuild, SupportsConfigure
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.record import KEY, VALUE, Context

if TYPE_CHECKING:
    from serde_chain.wire.reference_format import ReferenceFormat

__all__ = [
    "DESERIALIZE",
    "DESERIALIZERS",
    "FORMATS",
    "SERIALIZE",
    "SERIALIZERS",
    "Side",
    "StageItem",
    "bare_key",
    "check_side",
    "explain_placeholder",
    "find_format",
    "make_stage",
    "marker_headers",
    "stage_type",
]

GROUP: Final = "serde_chain.stages"

# Short name → module in serde_chain.stages and prefix of the class names in it.
_BUILTINS: Final = {
    "avro": ("avro.stage", "Avro"),
    "protobuf": ("protobuf.stage", "Protobuf"),
    "json": ("json.stage", "Json"),
    "bson": ("bson", "Bson"),
    "msgpack": ("msgpack", "Msgpack"),
    "arrow": ("arrow", "Arrow"),
    "npy": ("npy", "Npy"),
    "safetensors": ("safetensors", "Safetensors"),
    "string": ("primitives", "String"),
    "bytes": ("primitives", "Bytes"),
    "integer": ("primitives", "Integer"),
    "long": ("primitives", "Long"),
    "float": ("primitives", "Float"),
    "double": ("primitives", "Double"),
    "uuid": ("primitives", "Uuid"),
    "compress": ("compression.stage", "Compression"),
    "zstd": ("compression.stage", "Zstd"),
    "lz4": ("compression.stage", "Lz4"),
    "gzip": ("compression.stage", "Gzip"),
    "snappy": ("compression.stage", "Snappy"),
    "zlib": ("compression.stage", "Zlib"),
    "encrypt": ("encryption.stage", "Encryption"),
    "entry-metadata": ("entry_metadata", "EntryMetadata"),
    "large-message": ("large_message.{way}", "LargeMessage"),
    "large-fields": ("large_fields.{way}", "LargeFields"),
}
_WAYS: Final = {"Serializer": "write", "Deserializer": "read"}

# Java class names from Kafka, KIP-1159, bakdata and Confluent, without "Serializer" / "Deserializer" at the end.
_KAFKA: Final = "org.apache.kafka.common.serialization."
_JAVA_CLASSES: Final = {
    _KAFKA + "String": "string",
    _KAFKA + "ByteArray": "bytes",
    _KAFKA + "Bytes": "bytes",
    _KAFKA + "ByteBuffer": "bytes",
    _KAFKA + "Integer": "integer",
    _KAFKA + "Long": "long",
    _KAFKA + "Float": "float",
    _KAFKA + "Double": "double",
    _KAFKA + "UUID": "uuid",
    _KAFKA + "largemessage.": "large-message",
    _KAFKA + "largemessage.LargeMessage": "large-message",
    bakdata_config.CLASS: "large-message",
    "io.confluent.kafka.serializers.KafkaAvro": "avro",
    "kafka.serializers.KafkaAvro": "avro",  # the spelling in KIP-1159's example
    "io.confluent.kafka.serializers.protobuf.KafkaProtobuf": "protobuf",
    "io.confluent.kafka.serializers.json.KafkaJsonSchema": "json",
    "io.confluent.kafka.serializers.KafkaJson": "json",
}


# Of self-describing chains; one direction each.
_WRITES_CHAINS: Final = {"describe": "serde_chain.self_describing:DescribeSerializer"}
_READS_CHAINS: Final = {"auto": "serde_chain.self_describing:AutoDeserializer"}


def _catalogue(suffix: str, more: Mapping[str, str]) -> Catalogue:
    stages = {
        name: f"serde_chain.stages.{file.format(way=_WAYS[suffix])}:{cls}{suffix}"
        for name, (file, cls) in _BUILTINS.items()
    }
    return Catalogue(
        kind="stage",
        group=GROUP,
        builtins={**stages, **more},
        aliases={java + suffix: name for java, name in _JAVA_CLASSES.items()},
    )


SERIALIZERS: Final = _catalogue("Serializer", _WRITES_CHAINS)
DESERIALIZERS: Final = _catalogue("Deserializer", _READS_CHAINS)


class Side(NamedTuple):
    """One direction of a chain: its word in the configuration and its stages.

    Attributes:
        word: ``serializer`` or ``deserializer``.
        base: The stage class of this direction.
        other: The stage class of the other direction.
        catalogue: The names of this direction.
        other_catalogue: The names of the other one.
        pair_index: Position of this direction in a :class:`~serde_chain.base.StagePair`.
    """

    word: str
    base: type[Stage]
    other: type[Stage]
    catalogue: Catalogue
    other_catalogue: Catalogue
    pair_index: int


SERIALIZE: Final = Side("serializer", Serializer, Deserializer, SERIALIZERS, DESERIALIZERS, 0)
DESERIALIZE: Final = Side("deserializer", Deserializer, Serializer, DESERIALIZERS, SERIALIZERS, 1)


_PAIR: Final = "A name for both directions is that of a StagePair(serializer, deserializer)"

_SIDES: Final = (f"{KEY}.", f"{VALUE}.")
# After a side, these name its chain and are no keys of a stage.
_CHAINS: Final = frozenset(word + plural for word in (SERIALIZE.word, DESERIALIZE.word) for plural in ("", "s"))

# Mutually exclusive keys: a more specific one replaces the others.
_ALTERNATIVES: Final = (
    frozenset({"avro.schema", "avro.schema.file", "avro.type"}),
    frozenset({"json.schema", "json.schema.file", "json.type"}),
    frozenset({"protobuf.message.class", "protobuf.type", "protobuf.descriptor.set.file", "protobuf.message.name"}),
)


def bare_key(key: str) -> str:
    """A key without its side.

    Example:
        >>> bare_key("key.avro.schema"), bare_key("avro.schema"), bare_key("key.serializers")
        ('avro.schema', 'avro.schema', 'key.serializers')
    """
    rest = key.partition(".")[2] if key.startswith(_SIDES) else ""
    return rest if rest and rest not in _CHAINS else key


def _is_of_side(key: str, *, is_key: bool) -> bool:
    return key.startswith(_SIDES[0 if is_key else 1]) and bare_key(key) != key


class StageItem(Item):
    """One item of a serializer list; its target may also be a callable."""

    kind = "stage"
    example = "avro"

    def settings(self, config: Mapping[str, object], *, is_key: bool) -> dict[str, object]:
        """The stage's view of the configuration: its own options first, then keys of its side, then all others.

        Args:
            config: Flat configuration; keys of one side begin with ``key.`` or ``value.``.
            is_key: Whether the chain is for keys.

        Example:
            >>> config = {"avro.schema": "int", "key.avro.schema": "string"}
            >>> StageItem("avro", {}).settings(config, is_key=True)
            {'avro.schema': 'string'}
        """
        own = self.own_settings(config, is_key=is_key)
        replaced = {key for group in _ALTERNATIVES if not group.isdisjoint(own) for key in group}
        rest = {key: value for key, value in config.items() if not _is_of_side(key, is_key=is_key)}
        return {**{key: value for key, value in rest.items() if key not in replaced}, **own}

    def own_settings(self, config: Mapping[str, object], *, is_key: bool) -> dict[str, object]:
        """Those of :meth:`settings` that belong to the stage or its side only."""
        of_side = {bare_key(key): value for key, value in config.items() if _is_of_side(key, is_key=is_key)}
        return {**of_side, **self.options}

    @contextmanager
    def named_as_written(self, config: Mapping[str, object], *, is_key: bool) -> Iterator[None]:
        """Let errors of :meth:`settings` name the key with its side, if that key is in effect."""
        try:
            yield
        except ConfigError as error:
            written = f"{_SIDES[0 if is_key else 1]}{error.key}"
            if written in config and error.key not in self.options:
                error.key = written
            raise


def stage_type(item: StageItem, side: Side) -> object:
    """Find the target of an item, without making a stage of it.

    Args:
        item: The item.
        side: Direction of the chain.

    Returns:
        A stage class, an instance, another class, or a callable.

    Raises:
        ConfigError: It is unknown, or belongs to the other direction.
    """
    if isinstance(item.target, str) and item.target in side.other_catalogue.aliases:
        raise _wrong_side(item.label, side, key=item.key)
    try:
        target = side.catalogue.find(item.target) if isinstance(item.target, str) else item.target
    except ConfigError as error:
        error.add_context(key=item.key)
        raise
    if isinstance(target, tuple) and len(target) == 2:
        target = target[side.pair_index]
    check_side(target, item.label, side, key=item.key, hint=_PAIR if isinstance(item.target, str) else None)
    return target


def check_side(stage: object, label: str, side: Side, *, key: str | None = None, hint: str | None = None) -> None:
    """Refuse a stage of the other direction.

    Args:
        stage: A stage, its class, or a callable.
        label: Its name, for messages.
        side: Direction of the chain.
        key: The configuration key that names it.
        hint: What to do about it.

    Raises:
        ConfigError: It is of the other direction.
    """
    kind = stage if isinstance(stage, type) else type(stage)
    if issubclass(kind, side.other) and not issubclass(kind, side.base):
        raise _wrong_side(label, side, key=key, hint=hint)


def _wrong_side(label: str, side: Side, *, key: str | None = None, hint: str | None = None) -> ConfigError:
    word = side.other.__name__.lower()
    return ConfigError(f"{label} is a {word}, but a {side.word} is needed here", hint=hint, key=key)


def make_stage(item: StageItem, config: Mapping[str, object], *, is_key: bool, side: Side) -> Callable[..., Any]:
    """Make and configure one stage. Instances and functions are used unchanged.

    Args:
        item: The item of the list.
        config: The whole configuration, flat.
        is_key: Whether the chain is for keys.
        side: Direction of the chain.

    Raises:
        ConfigError: The stage is unknown, of the wrong direction, or refuses its configuration.
        MissingDependencyError: Its extra is not installed.
    """
    stage = stage_type(item, side)
    merged = item.settings(config, is_key=is_key)
    if isinstance(stage, type):
        if issubclass(stage, Stage):
            item.check(declared(stage.options_for(merged), item.label))
        # Classes without `configure` take their options as arguments, as Confluent's serializers do.
        arguments = {} if issubclass(stage, SupportsConfigure) else item.options
        hint = "Pass an instance, or a class that takes its settings in configure(config, is_key)"
        stage = make(stage, item.label, arguments, hint=hint)
        if isinstance(stage, SupportsConfigure):
            with item.named_as_written(config, is_key=is_key):
                configure(stage, item.label, merged, is_key, signature="configure(self, config, is_key)")
    elif item.options:
        raise ConfigError(f"{item.label} is an instance; options not allowed", hint="Pass its class instead")
    if not callable(stage):
        hint = "Give a name, a class, or a callable that takes (data, ctx)"
        if isinstance(stage, SupportsBuild):
            hint = f"It is a builder: give the {side.word} that it builds, builder.build({{}}, is_key)[0]"
        raise ConfigError(f"{item.label} is not a {side.word}", hint=hint)
    return stage


_ADD_STAGE: Final = (
    "Put large-message first in the deserializers, and set large.message.payload.store.class to the writer's store"
)

FORMATS: Final = Catalogue(
    kind="large-message format",
    group="serde_chain.formats",
    builtins={
        "kip1159": "serde_chain.wire.kip1159:FORMAT",
        "hop": "serde_chain.wire.hop:FORMAT",
        "bakdata-flag": "serde_chain.wire.bakdata:FLAG",
        "bakdata-headers": "serde_chain.wire.bakdata:HEADERS",
        # Read only.
        "aws-extended": "serde_chain.wire.aws_extended:FORMAT",
        "cloudevents": "serde_chain.wire.cloudevents:FORMAT",
        "eventbridge": "serde_chain.wire.eventbridge:FORMAT",
        "kafscale": "serde_chain.wire.kafscale:FORMAT",
        "ticdc": "serde_chain.wire.ticdc:FORMAT",
    },
)


def find_format(name: str) -> ReferenceFormat:
    """Find a format by its name; raises ConfigError if there is none."""
    return cast("ReferenceFormat", FORMATS.find(name))


def marker_headers(*, is_key: bool) -> frozenset[str]:
    """Headers at least one of which a record has if :func:`explain_placeholder` changes its error."""
    return frozenset(header for name in FORMATS.builtins for header in find_format(name).headers(is_key=is_key))


def explain_placeholder(error: SerializationError, ctx: Context | None) -> SerializationError:
    """Replace the error for undecodable bytes if a header marks them as a placeholder.

    Args:
        error: The error of a chain without ``large-message``.
        ctx: The record around the bytes.

    Returns:
        The same error if no header does; otherwise one that names the missing stage.
    """
    if not isinstance(error, DecodeError) or error.hint == _ADD_STAGE or ctx is None or not ctx.headers:
        return error
    marks = (find_format(name).mark(ctx, is_key=ctx.field == KEY) for name in FORMATS.builtins)
    mark = next((mark for mark in marks if mark is not None), None)
    if mark is None:
        return error
    text = (
        f"the record is a reference to a payload, as its header {mark} says, and no stage of this chain resolves it: "
        f"{error.message}"
    )
    replaced = DecodeError(text, hint=_ADD_STAGE, **error.context)
    replaced.__cause__ = error
    return replaced
