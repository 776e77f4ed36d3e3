"""One deadline for all requests of a question to a registry, whatever the server does."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from payload_stores.threads import Call
from serde_chain.errors import SchemaRegistryError

P = ParamSpec("P")
T = TypeVar("T")

# Longer than four attempts with timeouts of 10 s and the pauses between them; shorter than a record waits for the
# question of another one (serde_chain.transfer.answers).
_DEADLINE_S: Final = 50.0
# The end of the question that this thread works on.
_until: Final = contextvars.ContextVar[float | None]("_until", default=None)


def within_deadline(request: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Send requests in another thread, which is abandoned after 50 s.

    Timeouts of HTTP clients start anew with each byte, so that a server or proxy that sends one now and then, or
    redirects a connection into a stalled one, holds a record for hours. A call within another one shares its deadline.

    Args:
        request: The client's method, or a function that sends several requests.
        *arguments: Its arguments.
        **options: Its keyword arguments.

    Returns:
        Its result.

    Raises:
        TimeoutError: The time is up.

    Example:
        >>> within_deadline(pow, 2, 3)
        8
    """
    until = _until.get()
    if until is not None:
        if time.monotonic() > until:
            raise _too_late()
        return request(*arguments, **options)
    ends = time.monotonic() + _DEADLINE_S

    def ask() -> T:
        _until.set(ends)  # in this call's context
        return request(*arguments, **options)

    call = Call(ask).start()
    if not call.wait(_DEADLINE_S):
        call.drop()
        raise _too_late()
    return call.take()


def one_deadline(ask: Callable[P, T]) -> Callable[P, T]:
    """Give all requests of a function one deadline: those of a schema and of the schemas that it refers to.

    Args:
        ask: The function, or method.

    Returns:
        A function that also raises SchemaRegistryError if the time is up.

    Example:
        >>> one_deadline(pow)(2, 3)
        8
    """

    @wraps(ask)
    def asking(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return within_deadline(ask, *arguments, **options)
        except TimeoutError as error:
            raise SchemaRegistryError(
                f"the schema registry did not answer: {error}", hint="Check that the registry runs"
            ).marked(transient=True) from error

    return asking


def _too_late() -> TimeoutError:
    return TimeoutError(f"no complete answer within {_DEADLINE_S:g} s")
