"""Kinds of stages that plans distinguish."""

from __future__ import annotations

from collections.abc import Iterable

from serde_chain.base import Data, is_stage

__all__ = ["moves_fields", "moves_whole_payloads", "typed_stage"]


def moves_fields(stage: object) -> bool:
    """Whether a stage or stage class moves fields of objects, not whole payloads."""
    return is_stage(stage) and stage.moves_payloads and stage.takes is Data.OBJECT


def moves_whole_payloads(stage: object) -> bool:
    """Whether a stage or stage class moves whole payloads, not fields of objects."""
    return is_stage(stage) and stage.moves_payloads and stage.takes is not Data.OBJECT


def typed_stage(stages: Iterable[object]) -> object | None:
    """The serializer that determines the type of its chain's input: the first one that moves no fields."""
    return next((stage for stage in stages if not moves_fields(stage)), None)
