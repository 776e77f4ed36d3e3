"""Self-describing chains: a header lists the stages that were applied, so that a chain can change without a flag day.

The header ``serde-chain`` (``serde-chain-key`` for keys) has a version, a colon, and the names of the stages in the
order in which they were applied: ``1:avro,zstd,large-message``. ``serde.chain.describe = true`` writes it,
``value.deserializers = "auto"`` reads it and undoes exactly these stages, if ``serde.chain.allow`` lists them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from payload_stores.options import Option, listing
from serde_chain.base import Buffer, Data, Deserializer, Serializer, Stage, SupportsFetch, SupportsReferences
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, SERIALIZERS, ConfiguredStage, StageItem, find_format
from serde_chain.chain import DeserializerChain, close_all
from serde_chain.config import DESCRIBE, stages_of
from serde_chain.errors import ConfigError, DecodeError
from serde_chain.record import Context, get_header, remove_headers, set_header
from serde_chain.stages.large_message.options import FORMAT
from serde_chain.transfer import finish, then

if TYPE_CHECKING:
    from payload_stores.base import PayloadStore
    from serde_chain.wire.reference_format import Reference

VERSION: Final = 1
MAX_STAGES: Final = 16

ALLOW: Final[Option[tuple[str, ...]]] = Option(
    "serde.chain.allow",
    listing,
    (),
    required=True,
    doc="stages that auto reverses, by their names, in any order; once each, or as often as named",
)
DEFAULT: Final[Option[tuple[str, ...] | None]] = Option(
    "serde.chain.default",
    listing,
    None,
    doc="stages, as written, of records that list none; without it, these are refused",
)

_HEADER: Final = re.compile(rb"(\d{1,9}):(.*)", re.DOTALL)
_NAMES: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}(?:,[A-Za-z0-9._-]{1,64})*")
_REMEMBERED: Final = 128


def header_name(*, is_key: bool) -> str:
    """The header that lists a field's stages."""
    return "serde-chain-key" if is_key else "serde-chain"


def outermost_stage(ctx: Context | None, default: Sequence[str] = ()) -> str | None:
    """The last stage that was applied to a record's value, by its header.

    Args:
        ctx: The record around it.
        default: The stages of records without the header, as written.

    Returns:
        Its name; None if the header is malformed, or there is neither.

    Example:
        >>> from serde_chain import RecordContext
        >>> outermost_stage(RecordContext("events", "value", [("serde-chain", b"1:json,zstd")]))
        'zstd'
    """
    header = get_header(ctx, header_name(is_key=False))
    if header is None:
        return default[-1] if default else None
    match = _HEADER.fullmatch(header)
    known = match is not None and int(match[1]) == VERSION and _NAMES.fullmatch(match[2]) is not None
    return header.rpartition(b",")[2].rpartition(b":")[2].decode() if known else None


class DescribeSerializer(Serializer[Any]):
    """Adds the header; the data passes through.

    It comes first: the stages are known before they are applied, and ``large-message`` counts the headers that are set.
    """

    takes = None  # as the next stage
    gives = None
    options = (DESCRIBE,)
    max_overhead = 0

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """List the other stages of the chain."""
        super().configure(config, is_key)
        stages = [each for each in stages_of(config, SERIALIZE, is_key=is_key) if each.item.target != "describe"]
        names = [_name_of(stage.item) for stage in stages]
        if not 0 < len(names) <= MAX_STAGES:
            raise ConfigError(f"a chain of {len(names)} stages cannot describe itself", key=DESCRIBE.name)
        moving = [stage for stage, name in zip(stages, names, strict=True) if name == "large-message"]
        if any(find_format(FORMAT.read(stage.settings)).whole_record for stage in moving):
            raise ConfigError(
                "a placeholder in a format that stores whole records cannot describe the record's chain",
                hint=f"Switch {DESCRIBE.name} off, or choose another {FORMAT.name}",
                key=DESCRIBE.name,
            )
        first = stages[0].stage
        self.takes = self.gives = Data.OBJECT if first is None else first.takes
        self._header = header_name(is_key=is_key), f"{VERSION}:{','.join(names)}".encode()

    def __call__(self, data: Any, ctx: Context | None = None, /) -> Any:
        """Add the header."""
        if data is not None:
            set_header(ctx, *self._header)
        return data


