"""Callbacks for confluent_kafka clients, which may call them with an exception already set.

On a fatal error, such as fencing, a producer sets its KafkaException and keeps reporting records. Any call in such a
callback fails with ``SystemError: … returned a result with an exception set``, and the rest of the callback does not
run. So the exception is cleared before any other call, and raised again at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The interpreter calls most C functions without checking for a set exception, but not this one.
_look: Final = partial(bool)


def take_exception() -> BaseException | None:
    """Clear and return the exception set by the client. Must be the first call: no other works before it.

    Returns:
        The exception, for the callback to raise at its end; None if none is set.

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
    """Wrap a callback so that it runs as if no exception were set.

    Args:
        callback: The callback. Its own exception takes precedence; the next call raises the client's again.

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
