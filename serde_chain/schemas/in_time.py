"""One deadline for a whole request to a registry, whatever the server does."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from payload_stores.daemon_threads import run_in_daemon_thread

__all__ = ["in_time"]

T = TypeVar("T")

# Longer than four attempts with timeouts of 10 s and the pauses between them; shorter than a record waits for the
# question of another one (serde_chain.lookups).
_DEADLINE_S: Final = 50.0


def in_time(request: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Send a request in another thread, which is abandoned after 50 s.

    Timeouts of HTTP clients start anew with each byte, so that a server or proxy that sends one now and then, or
    redirects a connection into a stalled one, holds a record for hours.

    Args:
        request: The client's method.
        *arguments: Its arguments.
        **options: Its keyword arguments.

    Returns:
        Its result.

    Raises:
        TimeoutError: The time is up.

    Example:
        >>> in_time(pow, 2, 3)
        8
    """
    outcome: list[tuple[T, None] | tuple[None, BaseException]] = []
    finished = threading.Event()
    context = contextvars.copy_context()  # so that traces continue in the other thread

    def run() -> None:
        try:
            outcome.append((context.run(request, *arguments, **options), None))
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            outcome.append((None, error))
        finished.set()

    run_in_daemon_thread(run)
    if not finished.wait(_DEADLINE_S):
        raise TimeoutError(f"no complete answer within {_DEADLINE_S:g} s")
    result, error = outcome.pop()
    if error is not None:
        try:
            raise error
        finally:
            del error  # or it would hold itself, by this frame
    return result  # type: ignore[return-value]  # without an error it is the request's
