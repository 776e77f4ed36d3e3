"""Exceptions raised by signal handlers: they end the current call and are unrelated to the current record.

``KeyboardInterrupt`` is not caught by ``except Exception``. Task queues raise an ordinary exception at a soft time
limit, which looks like a failure of the interrupted stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import CO_VARARGS
from types import FrameType

__all__ = ["let_through"]


def let_through(error: BaseException) -> None:
    """Raise a signal handler's exception again, unchanged, if it caused an error.

    For ``except`` clauses that catch any exception.

    Args:
        error: The caught error. Its causes count too, since stages wrap errors.
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
                cause.__context__ = context  # not its own consequence
        seen.add(id(cause))
        caught = cause.__cause__ or cause.__context__
        # Otherwise it was raised earlier: the caller is in an except clause.
        cause = caught if caught is not None and next(_frames(caught), None) in frames else None


def _frames(error: BaseException) -> Iterator[FrameType]:
    """From the frame that caught an exception to the frame that raised it."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Whether the interpreter called a function as a signal handler: only these receive their caller's frame."""
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
