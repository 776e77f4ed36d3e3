"""Plans for finding the references in records.

No reference in use may be missed. So both fields of a record are read, whichever the configuration names, and a
producer's configuration works as well as a consumer's. Placeholders are read by the first stages, without a download.
References in fields require the whole chain, which runs only for records whose header names fields.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from serde_chain.base import Deserializer, Stage, SupportsFetch, kinds
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage, StageItem, bare_key, find_format
from serde_chain.chain import DeserializerChain
from serde_chain.config import DESCRIBE, stages_of
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.stages.large_fields.options import FETCH as FIELDS_FETCH
from serde_chain.stages.large_fields.options import SERIALIZERS as FIELDS_SERIALIZERS
from serde_chain.stages.large_message.options import ACCEPT, FETCH, FORMAT, STORE
from serde_chain.stages.large_message.routes import routes_of
from serde_chain.wire.large_fields import HEADER

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
    if not any(_authenticates(stage) for head in heads.values() for stage in head):
        unset.add(FIELDS_SERIALIZERS.name)  # stored payloads are checked as they are, which requires no keys
    reduced = {key: value for key, value in config.items() if bare_key(key) not in unset}
    for name, is_key in FIELDS:
        stages = _reading_placeholders(heads[name], moving, config, is_key=is_key)
        reduced[f"{name}.deserializers"] = [as_written(stage, without=unset) for stage in stages]
    readers = open_readers(reduced)
    try:
        markers = _markers(readers)
    finally:
        for reader in readers.values():
            reader.close()
    of_value, of_key = (_store_options(heads[name]) for name, _ in FIELDS)
    fields = (VALUE,) if of_key is None or of_key == of_value else (KEY,) if of_value is None else (VALUE, KEY)
    return ReferencePlan(reduced, topics, markers, fields)


def as_written(stage: ConfiguredStage, *, without: Container[str] = ()) -> dict[str, object]:
    """The stage as an item of a list.

    Args:
        stage: The stage.
        without: Options to leave out.
    """
    options = {key: value for key, value in stage.item.options.items() if key not in without}
    return {"class": stage.item.target, **options}


def _store_options(head: list[ConfiguredStage]) -> dict[str, object] | None:
    """The own options of the stages that handle references, which may be stores; None if there is no such stage."""
    if not head:
        return None
    own = {key: value for stage in head if _is_moving(stage) for key, value in _own(stage).items()}
    return {key: value for key, value in own.items() if key not in {ACCEPT.name, FETCH.name}}


def _own(stage: ConfiguredStage) -> dict[str, object]:
    """A stage's settings that differ from the other side's."""
    return _known(stage, stage.own_settings)


def _known(stage: ConfiguredStage, settings: Mapping[str, object]) -> dict[str, object]:
    """Those settings whose keys a stage declares, an instance too."""
    options = () if stage.stage is None else stage.stage.options_for(dict(stage.settings))
    return {key: value for key, value in settings.items() if any(option.matches(key) for option in options)}


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


def stages_that_read(config: Mapping[str, object], *, is_key: bool, whole: bool = False) -> list[ConfiguredStage]:
    """The deserializers up to the last one that follows references; empty if the configuration moves no payloads.

    Args:
        config: Flat configuration of a consumer, or of a producer, whose stages are reversed.
        is_key: Whether the stages are for keys.
        whole: Return all deserializers, if one of them follows references.
    """
    reading = _up_to_payloads(stages_of(config, DESERIALIZE, is_key=is_key), whole=whole)
    if not reading:
        reading = [_undoing(stage) for stage in reversed(stages_that_write(config, is_key=is_key, whole=whole))]
    return [_accepting(stage) if _reads_placeholders(stage) else stage for stage in reading]


def stages_that_write(config: Mapping[str, object], *, is_key: bool, whole: bool = False) -> list[ConfiguredStage]:
    """The serializers from the first one that creates references; empty if the configuration moves no payloads.

    Args:
        config: Flat configuration of a producer.
        is_key: Whether the stages are for keys.
        whole: Return all serializers, if one of them creates references.
    """
    return _up_to_payloads(stages_of(config, SERIALIZE, is_key=is_key)[::-1], whole=whole)[::-1]


def moves_fields(stages: list[ConfiguredStage]) -> bool:
    """Whether a stage of a chain has references in fields, so that its data are objects."""
    return any(kinds.moves_fields(stage.kind) for stage in stages)


def _up_to_payloads(stages: list[ConfiguredStage], *, whole: bool) -> list[ConfiguredStage]:
    """The stages from the broker's side to the last one that moves payloads."""
    last = max((at for at, stage in enumerate(stages, 1) if _is_moving(stage)), default=0)
    return stages if whole and last else stages[:last]


