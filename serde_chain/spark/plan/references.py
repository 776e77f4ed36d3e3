"""Plans for finding the references in records: by the first stages of their chains, without a download.

No reference in use may be missed. So both fields of a record are read, whichever the configuration names, and a
producer's configuration works as well as a consumer's.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from serde_chain.base import SupportsFetch, is_stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, Side, StageItem, bare_key, find_format, stage_type
from serde_chain.chain import DeserializerChain
from serde_chain.config import DESCRIBE, stage_items
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.plan.stages import moves_whole_payloads
from serde_chain.stages.large_message.options import ACCEPT, FETCH, FORMAT, STORE
from serde_chain.stages.large_message.routes import routes_of

__all__ = [
    "CHAINS",
    "END",
    "FIELDS",
    "WHOLE",
    "ReferencePlan",
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
_COLUMNS: Final = ("value", "headers", "topic", "partition", "offset", "key")


@dataclass(frozen=True)
class ReferencePlan:
    """The instructions for the workers.

    Attributes:
        config: Flat configuration, whose chains end with the stage that handles references.
        topics: The topics whose payloads matter.
        markers: Headers of which every record with a placeholder has at least one; None if any record may be one.
        with_stores: The fields whose chains have the stores; one if keys and values share them.
        check: The check of payloads: ``whole``, a verified download; ``end``, a read of the last byte,
            which shows whether the payload exists and its size; None for no check.
        columns: As in :class:`~serde_chain.spark.plan.reading.ReadPlan`.
        python: The driver's interpreter, for messages.
    """

    config: Mapping[str, object]
    topics: tuple[str, ...]
    markers: frozenset[str] | None
    with_stores: tuple[str, ...]
    check: str | None = None
    columns: tuple[str, ...] = _COLUMNS
    python: str = field(default_factory=lambda: sys.executable)


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
            hint="Name large-message in value.deserializers or in value.serializers",
            key="value.deserializers",
        )
    unset = {*CHAINS, DESCRIBE.name, FETCH.name}
    reduced = {key: value for key, value in config.items() if bare_key(key) not in unset}
    for name, is_key in FIELDS:
        items = _with_marked(heads[name], config, is_key=is_key) or [_by_headers(moving, config, is_key=is_key)]
        reduced[f"{name}.deserializers"] = [{"class": item.target, **item.options} for item in items]
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
    """The own options of the stage that handles references, which may be stores; None if there is no such stage."""
    if not head:
        return None
    own = _own(head[-1], config, is_key=is_key)
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
    marks: list[frozenset[str] | None] = [
        reader.stages[-1].marker_headers() if isinstance(reader.stages[-1], SupportsFetch) else None
        for reader in readers.values()
    ]
    return None if None in marks else frozenset().union(*(mark for mark in marks if mark is not None))


def stages_that_read(config: Mapping[str, object], *, is_key: bool) -> list[StageItem]:
    """The deserializers up to the one that follows references; empty if the configuration moves no payloads.

    Args:
        config: Flat configuration of a consumer, or of a producer, whose stages are reversed.
        is_key: Whether the stages are for keys.
    """
    reading = _up_to_payloads(stage_items(config, DESERIALIZE, is_key=is_key), DESERIALIZE)
    if reading:
        return [*reading[:-1], _accepting(reading[-1], config, is_key=is_key)]
    writing = stages_that_write(config, is_key=is_key)[::-1]
    undoing = [_undoing(item, config, is_key=is_key) for item in writing]
    return [*undoing[:-1], _accepting(undoing[-1], config, is_key=is_key)] if undoing else []


def stages_that_write(config: Mapping[str, object], *, is_key: bool) -> list[StageItem]:
    """The serializers from the one that creates references; empty if the configuration moves no payloads.

    Args:
        config: Flat configuration of a producer.
        is_key: Whether the stages are for keys.
    """
    return _up_to_payloads(stage_items(config, SERIALIZE, is_key=is_key)[::-1], SERIALIZE)[::-1]


def _up_to_payloads(items: list[StageItem], side: Side) -> list[StageItem]:
    for at, item in enumerate(items, 1):
        kind = stage_type(item, side)
        if moves_whole_payloads(kind):
            return items[:at]
    return []


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


def _with_marked(head: list[StageItem], config: Mapping[str, object], *, is_key: bool) -> list[StageItem]:
    """The same stages; the last one also reads header-marked formats that the configuration omits."""
    if not head or head[-1].target == "auto":
        return head
    *before, last = head
    named = ACCEPT.read(last.settings(config, is_key=is_key))
    more = [name for name in ACCEPT.default if name not in named and _is_for(name, is_key=is_key)]
    options = {**last.options, ACCEPT.name: [*named, *more]} if more else last.options
    return [*before, StageItem(last.target, options, last.key)]


def _by_headers(moving: StageItem, config: Mapping[str, object], *, is_key: bool) -> StageItem:
    """The reader of header-marked placeholders, for a field without configured stages."""
    named = ACCEPT.read(moving.settings(config, is_key=is_key))
    formats = [name for name in dict.fromkeys((*named, *ACCEPT.default)) if _is_for(name, is_key=is_key)]
    given = _own(moving, config, is_key=not is_key)
    stores = {key: value for key, value in given.items() if key == STORE.name or not key.startswith("large.")}
    return StageItem("large-message", {**stores, ACCEPT.name: formats})


def _is_for(name: str, *, is_key: bool) -> bool:
    reference_format = find_format(name)
    return not reference_format.in_band and not (is_key and reference_format.whole_record)
