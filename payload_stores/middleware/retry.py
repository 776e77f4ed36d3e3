"""Another try for what failed with a transient error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, TypeVar

from payload_stores.base import PayloadStore, PublishContext, SupportsRetryCount
from payload_stores.counter import Counter
from payload_stores.errors import PayloadStoreError
from payload_stores.middleware.base import Middleware
from payload_stores.plugins import require

__all__ = ["Retry"]

T = TypeVar("T")


class Retry(Middleware):
    """Repeats what failed with a transient error, with exponentially growing random waits between (tenacity).

    For stores that do not do this by themselves: those that do have as many attempts of their own in each of these. A
    stream is repeated where its reader can seek, otherwise not. A publish with a random id whose answer was lost leaves
    an orphan behind.

    Args:
        store: The inner store.
        attempts: Attempts in all.
        timeout_ms: No attempt begins later than this after the first, in ms.
        wait_ms: Longest wait before the second attempt, in ms; it doubles from one attempt to the next.
        max_wait_ms: Longest of all waits, in ms.

    Raises:
        MissingDependencyError: tenacity is not installed.

    Example:
        >>> from payload_stores import open_store
        >>> store = Retry(open_store("memory", {}), attempts=5)
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    def __init__(
        self,
        store: PayloadStore,
        attempts: int = 3,
        *,
        timeout_ms: int = 30_000,
        wait_ms: int = 100,
        max_wait_ms: int = 5_000,
    ) -> None:
        super().__init__(store)
        tenacity = require("tenacity", "retry")
        self._timeout_ms = timeout_ms
        self._retrying = partial(
            tenacity.Retrying,
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(attempts), tenacity.stop_before_delay(timeout_ms / 1000)
            ),
            wait=tenacity.wait_random_exponential(multiplier=wait_ms / 1000, max=max_wait_ms / 1000),
            retry=tenacity.retry_if_exception(_is_transient),
            before_sleep=self._count,
            reraise=True,
        )
        self._repeated = Counter()

    def supports(self, capability: type) -> bool:
        """Whether the inner store implements a capability, or this one, which counts retries."""
        return capability is SupportsRetryCount or super().supports(capability)

    @property
    def retries(self) -> int:
        """How many requests were repeated, here and by the inner store. See :class:`SupportsRetryCount`."""
        inner = self.store.retries if isinstance(self.store, SupportsRetryCount) else 0
        return self._repeated.count + inner

    def _count(self, _state: object) -> None:
        self._repeated.add()

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation until it succeeds, fails for good, or attempts or time are used up."""
        result: T = self._retrying()(operation, *args)
        return result

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish what a reader returns, each time from where it is now. See :class:`SupportsStreaming`."""
        publish = super().publish_stream
        if not reader.seekable():
            return publish(topic, reader, context)
        start = reader.tell()

        def attempt() -> str:
            reader.seek(start)
            return publish(topic, reader, context)

        return self.call(attempt)

    def worst_case_ms(self) -> int | None:
        """An attempt may begin as late as the time limit; in ms, None if the inner store has no bound."""
        inner = self.store.worst_case_ms()
        return None if inner is None else self._timeout_ms + inner


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, PayloadStoreError) and error.transient
