"""Plans for finding the references in records.

No reference in use may be missed. So both fields of a record are read, whichever the configuration names, and a
producer's configuration works as well as a consumer's. Placeholders are read by the first stages, without a download.
References in fields require the whole chain, which runs only for records whose header names fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serde_chain.base import Data, Deserializer, Stage, SupportsFetch, is_stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, Side, StageItem, bare_key, find_format, stage_type
from serde_chain.chain import DeserializerChain
from serde_chain.config import DESCRIBE, stage_items
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.stages.large_fields.options import FETCH as FIELDS_FETCH
from serde_chain.stages.large_fields.options import SERIALIZERS as FIELDS_SERIALIZERS
from serde_chain.stages.large_message.options import ACCEPT, FETCH, FORMAT, STORE
from serde_chain.stages.large_message.routes import routes_of
from serde_chain.wire.large_fields import HEADER

__all__ = [
    "CHAINS",
    "END",
    "FIELDS",
    "WHOLE",
    "ReferencePlan",
    "moves_fields",
    "open_readers",
    "plan_reading",
    "stages_that_read",
    "stages_that_write",
]

WHOLE: Final = "whole"
END: Final = "end"

FIELDS: Final = ((VALUE, False), (KEY, True))
CHAINS: Final = frozenset(
    f"{name}.{side.word}{plural}" for name, _ in FIELDS for side in (SERIALIZE, DESERIALIZE) for plural in ("", "s")
)


@dataclass(frozen=True)
class ReferencePlan:
    """The way to read references from records.

    Attributes:
        config: Flat configuration, whose chains end with the last stage that handles references.
        topics: The topics whose payloads matter.
        markers: Headers of which every record with a reference has at least one; None if any record may have one.
        with_stores: The fields whose chains have the stores; one if keys and values share them.
        check: The check of payloads: ``whole``, a verified download; ``end``, a read of the last byte,
            which shows whether the payload exists and its size; None for no check.
    """

    config: Mapping[str, object]
    topics: tuple[str, ...]
    markers: frozenset[str] | None
    with_stores: tuple[str, ...]
    check: str | None = None


def plan_reading(config: Mapping[str, object], topics: tuple[str, ...]) -> ReferencePlan:
    """Plan how references are read from records.

    Args:
        config: Flat configuration of a consumer or of a producer.
        topics: The topics whose payloads matter.

    Raises:
        ConfigError: The configuration is wrong, or moves no payloads.
    """
    heads = {name: stages_that_read(config, is_key=is_key) for name, is_key in FIELDS}
    moving = next((head[-1] for head in heads.values() if head), None)
    if moving is None:
        raise ConfigError(
            "no stage of the configuration follows or creates references",
            hint="Name large-message or large-fields in value.deserializers or in value.serializers",
            key="value.deserializers",
        )
    unset = {*CHAINS, DESCRIBE.name, FETCH.name, FIELDS_FETCH.name}
    if not any(_authenticates(item) for head in heads.values() for item in head):
        unset.add(FIELDS_SERIALIZERS.name)  # stored payloads are checked as they are, which requires no keys
    reduced = {key: value for key, value in config.items() if bare_key(key) not in unset}
    for name, is_key in FIELDS:
        items = _reading_placeholders(heads[name], moving, config, is_key=is_key)
        reduced[f"{name}.deserializers"] = [
            {"class": item.target, **{key: value for key, value in item.options.items() if key not in unset}}
            for item in items
        ]
    readers = open_readers(reduced)
    try:
        markers = _markers(readers)
    finally:
        for reader in readers.values():
            reader.close()
    of_value, of_key = (_store_options(heads[name], config, is_key=is_key) for name, is_key in FIELDS)
    fields = (VALUE,) if of_key is None or of_key == of_value else (KEY,) if of_value is None else (VALUE, KEY)
    return ReferencePlan(reduced, topics, markers, fields)


def _store_options(head: list[StageItem], config: Mapping[str, object], *, is_key: bool) -> dict[str, object] | None:
    """The own options of the stages that handle references, which may be stores; None if there is no such stage."""
    if not head:
        return None
    moving = (item for item in head if _is_moving(item, DESERIALIZE))
    own = {key: value for item in moving for key, value in _own(item, config, is_key=is_key).items()}
    return {key: value for key, value in own.items() if key not in {ACCEPT.name, FETCH.name}}


def _own(item: StageItem, config: Mapping[str, object], *, is_key: bool) -> dict[str, object]:
    """A stage's settings that differ from the other side's."""
    kind = stage_type(item, DESERIALIZE)
    options = kind.options_for(item.settings(config, is_key=is_key)) if is_stage(kind) else ()
    own = item.own_settings(config, is_key=is_key)
    return {key: value for key, value in own.items() if any(option.matches(key) for option in options)}


def open_readers(config: Mapping[str, object]) -> dict[str, DeserializerChain]:
    """The chains of a plan's configuration, by field; the caller closes them."""
    readers: dict[str, DeserializerChain] = {}
    try:
        for name, is_key in FIELDS:
            readers[name] = DeserializerChain.from_config(config, is_key=is_key)
    except BaseException:
        for reader in readers.values():
            reader.close()
        raise
    return readers


