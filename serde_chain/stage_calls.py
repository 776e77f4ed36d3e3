"""How a chain calls its stages at the lowest cost per record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from serde_chain.base import ShortBytes, SupportsPlainCalls, SupportsTransfers, is_same_work, untouched
from serde_chain.record import Context

__all__ = ["composed", "most_unchanged", "plain_call", "stage_call"]


def stage_call(stage: Any) -> Callable[[Any, Context | None], Any]:
    """The function of a stage that the loop calls."""
    if isinstance(stage, SupportsTransfers) and is_same_work(stage, "begin"):
        return stage.begin
    # Bound methods: calling an object would look its __call__ up for every record.
    call: Callable[[Any, Context | None], Any] = stage if inspect.isroutine(stage) else stage.__call__
    return call


def plain_call(stage: object) -> Callable[[Any], Any] | None:
    """A stage's plain function; None if it needs the context."""
    return stage.plain if isinstance(stage, SupportsPlainCalls) and is_same_work(stage, "plain") else None


def composed(functions: Sequence[Callable[[Any], Any] | None]) -> Callable[[Any], Any] | None:
    """The composition of functions; None if one of them is missing."""
    present = [
        function.function if isinstance(function, ShortBytes) else function
        for function in functions
        if function is not None and function is not untouched
    ]
    if not functions or None in functions:
        return None
    match present:
        case []:
            return untouched
        case [first]:
            return first
        case [first, second]:
            return lambda data: second(first(data))
        case [first, second, third]:
            return lambda data: third(second(first(data)))
    return composed([composed(present[:3]), *present[3:]])


def most_unchanged(functions: Sequence[Callable[[Any], Any] | None]) -> int:
    """Length in bytes up to which all functions leave ``bytes`` unchanged; -1 if one of them may change any."""
    return min((function.most if isinstance(function, ShortBytes) else -1 for function in functions), default=-1)
