"""The names of stages and reference formats, and how a configured item becomes a stage.

Third parties register a :class:`~serde_chain.base.StagePair` under the entry point group ``serde_chain.stages``, and a
:class:`~serde_chain.wire.reference_format.ReferenceFormat` under ``serde_chain.formats``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from payload_stores.plugins import Catalogue, PluginName, configure, declared, make
from serde_chain import bakdata_config, base
from serde_chain.base import Deserializer, Serializer, Stage
from serde_chain.base.kinds import is_stage
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.record import KEY, VALUE, Context

if TYPE_CHECKING:
    from payload_stores.options import Option
    from serde_chain.wire.reference_format import ReferenceFormat

T = TypeVar("T")

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


class Side:
    """One direction of a chain: its word in the configuration and its stages.

    Attributes:
        word: ``serializer`` or ``deserializer``.
        base: The stage class of this direction.
        other: The stage class of the other direction.
        catalogue: The names of this direction.
        other_catalogue: The names of the other one.
        pair_index: Position of this direction in a :class:`~serde_chain.base.StagePair`.
    """

    def __init__(
        self,
        word: str,
        kinds: tuple[type[Stage], type[Stage]],
        catalogues: tuple[Catalogue, Catalogue],
        pair_index: int,
    ) -> None:
        self.word, self.pair_index = word, pair_index
        self.base, self.other = kinds
        self.catalogue, self.other_catalogue = catalogues


SERIALIZE: Final = Side("serializer", (Serializer, Deserializer), (SERIALIZERS, DESERIALIZERS), 0)
DESERIALIZE: Final = Side("deserializer", (Deserializer, Serializer), (DESERIALIZERS, SERIALIZERS), 1)


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


def settings_of(config: Mapping[str, object], *, is_key: bool) -> dict[str, object]:
    """The settings in effect for keys or for values: those of their side, then all others.

    Args:
        config: Flat configuration; keys of one side begin with ``key.`` or ``value.``.
        is_key: Whether they are those for keys.

    Example:
        >>> settings_of({"avro.schema": "int", "key.avro.schema": "string"}, is_key=True)
        {'avro.schema': 'string'}
    """
    of_side, others = _divided(config, is_key=is_key)
    return _laid_over(others, of_side)


def _divided(config: Mapping[str, object], *, is_key: bool) -> tuple[dict[str, object], dict[str, object]]:
    """The settings of one side, by keys without it, and all others."""
    of_side: dict[str, object] = {}
    others: dict[str, object] = {}
    for key, value in config.items():
        bare = bare_key(key) if key.startswith(_SIDES[0 if is_key else 1]) else key
        (others if bare == key else of_side)[bare] = value
    return of_side, others


def _laid_over(others: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    replaced = {key for group in _ALTERNATIVES if not group.isdisjoint(own) for key in group}
    return {**{key: value for key, value in others.items() if key not in replaced}, **own}


class StageItem(PluginName):
    """One item of a serializer list; its target may also be a callable."""

    kind = "stage"
    example = "avro"


class ConfiguredStage:
    """A stage of a chain with its part of the configuration. Each part is determined once, when it is first needed.

    Attributes:
        item: The item of the list that names it.
        side: Direction of the chain.
        is_key: Whether the chain is for keys.

    Example:
        >>> config = {"avro.schema": "int", "key.avro.schema": "string"}
        >>> ConfiguredStage.of(StageItem("avro", {}), config, SERIALIZE, is_key=True).settings
        {'avro.schema': 'string'}
    """

    def __init__(
        self,
        item: StageItem,
        side: Side,
        *,
        is_key: bool,
        of_side: Mapping[str, object],
        others: Mapping[str, object],
    ) -> None:
        self.item, self.side, self.is_key = item, side, is_key
        self._of_side, self._others = of_side, others

    @classmethod
    def of(cls, item: StageItem, config: Mapping[str, object], side: Side, *, is_key: bool) -> Self:
        """Read one stage; see :meth:`all_of`."""
        (stage,) = cls.all_of([item], config, side, is_key=is_key)
        return stage

    @classmethod
    def all_of(
        cls, items: Iterable[StageItem], config: Mapping[str, object], side: Side, *, is_key: bool
    ) -> list[Self]:
        """Read the stages of one chain.

        Args:
            items: The items of its list.
            config: Flat configuration; keys of one side begin with ``key.`` or ``value.``.
            side: Direction of the chain.
            is_key: Whether the chain is for keys.
        """
        of_side, others = _divided(config, is_key=is_key)
        return [cls(item, side, is_key=is_key, of_side=of_side, others=others) for item in items]

    @property
    def label(self) -> str:
        """The name of the stage, for messages."""
        return self.item.label

    @cached_property
    def kind(self) -> Any:
        """The target of the item: a stage class, an instance, another class, or a callable.

        Raises:
            ConfigError: It is unknown, or belongs to the other direction.
        """
        item, side = self.item, self.side
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

    @property
    def stage(self) -> Stage | type[Stage] | None:
        """The target, if it is a stage or a class of stages, which declare what they do; None for other callables."""
        return self.kind if is_stage(self.kind) else None

    @cached_property
    def own_settings(self) -> Mapping[str, object]:
        """Those of :attr:`settings` that belong to the stage or its side only."""
        return {**self._of_side, **self.item.options}

    @cached_property
    def settings(self) -> Mapping[str, object]:
        """Its view of the configuration: its own options first, then keys of its side, then all others."""
        return _laid_over(self._others, self.own_settings)

    @cached_property
    def options(self) -> tuple[Option[Any], ...]:
        """The options of the stage and its stores; none of instances and of other classes.

        Raises:
            ConfigError: The stage or a store is unknown, or declares no tuple of options.
        """
        kind = self.kind
        if isinstance(kind, type) and issubclass(kind, Stage):
            return declared(kind.options_for(dict(self.settings)), self.label)
        return ()

    def with_defaults(self, defaults: Mapping[str, object]) -> Self:
        """The stage with settings for absent keys.

        Args:
            defaults: The settings.
        """
        changed = self._with(others={**defaults, **self._others})
        # Defaults change neither. Another thread may determine them meanwhile.
        vars(changed).update({name: vars(self)[name] for name in ("kind", "options") if name in vars(self)})
        return changed

    def with_own(self, options: Mapping[str, object]) -> Self:
        """The stage with other options of its own.

        Args:
            options: What its item has beside the name.
        """
        return self._with(item=StageItem(self.item.target, options, self.item.key))

    def in_direction(self, side: Side, item: StageItem | None = None) -> Self:
        """The stage of another direction with the same settings.

        Args:
            side: The direction.
            item: Its item, if another one names it there.
        """
        return self._with(side=side, item=item or self.item)

    def _with(self, **changes: Any) -> Self:
        parts = {"item": self.item, "side": self.side, "of_side": self._of_side, "others": self._others}
        return type(self)(is_key=self.is_key, **{**parts, **changes})

    def read(self, option: Option[T]) -> T:
        """Read an option from the stage's settings.

        Raises:
            ConfigError: The value does not parse, or a required key is missing. The error names the key with its side,
                if that is in effect.
        """
        with self.named_as_written():
            return option.read(self.settings)

    @contextmanager
    def named_as_written(self) -> Iterator[None]:
        """Let errors of :attr:`settings` name the key with its side, if that key is in effect."""
        try:
            yield
        except ConfigError as error:
            if error.key in self._of_side and error.key not in self.item.options:
                error.key = f"{_SIDES[0 if self.is_key else 1]}{error.key}"
            raise

    def make(self) -> Callable[..., Any]:
        """Make and configure the stage. Instances and functions are used unchanged.

        Raises:
            ConfigError: The stage is unknown, of the wrong direction, or refuses its configuration.
            MissingDependencyError: Its extra is not installed.
        """
        item, stage = self.item, self.kind
        if isinstance(stage, type):
            if issubclass(stage, Stage):
                item.check(self.options)
            # Classes without `configure` take their options as arguments, as Confluent's serializers do.
            arguments = {} if issubclass(stage, base.SupportsConfigure) else item.options
            hint = "Pass an instance, or a class that takes its settings in configure(config, is_key)"
            stage = make(stage, item.label, arguments, hint=hint)
            if isinstance(stage, base.SupportsConfigure):
                own = dict(self.settings)  # which a stage may change
                with self.named_as_written():
                    configure(stage, item.label, own, self.is_key, signature="configure(self, config, is_key)")
        elif item.options:
            raise ConfigError(f"{item.label} is an instance; options not allowed", hint="Pass its class instead")
        if not callable(stage):
            hint = "Give a name, a class, or a callable that takes (data, ctx)"
            if isinstance(stage, base.SupportsBuild):
                hint = f"It is a builder: give the {self.side.word} that it builds, builder.build({{}}, is_key)[0]"
            raise ConfigError(f"{item.label} is not a {self.side.word}", hint=hint)
        return cast("Callable[..., Any]", stage)


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
