"""Retries transient errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, TypeVar

from payload_stores.base import PayloadStore, PublishContext, SupportsRetryCount
from payload_stores.counter import Counter
from payload_stores.errors import PayloadStoreError
from payload_stores.kip1159 import KipPayloadStore
from payload_stores.middleware.base import Middleware
from payload_stores.plugins import require

T = TypeVar("T")


class Retry(Middleware):
    """Retries calls that failed with a transient error, with random exponential waits (tenacity).

    For stores without retries: a store with retries makes all of its attempts in each attempt here. Streams are
    retried only if their reader can seek. A publish with a random id whose answer was lost leaves an orphan.

    Args:
        store: The inner store.
        attempts: Total attempts.
        timeout_ms: Latest start of an attempt after the first, in ms.
        wait_ms: Longest wait before the second attempt, in ms; it doubles with each attempt.
        max_wait_ms: Upper bound of all waits, in ms.

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
        store: PayloadStore | KipPayloadStore,
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
        """As the inner store; retries are always counted."""
        return capability is SupportsRetryCount or super().supports(capability)

    @property
    def retries(self) -> int:
        """Number of retries, here and by the inner store. See :class:`SupportsRetryCount`."""
        inner = self.store.retries if isinstance(self.store, SupportsRetryCount) else 0
        return self._repeated.count + inner

    def _count(self, _state: object) -> None:
        self._repeated.add()

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation until it succeeds, fails permanently, or attempts or time run out."""
        result: T = self._retrying()(operation, *args)
        return result

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish the contents of a reader, each time from its current position. See :class:`SupportsStreaming`."""
        publish = super().publish_stream
        if not reader.seekable():
            return publish(topic, reader, context)
        start = reader.tell()

        def attempt() -> str:
            reader.seek(start)
            return publish(topic, reader, context)

        return self.call(attempt)

    def worst_case_ms(self) -> int | None:
        """The time limit plus one attempt, in ms; None if the inner store is unbounded."""
        inner = self.store.worst_case_ms()
        return None if inner is None else self._timeout_ms + inner


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, PayloadStoreError) and error.transient
