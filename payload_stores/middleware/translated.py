"""A store's own exceptions as errors of stores."""

# ruff: noqa: D102  a member without a docstring forwards to the inner store; the contract documents it

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, BinaryIO, TypeVar, cast

from payload_stores.base import Buffer, PayloadInfo, PublishContext
from payload_stores.base import store as contract
from payload_stores.buffers import checked_range
from payload_stores.errors import PayloadStoreError
from payload_stores.foreign_errors import translated
from payload_stores.middleware.base import Middleware, by_call

T = TypeVar("T")


class Translated(Middleware):
    """Raises a store's own exceptions as :class:`~payload_stores.errors.PayloadStoreError`, in both directions.

    The exception is the ``__cause__``. It says nothing about the record, and is transient for connection and time-out
    errors. Errors of :mod:`payload_stores.errors` pass, and so do those of a reader that is published, MemoryError,
    and what a signal handler raises. ``large-message`` puts it around every store, below retries and deadline.

    Args:
        store: The inner store.

    Example:
        >>> from payload_stores import PayloadStore
        >>> class Full(PayloadStore):
        ...     scheme = "full"
        ...     def publish(self, topic, data):
        ...         raise RuntimeError("quota")
        ...     def download(self, full_path):
        ...         raise NotImplementedError
        >>> Translated(Full()).publish("alerts", b"payload")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        payload_stores.errors.PayloadStoreError: the store failed: RuntimeError: quota [store=full, topic=alerts]...
    """

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        reference = args[0] if isinstance(args[0], str) else None  # not several references
        with translated(self.scheme, reference=reference):
            return operation(*args)

    def _of_topic(self, operation: Callable[..., T], topic: str, *args: Any) -> T:
        with translated(self.scheme, topic=topic):
            return operation(topic, *args)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return self._of_topic(self.store.publish, topic, data, context)

    publish_record = by_call(contract.SupportsRecords.publish_record, _of_topic)
    expiration = by_call(contract.SupportsExpiration.expiration, _of_topic)
    set_expiration = by_call(contract.SupportsExpiration.set_expiration, _of_topic)
    lifetimes = by_call(contract.SupportsLifetimes.lifetimes, _of_topic)
    unprepared = by_call(contract.SupportsPreparation.unprepared, _of_topic)

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        with translated(self.scheme):
            return super().id(data, context)

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        checked_range(start, length)  # its ValueError is the caller's
        return super().read_range(reference, start, length)

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        source = _Source(reader)
        try:
            with translated(self.scheme, topic=topic):
                return super().publish_stream(topic, cast("BinaryIO", source), context)
        except PayloadStoreError as error:
            if source.error is None or error.__cause__ is not source.error:
                raise
        raise source.error

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        with translated(self.scheme, topic=topic):
            listed = super().list(topic, prefix=prefix, before=before)
        return _each(self.scheme, topic, listed)

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        with translated(self.scheme, topic=topic):
            listed = super().list_range(topic, after=after, until=until, before=before)
        return _each(self.scheme, topic, listed)

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        with translated(self.scheme):
            return super().remove_leftovers(older_than_ms)

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        with translated(self.scheme):
            return super().count_leftovers(older_than_ms)


def _each(scheme: str, topic: str, listed: Iterator[PayloadInfo]) -> Iterator[PayloadInfo]:
    with translated(scheme, topic=topic):
        yield from listed


class _Source:
    """A reader whose errors are not the store's.

    Attributes:
        error: The exception that it raised.
    """

    def __init__(self, reader: BinaryIO) -> None:
        self._reader = reader
        self.error: Exception | None = None

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._reader.read(size)
        except Exception as error:
            self.error = error
            raise

    def seekable(self) -> bool:
        return self._reader.seekable()

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._reader.seek(offset, whence)
