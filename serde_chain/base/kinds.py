"""Kinds of stages: by what they move."""

from __future__ import annotations

from collections.abc import Sequence

from serde_chain.base.stage import Data, is_stage

__all__ = ["moves_fields", "moves_whole_payloads", "typed_at", "typed_stage"]


def moves_fields(stage: object) -> bool:
    """Whether a stage or stage class moves fields of objects, not whole payloads."""
    return is_stage(stage) and stage.moves_payloads and stage.takes is Data.OBJECT


def moves_whole_payloads(stage: object) -> bool:
    """Whether a stage or stage class moves whole payloads, not fields of objects."""
    return is_stage(stage) and stage.moves_payloads and stage.takes is not Data.OBJECT


def typed_at(stages: Sequence[object]) -> int:
    """The position of the serializer that determines the type of its chain's input: the first one that moves no fields.

    Args:
        stages: The stages of a chain; their number is the answer if all of them move fields.
    """
    return next((at for at, stage in enumerate(stages) if not moves_fields(stage)), len(stages))


def typed_stage(stages: Sequence[object]) -> object | None:
    """The serializer at :func:`typed_at`; None if there is none."""
    return next(iter(stages[typed_at(stages) :]), None)