class AutoDeserializer(Deserializer[Any]):
    """Undoes the stages that a record's header lists.

    Fails closed: an unknown version, a stage that is not allowed, an invalid order, and a missing header are errors; a
    record without the header is read with ``serde.chain.default`` if that is set. Every writer of the topic chooses
    among the allowed stages, so only a fixed list can refuse, for instance, unencrypted records.
    """

    options = (ALLOW, DEFAULT)
    moves_payloads = True

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        """Its own keys, and those of the stages that it may undo."""
        kinds = [stage.kind for stage in _allowed({ALLOW.name: (), **config}, is_key=False)]
        stages = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Stage)]
        return (*cls.options, *(option for kind in stages for option in kind.options_for(config)))

    @staticmethod
    def listed(config: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The stages of records without a header, and all that may be undone."""
        return DEFAULT.read(config) or (), tuple(_names(config))

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Make all allowed stages, so that errors in their settings are raised now."""
        super().configure(config, is_key)
        self._header = header_name(is_key=is_key)
        default = DEFAULT.read(config)
        self._default: DeserializerChain | None = None
        self._stages: dict[str, Any] = {}
        # Each decompression may cost as much as a whole record.
        self._times = Counter(ALLOW.read(config)) | Counter(default or ())
        try:
            for stage in _allowed(config, is_key=is_key):
                self._stages[stage.label] = stage.make()
            if any(isinstance(stage, Deserializer) and stage.gives_handles for stage in self._stages.values()):
                raise ConfigError("large.message.fetch = lazy is not for chains of which only records know the stages")
            if default is not None:
                self._default = self._in_order(default)
        except DecodeError as error:
            self.close()
            raise ConfigError(f"{DEFAULT.name}: {error.message}", key=DEFAULT.name) from error
        except BaseException:
            self.close()
            raise
        self._chain: Callable[[bytes], DeserializerChain] = lru_cache(_REMEMBERED)(self._parse)
        stages = (stage for stage in self._stages.values() if isinstance(stage, Deserializer))
        self.own_headers = frozenset(name for stage in stages for name in stage.own_headers)

    @property
    def timeout_ms(self) -> int:
        """Deadline of one download, in ms; 0 without a stage that fetches."""
        return max((stage.timeout_ms for stage in self._fetching), default=0)

    @property
    def worst_case_ms(self) -> int:
        """Longest duration in ms of one request, by the store's own timeouts and retries."""
        return max((stage.worst_case_ms for stage in self._fetching), default=0)

    @property
    def downloads_in_flight(self) -> int:
        """Most downloads at a time; 0 without a stage that fetches."""
        return max((stage.downloads_in_flight for stage in self._fetching), default=0)

    @property
    def downloads_bytes(self) -> int:
        """Most bytes fetched ahead."""
        return max((stage.downloads_bytes for stage in self._fetching), default=0)

    @property
    def restores_records(self) -> bool:
        """Whether a stage may restore whole records."""
        return any(stage.restores_records for stage in self._fetching)

    def marker_headers(self) -> None:
        """None: every record must be examined. One without the header is an error, or has the default stages."""
        return

    @property
    def _fetching(self) -> list[SupportsFetch]:
        return [stage for stage in self._stages.values() if isinstance(stage, SupportsFetch)]

    @property
    def stores(self) -> tuple[PayloadStore, ...]:
        """The stores of all stages. See :class:`~serde_chain.base.SupportsReferences`."""
        stages = [stage for stage in self._stages.values() if isinstance(stage, SupportsReferences)]
        return tuple(store for stage in stages for store in stage.stores)

    def references_in(self, data: Buffer, ctx: Context | None) -> tuple[Reference, ...]:
        """The references in a record. See :class:`~serde_chain.base.SupportsReferences`."""
        return self.chain_of(ctx).references_in(data, ctx)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Undo the stages of one record."""
        return None if data is None else finish(self.begin(data, ctx))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Undo the stages of one record, up to the first I/O."""

        def without_header(value: Any) -> Any:
            remove_headers(ctx, (self._header,))
            return value

        return then(self.chain_of(ctx).begin(data, ctx), without_header)

    def chain_of(self, ctx: Context | None) -> DeserializerChain:
        """The chain that undoes the stages of a record.

        Raises:
            DecodeError: The header is missing or malformed, or lists stages that are not allowed.
        """
        header = get_header(ctx, self._header)
        if header is not None:
            return self._chain(header)
        if self._default is None:
            raise DecodeError(
                f"the record has no header {self._header}, so it is not known how it was written",
                hint=f"If such records are expected, set {DEFAULT.name} to their stages",
            )
        return self._default

    def close(self) -> None:
        """Close all stages, as a chain does."""
        close_all(self._stages.values())

    def _parse(self, header: bytes) -> DeserializerChain:
        """Read the header of a record."""
        match = _HEADER.fullmatch(header)
        if match is None:
            raise DecodeError(f"the header {self._header} is {header[:50]!r} instead of a version and stages")
        if int(match[1]) != VERSION:
            raise DecodeError(
                f"the header {self._header} has the unknown version {int(match[1])}, known is {VERSION}",
                hint="Read it with a newer release of serde-chain",
            )
        if not _NAMES.fullmatch(match[2]):
            raise DecodeError(f"the header {self._header} is {header[:50]!r} instead of a version and stages")
        return self._in_order(tuple(match[2].decode().split(",")))

    def _in_order(self, names: tuple[str, ...]) -> DeserializerChain:
        """The chain that undoes stages by their names, if their order is valid."""
        if not 0 < len(names) <= MAX_STAGES:
            raise DecodeError(f"the record lists {len(names)} stages, expected 1 to {MAX_STAGES}")
        unknown = [name for name in names if name not in self._stages]
        if unknown:
            raise DecodeError(
                f"the record was written with {', '.join(unknown)}, which is not allowed here",
                hint=f"If that is expected, add it to {ALLOW.name}",
            )
        often = [name for name, times in Counter(names).items() if times > self._times[name]]
        if often:
            raise DecodeError(
                f"the record lists {', '.join(often)} more often than it is allowed here",
                hint=f"If that is expected, name it in {ALLOW.name} as many times",
            )
        undoing = names[::-1]
        try:
            return DeserializerChain(
                [self._stages[name] for name in undoing], labels=[f"auto: {name}" for name in undoing]
            )
        except ConfigError as error:
            listed = ", ".join(names)
            raise DecodeError(f"the record lists an invalid order ({listed}): {error.message}") from error


def _allowed(config: Mapping[str, object], *, is_key: bool) -> list[ConfiguredStage]:
    """The stages that a reader may undo."""
    items = [StageItem.of(name) for name in _names(config)]
    return ConfiguredStage.all_of(items, config, DESERIALIZE, is_key=is_key)


def _names(config: Mapping[str, object]) -> list[str]:
    """The names of the stages that a reader may undo."""
    names = dict.fromkeys((*ALLOW.read(config), *(DEFAULT.read(config) or ())))
    for name in ("auto", "describe"):
        if name in names:
            raise ConfigError(f"{ALLOW.name} has {name}, which is not a stage of a described chain", key=ALLOW.name)
    return list(names)


def _name_of(item: StageItem) -> str:
    """The name by which readers find a stage."""
    if isinstance(item.target, str):
        name = SERIALIZERS.aliases.get(item.target, item.target)
        if name in SERIALIZERS.names():
            return name
    raise ConfigError(
        f"{item.label} has no short name, by which a reader could find it",
        hint=f"Register it under the entry point group {SERIALIZERS.group}, or switch {DESCRIBE.name} off",
        key=DESCRIBE.name,
    )
