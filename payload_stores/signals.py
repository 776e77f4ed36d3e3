"""Exceptions raised by signal handlers: they end the current call and are unrelated to the current record.

``KeyboardInterrupt`` is not caught by ``except Exception``. Task queues raise an ordinary exception at a soft time
limit, which looks like a failure of the interrupted stage.
"""

from __future__ import annotations

from _signal import getsignal, valid_signals  # type: ignore[import-not-found]  # those of signal make an enum of each: 70 µs, not 5
from collections.abc import Iterator
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Final

_SIGNALS: Final = tuple(valid_signals())


def let_through(error: BaseException) -> None:
    """Raise a signal handler's exception again, unchanged, if it caused an error.

    For ``except`` clauses that catch any exception. A handler is one that is installed now: a time limit inside a stage
    that has restored the previous handler is the stage's own.

    Args:
        error: The caught error. Its causes count too, since stages wrap errors.
    """
    handlers = _handlers()
    if not handlers:
        return
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        frames = list(_frames(cause))
        if any(frame.f_code in handlers for frame in frames):
            context = cause.__context__
            try:
                raise cause
            finally:
                cause.__context__ = context  # not its own consequence
                del cause, error, frames  # or the exception would hold itself, by this frame
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


def _handlers() -> frozenset[CodeType]:
    """The code of the installed signal handlers.

    Looking at what the frames of an error were called with would tell them too, but up to Python 3.12, a frame keeps
    the dictionary of its local variables once it was read: a cycle through the error, with the payload.
    """
    # Each of a batch's records may fail, and there are 64 signals, nearly all without a handler (SIG_DFL and SIG_IGN).
    handlers = filter(callable, map(getsignal, _SIGNALS))
    return frozenset(code for handler in handlers if (code := _code(handler)) is not None)


def _code(handler: object) -> CodeType | None:
    """The code of a function in Python that is called as a handler, or by it; None for anything else."""
    while isinstance(handler, partial):
        handler = handler.func
    if callable(handler) and not isinstance(handler, (FunctionType, MethodType, type)):
        handler = type(handler).__call__
    if isinstance(handler, MethodType):
        handler = handler.__func__
    return handler.__code__ if isinstance(handler, FunctionType) else None