def _markers(readers: Mapping[str, DeserializerChain]) -> frozenset[str] | None:
    # Records with references in fields count whether or not the configuration names their stage.
    found = {HEADER}
    for reader in readers.values():
        for stage in reader.stages:
            if isinstance(stage, Stage) and stage.moves_payloads:
                names = stage.marker_headers() if isinstance(stage, SupportsFetch) else None
                if names is None:
                    return None
                found |= names
    return frozenset(found)


def stages_that_read(config: Mapping[str, object], *, is_key: bool, whole: bool = False) -> list[StageItem]:
    """The deserializers up to the last one that follows references; empty if the configuration moves no payloads.

    Args:
        config: Flat configuration of a consumer, or of a producer, whose stages are reversed.
        is_key: Whether the stages are for keys.
        whole: Return all deserializers, if one of them follows references.
    """
    reading = _up_to_payloads(stage_items(config, DESERIALIZE, is_key=is_key), DESERIALIZE, whole=whole)
    if not reading:
        writing = stages_that_write(config, is_key=is_key, whole=whole)[::-1]
        reading = [_undoing(item, config, is_key=is_key) for item in writing]
    return [_accepting(item, config, is_key=is_key) if _reads_placeholders(item) else item for item in reading]


def stages_that_write(config: Mapping[str, object], *, is_key: bool, whole: bool = False) -> list[StageItem]:
    """The serializers from the first one that creates references; empty if the configuration moves no payloads.

    Args:
        config: Flat configuration of a producer.
        is_key: Whether the stages are for keys.
        whole: Return all serializers, if one of them creates references.
    """
    return _up_to_payloads(stage_items(config, SERIALIZE, is_key=is_key)[::-1], SERIALIZE, whole=whole)[::-1]


def moves_fields(items: list[StageItem], side: Side) -> bool:
    """Whether a stage of a chain has references in fields, so that its data are objects."""
    return any(_is_moving(item, side) and _takes(item, side) is Data.OBJECT for item in items)


def _up_to_payloads(items: list[StageItem], side: Side, *, whole: bool) -> list[StageItem]:
    """The stages from the broker's side to the last one that moves payloads."""
    last = max((at for at, item in enumerate(items, 1) if _is_moving(item, side)), default=0)
    return items if whole and last else items[:last]


def _is_moving(item: StageItem, side: Side) -> bool:
    kind = stage_type(item, side)
    return is_stage(kind) and kind.moves_payloads


def _takes(item: StageItem, side: Side) -> Data | None:
    kind = stage_type(item, side)
    return kind.takes if is_stage(kind) else None


def _reads_placeholders(item: StageItem) -> bool:
    """Whether a deserializer follows references to whole values."""
    return _is_moving(item, DESERIALIZE) and _takes(item, DESERIALIZE) is not Data.OBJECT


def _authenticates(item: StageItem) -> bool:
    kind = stage_type(item, DESERIALIZE)
    return is_stage(kind) and kind.authenticates


