"""The keys of ``large-fields``. Stores, ids, routes, limits and deadlines are those of ``large-message``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from payload_stores.options import Option, choice, integer, listing
from payload_stores.plugins import declared
from serde_chain.base import Data, Stage, is_stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, Side, StageItem, make_stage, stage_type
from serde_chain.chain import DeserializerChain, SerializerChain, close_all
from serde_chain.errors import ConfigError
from serde_chain.stages.large_fields.paths import Pattern

ChainT = TypeVar("ChainT", SerializerChain, DeserializerChain)

STAGE: Final = "large-fields"


def _patterns(value: object) -> tuple[Pattern, ...]:
    patterns = tuple(Pattern(one) for one in listing(value))
    if not patterns:
        raise ValueError("expected names of fields")
    return patterns


PATHS: Final[Option[tuple[Pattern, ...] | None]] = Option(
    "large.fields.paths",
    _patterns,
    None,
    doc="fields to move to the store: names or globs; records in records as a.b, items of arrays as a[]",
)
MIN_BYTES: Final = Option("large.fields.min.bytes", integer(1), 8192, doc="smallest field that is moved, in bytes")
LAZY: Final = "lazy"
FETCH: Final = Option(
    "large.fields.fetch",
    choice("eager", LAZY),
    "eager",
    doc="lazy: moved fields are handles (serde_chain.PayloadHandle) that fetch their payloads on request",
)


def _items(value: object) -> tuple[Any, ...]:
    return listing(value) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else (value,)


SERIALIZERS: Final[Option[tuple[Any, ...]]] = Option(
    "large.fields.serializers",
    _items,
    (),
    doc="stages for the payloads of fields, such as zstd, encrypt; the same list for readers, who undo it",
)

OF_WRITERS: Final[tuple[Option[Any], ...]] = (PATHS, MIN_BYTES, SERIALIZERS)
# Readers need no paths: the header names the fields. One configuration serves both sides.
OF_READERS: Final[tuple[Option[Any], ...]] = (PATHS, MIN_BYTES, SERIALIZERS, FETCH)

# The reference is in the field, and the header is this stage's own.
_FORMAT_KEYS: Final = ("format", "compression")
_LARGE_MESSAGE: Final = "large.message."


def settings_of_stores(config: Mapping[str, object]) -> dict[str, object]:
    """The configuration for the stage that moves the payloads: without formats of whole records' references."""
    return {
        key: value
        for key, value in config.items()
        if not (key.startswith(_LARGE_MESSAGE) and key.rpartition(".")[2] in _FORMAT_KEYS)
    }


def options_of(own: Iterable[Option[Any]], config: Mapping[str, object], side: Side) -> tuple[Option[Any], ...]:
    """The options of the stage, of its stores, and of the stages for payloads."""
    options = list(own)
    for item in (StageItem.of("large-message"), *_stage_items(config, side)):
        kind = stage_type(item, side)
        if isinstance(kind, type) and issubclass(kind, Stage):
            options += declared(kind.options_for(item.settings(config, is_key=False)), item.label)
    return tuple(dict.fromkeys(options))


def open_mover(config: Mapping[str, object], side: Side) -> Any:
    """Make the stage that moves the payloads: ``large-message``, which knows ids, routes and stores."""
    return make_stage(StageItem.of("large-message"), settings_of_stores(config), is_key=False, side=side)


def in_flight(config: Mapping[str, object], side: Side) -> int:
    """Most uploads or downloads of fields at a time, as the key of ``large-message`` says."""
    name = f"{_LARGE_MESSAGE}{'uploads' if side is SERIALIZE else 'downloads'}.in.flight"
    kind: Any = stage_type(StageItem.of("large-message"), side)
    (option,) = (option for option in kind.options if option.name == name)
    most: int = option.read(config)
    return most


def open_payload_chain(config: Mapping[str, object], kind: type[ChainT]) -> ChainT | None:
    """The chain for the payloads of fields; None if there is none.

    Raises:
        ConfigError: A stage is unknown, or is not from bytes to bytes.
    """
    items = _stage_items(config, kind.side)
    if kind is DeserializerChain:
        items.reverse()
    stages: list[Callable[..., Any]] = []
    try:
        stages += (make_stage(item, config, is_key=False, side=kind.side) for item in items)
        return kind(stages, labels=[f"{SERIALIZERS.name}: {item.label}" for item in items]) if stages else None
    except BaseException:
        close_all(stages)
        raise


def authenticates(chain: SerializerChain | DeserializerChain | None) -> bool:
    """Whether a chain for payloads has a stage that requires a key."""
    stages = () if chain is None else chain.stages
    return any(isinstance(stage, Stage) and stage.authenticates for stage in stages)


def refuse_keys(*, is_key: bool) -> None:
    """Refuse chains of keys.

    Raises:
        ConfigError: The chain is for keys.
    """
    if is_key:
        raise ConfigError(
            f"{STAGE} is not for keys: partitioning and compaction compare a key's bytes",
            hint="Move fields of the value",
        )


def _stage_items(config: Mapping[str, object], side: Side) -> list[StageItem]:
    """The stages for payloads, which are from bytes to bytes."""
    items = [StageItem.of(item, SERIALIZERS.name) for item in SERIALIZERS.read(config)]
    for at, item in enumerate(items):
        kind = stage_type(item, side)
        if side is DESERIALIZE and item.options:
            # One list serves both sides, so an item may have options of the serializer alone.
            of_writer, of_reader = (_options(stage_type(item, each)) for each in (SERIALIZE, DESERIALIZE))
            kept = {
                key: value
                for key, value in item.options.items()
                if any(option.matches(key) for option in of_reader)
                or not any(option.matches(key) for option in of_writer)
            }
            items[at] = StageItem(item.target, kept, item.key)
        if is_stage(kind) and (kind.takes is not Data.BYTES or kind.gives is not Data.BYTES or kind.moves_payloads):
            raise ConfigError(
                f"{item.label} is not for the payloads of fields: they are bytes, and stay in the store as bytes",
                hint="Name stages from bytes to bytes, such as zstd or encrypt",
                key=SERIALIZERS.name,
            )
    return items


def _options(kind: object) -> tuple[Option[Any], ...]:
    return kind.options if is_stage(kind) else ()
