"""Polls of a client that no signal handler interrupts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from payload_stores.threads import Call
from serde_chain.clients.timeouts import deadline

_SLICE_S: Final = 0.2


class UninterruptedPoll:
    """Calls a client's ``poll`` where no signal handler runs: outside of the main thread.

    A handler that raises within confluent_kafka's call drops the batch it has taken. A share consumer then refuses all
    further calls, since this batch can no longer be acknowledged. Here, an interrupt ends the wait, and the batch stays
    in ``found``.

    Args:
        poll: The client's ``poll``. Its callbacks run in the thread that it is called in.

    Attributes:
        found: What a poll has returned, for callers to take out.
        since: When it came, by ``time.monotonic()``.

    Example:
        >>> polls = UninterruptedPoll(lambda timeout: ["message"])
        >>> polls.run(1.0)
        >>> polls.found
        ['message']
    """

    def __init__(self, poll: Callable[[float], Iterable[Any]]) -> None:
        self.found: list[Any] = []
        self.since = 0.0
        self._client_poll = poll
        self._running = threading.Lock()
        self._wanted: object = None

    def run(self, timeout: float) -> None:
        """Poll until there is something.

        Args:
            timeout: Longest wait in seconds; negative for no limit.

        Raises:
            Exception: What the client's ``poll`` or a callback raises.
        """
        self.settle()
        if self.found:  # of an interrupted call
            return
        if threading.current_thread() is not threading.main_thread():
            self._poll(timeout)
            return
        wanted = self._wanted = object()
        call = Call(self._run, wanted, deadline(timeout))
        try:
            call.start().wait()
        finally:
            self._wanted = None
        call.take()

    def settle(self) -> None:
        """Wait for the end of a poll whose call was interrupted, at most 0.2 s; then the client may be called."""
        self._wanted = None
        with self._running:
            pass

    def _poll(self, timeout: float) -> None:
        messages = list(self._client_poll(timeout))
        self.since = time.monotonic()
        self.found = messages

    def _run(self, wanted: object, until: float) -> None:
        with self._running:
            # A thread that starts after its call was interrupted has nothing to do.
            while self._wanted is wanted and not self.found:
                left = max(0.0, until - time.monotonic())
                self._poll(min(_SLICE_S, left))
                if not left:
                    return