def _undoing(item: StageItem, config: Mapping[str, object], *, is_key: bool) -> StageItem:
    """The reader's counterpart of a writer's stage, with the options that readers share."""
    if not isinstance(item.target, str):
        side = "key" if is_key else "value"
        raise ConfigError(
            f"{item.label} has no registered name by which the stage that reads its output could be found",
            hint=f"Name the reader's stages too, in {side}.deserializers",
            key=item.key,
        )
    name = SERIALIZE.catalogue.aliases.get(item.target, item.target)
    kind: Any = stage_type(StageItem(name, {}, item.key), DESERIALIZE)
    options = kind.options_for(item.settings(config, is_key=is_key)) if is_stage(kind) else ()
    own = {key: value for key, value in item.options.items() if any(option.matches(key) for option in options)}
    written = {FORMAT.name: item.options[FORMAT.name]} if FORMAT.name in item.options else {}
    return StageItem(name, {**own, **written}, item.key)


def _accepting(item: StageItem, config: Mapping[str, object], *, is_key: bool) -> StageItem:
    """The stage that follows references, for both reading and writing."""
    if item.target == "auto":
        return item
    merged = item.settings(config, is_key=is_key)
    named = ACCEPT.read(merged)
    written = [FORMAT.read(each) for each in (merged, *(route.config for route in routes_of(merged)))]
    own = {key: value for key, value in item.options.items() if key not in {FORMAT.name, FETCH.name}}
    if more := [name for name in dict.fromkeys(written) if name not in named]:
        own[ACCEPT.name] = [*named, *more]
    return StageItem(item.target, own, item.key)


def _reading_placeholders(
    head: list[StageItem], moving: StageItem, config: Mapping[str, object], *, is_key: bool
) -> list[StageItem]:
    """A field's stages, of which one reads all placeholders that are marked by headers.

    Args:
        head: The configured stages, up to the last one that follows references.
        moving: A stage of either field that follows references.
        config: Flat configuration.
        is_key: Whether the stages are for keys.
    """
    if any(_reads_placeholders(item) for item in head):
        return [_with_marked(item, config, is_key=is_key) if _reads_placeholders(item) else item for item in head]
    # Another producer may have moved whole values of this field.
    before = next((at for at, item in enumerate(head) if not _unwraps(item)), 0)
    added = _by_headers(moving, config, is_key=is_key, of_key=is_key if head else not is_key)
    return [*head[:before], added, *head[before:]]


def _unwraps(item: StageItem) -> bool:
    kind = stage_type(item, DESERIALIZE)
    if isinstance(kind, Deserializer):
        return kind.unwraps_placeholders
    return isinstance(kind, type) and issubclass(kind, Deserializer) and kind.unwraps_placeholders


def _with_marked(item: StageItem, config: Mapping[str, object], *, is_key: bool) -> StageItem:
    """The stage, reading also header-marked formats that the configuration omits."""
    if item.target == "auto":
        return item
    named = ACCEPT.read(item.settings(config, is_key=is_key))
    more = [name for name in ACCEPT.default if name not in named and _is_for(name, is_key=is_key)]
    options = {**item.options, ACCEPT.name: [*named, *more]} if more else item.options
    return StageItem(item.target, options, item.key)


def _by_headers(moving: StageItem, config: Mapping[str, object], *, is_key: bool, of_key: bool) -> StageItem:
    """The reader of header-marked placeholders, for a field without a stage for them.

    Args:
        moving: A stage that follows references.
        config: Flat configuration.
        is_key: Whether the reader is for keys.
        of_key: Whether ``moving`` is a stage of the key.
    """
    named = ACCEPT.read(moving.settings(config, is_key=is_key))
    formats = [name for name in dict.fromkeys((*named, *ACCEPT.default)) if _is_for(name, is_key=is_key)]
    given = _own(StageItem("large-message", moving.options, moving.key), config, is_key=of_key)
    stores = {key: value for key, value in given.items() if key == STORE.name or not key.startswith("large.")}
    return StageItem("large-message", {**stores, ACCEPT.name: formats})


def _is_for(name: str, *, is_key: bool) -> bool:
    reference_format = find_format(name)
    return not reference_format.in_band and not (is_key and reference_format.whole_record)
