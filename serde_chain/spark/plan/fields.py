"""Plans for reading keys and values: the driver builds each chain first, to find mistakes and the column's type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from payload_stores.plugins import require
from serde_chain.arrow.loop import declared_type
from serde_chain.base import Data, Deserializer, Stage, SupportsFetch, removed_headers_of
from serde_chain.base.kinds import moves_whole_payloads
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError
from serde_chain.schemas.framing import NONE
from serde_chain.schemas.registry import USE_LATEST
from serde_chain.schemas.schema_registry import named_framing
from serde_chain.spark.plan.reading import FieldPlan
from serde_chain.spark.plan.types import signed
from serde_chain.stages.avro.reader import SINGLE_OBJECT
from serde_chain.stages.avro.resolution import resolved
from serde_chain.stages.avro.schema import READER_SCHEMA, read_schema
from serde_chain.stages.avro.stage import FRAMING, AvroDeserializer
from serde_chain.stages.protobuf.stage import ProtobufDeserializer

__all__ = ["plan_field", "plan_first_stages", "plan_references"]


def plan_field(config: Mapping[str, object], *, is_key: bool, given: Any = None) -> FieldPlan | None:
    """Plan all stages of a chain.

    Args:
        config: Flat configuration.
        is_key: Whether the chain is for keys.
        given: The user's ``pyarrow.DataType``, which overrides the chain's.

    Returns:
        The plan; None if the configuration names no stages for this field.

    Raises:
        ConfigError: The configuration is wrong, or the type is unknown.
        MissingDependencyError: A package is not installed.
    """
    with DeserializerChain.from_config(config, is_key=is_key) as chain:
        if not chain.stages:
            return None
        kind = _type_of(chain, is_key=is_key) if given is None else given
        return _plan(chain, None, is_key=is_key, arrow_type=kind, given=given is not None)


def plan_references(config: Mapping[str, object], *, is_key: bool) -> FieldPlan | None:
    """Plan the stages of a chain up to the one that follows references; None if there is none.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: A package is not installed.
    """
    with DeserializerChain.from_config(config, is_key=is_key) as chain:
        moving = [at for at, stage in enumerate(chain.stages, 1) if moves_whole_payloads(stage)]
        return plan_first_stages(chain, moving[0], is_key=is_key) if moving else None


def plan_first_stages(chain: DeserializerChain, count: int, *, is_key: bool) -> FieldPlan:
    """Plan the first stages of a chain, which return bytes.

    Args:
        chain: The chain.
        count: Number of stages.
        is_key: Whether the chain is for keys.
    """
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
