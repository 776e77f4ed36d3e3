"""Questions about stages: what they move, whether a member stands for a call, which headers they remove."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from serde_chain.base.stage import Data, DeclaresHeaders, Stage

if TYPE_CHECKING:
    from serde_chain.base.values import RemovedHeaders


def is_stage(item: object) -> TypeGuard[Stage | type[Stage]]:
    """Whether an item of a chain declares its input and output: a stage or a stage class."""
    return isinstance(item, Stage) or (isinstance(item, type) and issubclass(item, Stage))


def is_same_work(stage: object, name: str) -> bool:
    """Whether a member is equivalent to a call: not if a subclass overrides ``__call__`` or ``begin``."""
    for cls in type(stage).__mro__:
        if name in vars(cls) or name in inspect.get_annotations(cls):
            return True
        if not vars(cls).keys().isdisjoint({"__call__", "begin"}):
            return False
    return True


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


def removed_headers_of(stages: Iterable[object]) -> tuple[RemovedHeaders, ...] | None:
    """The headers that the stages of a chain remove.

    Args:
        stages: Deserializers.

    Returns:
        None if a stage may change headers in other ways, or does not declare its changes.
    """
    removed: list[RemovedHeaders] = []
    for stage in stages:
        if not isinstance(stage, DeclaresHeaders) or not is_same_work(stage, "removed_headers"):
            return None
        of_stage = stage.removed_headers
        if of_stage is None:
            return None
        removed += of_stage
    return tuple(removed)
