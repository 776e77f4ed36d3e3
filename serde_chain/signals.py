"""What a signal handler raises: it ends the call in which it comes, and says nothing about the record at hand.

``KeyboardInterrupt`` passes every ``except Exception``. What task queues raise at a soft time limit is an ordinary
exception, which looks like a failure of the stage that it has interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import CO_VARARGS
from types import FrameType

__all__ = ["let_through"]


def let_through(error: BaseException) -> None:
    """Raise what a signal handler raised during the call that has failed with an error, if one did: unchanged.

    For ``except`` clauses that take any exception.

    Args:
        error: What was caught. Its causes count as well, since stages wrap what they catch.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        frames = list(_frames(cause))
        if any(map(_is_handler, frames)):
            context = cause.__context__
            try:
                raise cause
            finally:
                cause.__context__ = context  # not what it has caused
        seen.add(id(cause))
        caught = cause.__cause__ or cause.__context__
        # Otherwise it was raised before: its caller calls from an except clause.
        cause = caught if caught is not None and next(_frames(caught), None) in frames else None


def _frames(error: BaseException) -> Iterator[FrameType]:
    """From that in which an exception was caught to that in which it was raised."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Whether the interpreter has called a function as a signal handler: only these get their caller's frame."""
    caller, code = frame.f_back, frame.f_code
    count = code.co_argcount
    takes_more = bool(code.co_flags & CO_VARARGS)
    if caller is None or not (count or takes_more):
        return False
    given = frame.f_locals
    arguments = [given.get(name) for name in code.co_varnames[:count]]
    if takes_more:
        arguments += given.get(code.co_varnames[count + code.co_kwonlyargcount], ())
    return any(argument is caller for argument in arguments)