def _is_moving(stage: ConfiguredStage) -> bool:
    return stage.stage is not None and stage.stage.moves_payloads


def _reads_placeholders(stage: ConfiguredStage) -> bool:
    """Whether a deserializer follows references to whole values."""
    return kinds.moves_whole_payloads(stage.kind)


def _authenticates(stage: ConfiguredStage) -> bool:
    return stage.stage is not None and stage.stage.authenticates


def _undoing(writing: ConfiguredStage) -> ConfiguredStage:
    """The reader's counterpart of a writer's stage, with the options that readers share."""
    item = writing.item
    if not isinstance(item.target, str):
        side = KEY if writing.is_key else VALUE
        raise ConfigError(
            f"{item.label} has no registered name by which the stage that reads its output could be found",
            hint=f"Name the reader's stages too, in {side}.deserializers",
            key=item.key,
        )
    name = SERIALIZE.catalogue.aliases.get(item.target, item.target)
    reading = writing.in_direction(DESERIALIZE, StageItem(name, item.options, item.key))
    written = {FORMAT.name: item.options[FORMAT.name]} if FORMAT.name in item.options else {}
    return reading.with_own({**_known(reading, item.options), **written})


def _accepting(stage: ConfiguredStage) -> ConfiguredStage:
    """The stage that follows references, for both reading and writing."""
    if stage.item.target == "auto":
        return stage
    named = ACCEPT.read(stage.settings)
    routes = (route.config for route in routes_of(stage.settings))
    written = [FORMAT.read(each) for each in (stage.settings, *routes)]
    own = {key: value for key, value in stage.item.options.items() if key not in {FORMAT.name, FETCH.name}}
    if more := [name for name in dict.fromkeys(written) if name not in named]:
        own[ACCEPT.name] = [*named, *more]
    return stage.with_own(own)


def _reading_placeholders(
    head: list[ConfiguredStage], moving: ConfiguredStage, config: Mapping[str, object], *, is_key: bool
) -> list[ConfiguredStage]:
    """A field's stages, of which one reads all placeholders that are marked by headers.

    Args:
        head: The configured stages, up to the last one that follows references.
        moving: A stage of either field that follows references.
        config: Flat configuration.
        is_key: Whether the stages are for keys.
    """
    if any(_reads_placeholders(stage) for stage in head):
        return [_with_marked(stage) if _reads_placeholders(stage) else stage for stage in head]
    # Another producer may have moved whole values of this field.
    before = next((at for at, stage in enumerate(head) if not _unwraps(stage)), 0)
    added = _by_headers(moving, config, is_key=is_key, of_key=is_key if head else not is_key)
    return [*head[:before], added, *head[before:]]


def _unwraps(stage: ConfiguredStage) -> bool:
    kind = stage.kind
    if isinstance(kind, Deserializer):
        return kind.unwraps_placeholders
    return isinstance(kind, type) and issubclass(kind, Deserializer) and kind.unwraps_placeholders


def _with_marked(stage: ConfiguredStage) -> ConfiguredStage:
    """The stage, reading also header-marked formats that the configuration omits."""
    if stage.item.target == "auto":
        return stage
    named = ACCEPT.read(stage.settings)
    more = [name for name in ACCEPT.default if name not in named and _is_for(name, is_key=stage.is_key)]
    return stage.with_own({**stage.item.options, ACCEPT.name: [*named, *more]}) if more else stage


def _by_headers(
    moving: ConfiguredStage, config: Mapping[str, object], *, is_key: bool, of_key: bool
) -> ConfiguredStage:
    """The reader of header-marked placeholders, for a field without a stage for them.

    Args:
        moving: A stage that follows references.
        config: Flat configuration.
        is_key: Whether the reader is for keys.
        of_key: Whether ``moving`` is a stage of the key.
    """

    def of_side(item: StageItem, *, is_key: bool) -> ConfiguredStage:
        return ConfiguredStage.of(item, config, DESERIALIZE, is_key=is_key)

    named = ACCEPT.read(of_side(moving.item, is_key=is_key).settings)
    formats = [name for name in dict.fromkeys((*named, *ACCEPT.default)) if _is_for(name, is_key=is_key)]
    item = StageItem("large-message", moving.item.options, moving.item.key)
    given = _own(of_side(item, is_key=of_key))
    stores = {key: value for key, value in given.items() if key == STORE.name or not key.startswith("large.")}
    return of_side(StageItem("large-message", {**stores, ACCEPT.name: formats}), is_key=is_key)


def _is_for(name: str, *, is_key: bool) -> bool:
    reference_format = find_format(name)
    return not reference_format.in_band and not (is_key and reference_format.whole_record)
