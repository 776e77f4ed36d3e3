"""Chains for the driver: each is opened once, to find mistakes and the column's type, and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from payload_stores.plugins import require
from serde_chain.arrow.loop import declared_type
from serde_chain.base import (
    Data,
    DescribesFields,
    Deserializer,
    FieldType,
    RemovedHeaders,
    Stage,
    SupportsFetch,
    removed_headers_of,
)
from serde_chain.base.kinds import moves_fields, moves_whole_payloads
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError
from serde_chain.schemas.framing import NONE
from serde_chain.schemas.registry import USE_LATEST
from serde_chain.schemas.schema_registry import named_framing
from serde_chain.spark.chains.plan import FieldPlan
from serde_chain.spark.columns.types import signed
from serde_chain.stages.avro.reader import SINGLE_OBJECT
from serde_chain.stages.avro.resolution import resolved
from serde_chain.stages.avro.schema import READER_SCHEMA, read_schema
from serde_chain.stages.avro.stage import FRAMING, AvroDeserializer
from serde_chain.stages.protobuf.stage import ProtobufDeserializer


@dataclass(frozen=True)
class FetchingStage:
    """A chain's last stage, which fetches fields.

    Attributes:
        config: Its flat configuration.
        markers: The headers of which every record with references has at least one.
        value_type: The type of the values that it takes; None if it is unknown before they are read.
        removed_before: The headers that earlier stages remove; None if they may change headers in other ways.
    """

    config: Mapping[str, object] = field(repr=False)
    markers: frozenset[str]
    value_type: FieldType | None
    removed_before: tuple[RemovedHeaders, ...] | None


@dataclass(frozen=True)
class OpenedChain:
    """What the driver keeps of a chain that it has opened and closed: all that plans and engines depend on.

    Attributes:
        whole: The plan for all stages.
        stages: The stages, closed: for their classes, and for the settings of this library's own.
        labels: Their names in messages.
        first_markers: Headers of which every record that the stages before :attr:`reader` change has at least one;
            None if they may change any record.
        fetching: The last stage, if it fetches fields.
    """

    whole: FieldPlan
    stages: tuple[Any, ...]
    labels: tuple[str, ...]
    first_markers: frozenset[str] | None
    fetching: FetchingStage | None

    @property
    def reader_at(self) -> int:
        """The position of the stage that reads bytes as values: the last one that does not fetch fields."""
        return _reader_at(self.stages)

    @property
    def reader(self) -> Any:
        """The stage at this position."""
        return self.stages[self.reader_at]


def open_chain(config: Mapping[str, object], *, is_key: bool, given: Any = None) -> OpenedChain | None:
    """Open a chain, describe it, and close it.

    Args:
        config: Flat configuration.
        is_key: Whether the chain is for keys.
        given: The user's ``pyarrow.DataType``, which overrides the chain's.

    Returns:
        The description; None if the configuration names no stages for this field.

    Raises:
        ConfigError: The configuration is wrong, or the type is unknown.
        MissingDependencyError: A package is not installed.
    """
    with DeserializerChain.from_config(config, is_key=is_key) as chain:
        if not chain.stages:
            return None
        kind = _type_of(chain, is_key=is_key) if given is None else given
        count = _reader_at(chain.stages)
        return OpenedChain(
            _plan(chain, None, is_key=is_key, arrow_type=kind, given=given is not None),
            chain.stages,
            chain.labels,
            _plan_of_bytes(chain, count, is_key=is_key).markers if count else frozenset(),
            _fetching(chain, config),
        )


def plan_references(config: Mapping[str, object], *, is_key: bool) -> FieldPlan | None:
    """Plan the stages of a chain up to the one that follows references; None if there is none.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: A package is not installed.
    """
    with DeserializerChain.from_config(config, is_key=is_key) as chain:
        moving = [at for at, stage in enumerate(chain.stages, 1) if moves_whole_payloads(stage)]
        return _plan_of_bytes(chain, moving[0], is_key=is_key) if moving else None


def _reader_at(stages: tuple[Any, ...]) -> int:
    return max(len(stages) - 1 - moves_fields(stages[-1]), 0)


def _fetching(chain: DeserializerChain, config: Mapping[str, object]) -> FetchingStage | None:
    last, before = chain.stages[-1], chain.stages[:-1]
    if not moves_fields(last):
        return None
    return FetchingStage(
        config if last.configured is None else last.configured[0],
        last.marker_headers(),
        before[-1].field_type() if before and isinstance(before[-1], DescribesFields) else None,
        removed_headers_of(before),
    )


def _plan_of_bytes(chain: DeserializerChain, count: int, *, is_key: bool) -> FieldPlan:
    """Plan the first stages of a chain, which return bytes."""
    return _plan(chain, count, is_key=is_key, arrow_type=require("pyarrow", "spark").binary())


def _plan(
    chain: DeserializerChain, count: int | None, *, is_key: bool, arrow_type: Any, given: bool = False
) -> FieldPlan:
    stages = chain.stages[:count]
    for stage in stages:
        _check_resolution(stage)
    # Any other stage changes all records.
    only = stages[0] if len(stages) == 1 else None
    return FieldPlan(
        is_key,
        arrow_type,
        needs_headers=any(map(_moves_payloads, stages)),
        stages=count,
        given=given,
        restores=any(isinstance(stage, SupportsFetch) and stage.restores_records for stage in stages),
        markers=only.marker_headers() if isinstance(only, SupportsFetch) else None,
        removes=removed_headers_of(stages),
        adds_headers=any(isinstance(stage, Deserializer) and stage.own_headers for stage in stages),
    )


def _check_resolution(stage: object) -> None:
    """Refuse a reader's schema into which no record of the configured writer's can be read.

    Raises:
        ConfigError: The schemas do not resolve; it names the field.
    """
    if type(stage) is not AvroDeserializer or stage.configured is None:
        return
    config, is_key = stage.configured
    framing, of_registry = named_framing(FRAMING, config, is_key=is_key)
    own, target = read_schema(config), read_schema(config, READER_SCHEMA)
    if own is None or target is None or of_registry is not None or framing not in {NONE, SINGLE_OBJECT}:
        return
    way = resolved(own, target)
    if (problem := way.hopeless or way.rescaled) is not None:
        raise ConfigError(
            f"the writer's schema does not resolve into {READER_SCHEMA.name}: {problem}",
            hint=way.remedy,
            key=READER_SCHEMA.name,
        )


def _moves_payloads(stage: object) -> bool:
    return isinstance(stage, Stage) and stage.moves_payloads


def _type_of(chain: DeserializerChain, *, is_key: bool) -> Any:
    arrow = require("pyarrow", "spark")
    last = chain.stages[-1]
    kind = declared_type(last)
    if kind is not None:
        return signed(kind)
    if isinstance(last, Stage) and last.gives is Data.BYTES:
        return arrow.binary()
    needs_schema, needs_topics = isinstance(last, AvroDeserializer), isinstance(last, ProtobufDeserializer)
    raise ConfigError(
        f"the type of the {'keys' if is_key else 'values'} is unknown before they are read: {chain.labels[-1]} does "
        "not declare its type",
        hint=f"Set {READER_SCHEMA.name} to the schema for reading all of them; or, with a schema registry, "
        f"{USE_LATEST.name} = true and topics="
        if needs_schema
        else "Pass topics=, whose schemas in the registry describe them"
        if needs_topics
        else "Pass schema= to deserialize(), with the Spark type of the column",
        key=READER_SCHEMA.name if needs_schema else f"{'key' if is_key else 'value'}.deserializers",
    )
