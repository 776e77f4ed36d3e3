"""How a chain calls its stages at the lowest cost per record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from payload_stores.plugins import accepts
from serde_chain import base
from serde_chain.base import SupportsPlainCalls, SupportsTransfers, is_same_work
from serde_chain.errors import ConfigError
from serde_chain.record import Context


class Begun:
    """A value between two stages: plain functions have made it, and the next stage needs the record.

    Attributes:
        data: Input of the next stage.
        at: Position of this stage; the number of stages if only the check of the result is left.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: Any, at: int) -> None:
        self.data, self.at = data, at


def stage_call(stage: Any) -> Callable[[Any, Context | None], Any]:
    """The function of a stage that the loop calls."""
    if isinstance(stage, SupportsTransfers) and is_same_work(stage, "begin"):
        return stage.begin
    # Bound methods: calling an object would look its __call__ up for every record.
    call: Callable[[Any, Context | None], Any] = stage if inspect.isroutine(stage) else stage.__call__
    return call


def check_call(stage: Any, name: str) -> None:
    """Refuse a stage whose every call would fail, or return a coroutine.

    Args:
        stage: The stage.
        name: Its name, for messages.

    Raises:
        ConfigError: It cannot be called with data and context.
    """
    # A partial's __call__ takes anything.
    call = stage if isinstance(stage, partial) else stage_call(stage)
    if inspect.iscoroutinefunction(call):
        raise ConfigError(f"{name} is a coroutine function", hint="Chains do not await: pass a blocking stage")
    if not accepts(call, (None, None)):
        raise ConfigError(
            f"{name} cannot be called with data and context", hint="Define __call__(self, data, ctx=None, /)"
        )


def plain_call(stage: object) -> Callable[[Any], Any] | None:
    """A stage's plain function; None if it needs the context."""
    return stage.plain if isinstance(stage, SupportsPlainCalls) and is_same_work(stage, "plain") else None


def composed(functions: Sequence[Callable[[Any], Any] | None]) -> Callable[[Any], Any] | None:
    """The composition of functions; None if one of them is missing.

    It returns :class:`Begun` where a :class:`~serde_chain.base.ShortBytesOnly` leaves the data to its stage.
    """
    present = [function for function in functions if function is not None]
    return _from(present, 0) if present and len(present) == len(functions) else None


def _from(functions: Sequence[Callable[[Any], Any]], start: int) -> Callable[[Any], Any]:
    """The composition of the functions from a position on."""
    stages = enumerate(functions[start:], start)
    limit = next(((at, function.most) for at, function in stages if isinstance(function, base.ShortBytesOnly)), None)
    if limit is None:
        return _joined(functions[start:])
    at, most = limit
    first, rest = _joined(functions[start:at]), _from(functions, at + 1)

    def plain(data: Any) -> Any:
        made = first(data)
        if type(made) is bytes and len(made) <= most:
            return rest(made)
        return Begun(made, at)

    def last_plain(data: Any) -> Any:
        made = first(data)
        return made if type(made) is bytes and len(made) <= most else Begun(made, at)

    return last_plain if rest is base.untouched else plain


def _joined(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Functions one after the other."""
    present = [
        function.function if isinstance(function, base.ShortBytes) else function
        for function in functions
        if function is not base.untouched
    ]
    match present:
        case []:
            return base.untouched
        case [first]:
            return first
        case [first, second]:
            return lambda data: second(first(data))
        case [first, second, third]:
            return lambda data: third(second(first(data)))
    return _joined([_joined(present[:3]), *present[3:]])


def max_unchanged(functions: Sequence[Callable[[Any], Any] | None]) -> int:
    """Length in bytes up to which all functions leave ``bytes`` unchanged; -1 if one of them may change any."""
    return min((function.most if isinstance(function, base.ShortBytes) else -1 for function in functions), default=-1)
