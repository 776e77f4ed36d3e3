"""Callbacks of confluent_kafka's clients, which call them while an exception is set already.

A client that meets a fatal error, such as a producer that is fenced, sets its KafkaException, and still reports records
after that. Any call in such a callback ends in ``SystemError: … returned a result with an exception set``, and the rest
of the callback does not run. So the exception is taken away before any other call, and raised again at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

__all__ = ["shielded", "take_exception"]

P = ParamSpec("P")
T = TypeVar("T")

# The interpreter has faster ways to call functions of C, which do not look whether an exception is set; none for this.
_look: Final = partial(bool)


def take_exception() -> BaseException | None:
    """Take the exception that the client has set. To be called first: before it, no other call works.

    Returns:
        The exception, to be raised by the callback at its end; None where there is none.

    Example:
        >>> take_exception() is None
        True
    """
    try:
        _look()
    except SystemError as error:
        return error.__cause__
    return None


def shielded(callback: Callable[P, T]) -> Callable[P, T]:
    """A callback that runs as if no exception were set.

    Args:
        callback: The callback. What it raises comes before what the client had set, which its next call raises again.

    Example:
        >>> shielded(print)("delivered")
        delivered
    """

    def shield(*args: P.args, **kwargs: P.kwargs) -> T:
        taken = take_exception()
        result = callback(*args, **kwargs)
        if taken is not None:
            raise taken
        return result

    return shield
