"""Figures of a store's calls, for programs without OpenTelemetry."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast

from payload_stores.base import PayloadStore, PublishContext, StoredRecord, SupportsStreaming
from payload_stores.middleware.base import REQUESTS, Middleware

__all__ = ["Metered", "OperationFigures"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """What became of the calls of one operation.

    Attributes:
        calls: How many have ended.
        in_flight: How many are under way.
        seconds: How long those that have ended took, all together.
        slowest: How long the slowest took, in seconds.
        bytes: Bytes of the payloads that were stored or returned; of streams that were stored, what was read of them.
        errors: How many failed, by the name of the error's class.

    Example:
        >>> OperationFigures(calls=2, errors={"PayloadNotFoundError": 1}).succeeded
        1
    """

    calls: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    bytes: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def succeeded(self) -> int:
        """How many calls have succeeded."""
        return self.calls - sum(self.errors.values())


class Metered(Middleware):
    """Counts the calls of a store, by operation and outcome.

    Innermost, it counts each attempt of a :class:`Retry`, and nothing that a :class:`Cache` answers.

    Args:
        store: The inner store.

    Example:
        >>> from payload_stores import open_store
        >>> store = Metered(open_store("memory", {}))
        >>> reference = store.publish("alerts", b"payload")
        >>> store.snapshot()["publish"].bytes
        7
    """

    wrapped = REQUESTS

    def __init__(self, store: PayloadStore) -> None:
        super().__init__(store)
        self._figures: defaultdict[str, OperationFigures] = defaultdict(OperationFigures)
        self._lock = threading.Lock()

    def snapshot(self) -> dict[str, OperationFigures]:
        """The figures until now, by the name of the operation; those that were never called are not there."""
        with self._lock:
            return dict(self._figures)

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation, and count it."""
        return self._counted(operation.__name__, operation, args, lambda result: _size(args[1:]) or _size([result]))

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Download and verify as the inner store does it; counted as a download."""
        download = partial(self.store.download_verified, size=size, digest=digest)
        return self._counted("download", download, (reference,), lambda result: _size([result]))

    def around_publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish a stream, and count what is read of it. See :class:`~payload_stores.SupportsStreaming`."""
        counted = _CountedReader(reader)
        publish = cast("SupportsStreaming", self.store).publish_stream
        return self._counted("publish_stream", publish, (topic, counted, context), lambda _: counted.size)

    def _counted(
        self, name: str, operation: Callable[..., T], args: tuple[Any, ...], size: Callable[[object], int]
    ) -> T:
        self._add(name, in_flight=1)
        began, error, moved = time.monotonic(), "", 0
        try:
            result = operation(*args)
            moved = size(result)
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            self._add(name, in_flight=-1, seconds=time.monotonic() - began, moved=moved, error=error)
        return result

    def _add(self, name: str, *, in_flight: int, seconds: float | None = None, moved: int = 0, error: str = "") -> None:
        with self._lock:
            figures = self._figures[name]
            changed = replace(figures, in_flight=figures.in_flight + in_flight)
            if seconds is not None:
                errors = {**figures.errors, error: figures.errors.get(error, 0) + 1} if error else figures.errors
                changed = replace(
                    changed,
                    calls=figures.calls + 1,
                    seconds=figures.seconds + seconds,
                    slowest=max(figures.slowest, seconds),
                    bytes=figures.bytes + moved,
                    errors=errors,
                )
            self._figures[name] = changed


def _size(values: Any) -> int:
    """Bytes of the first payload among some values."""
    for value in values:
        payload = value.value if isinstance(value, StoredRecord) else value
        if isinstance(payload, (bytes, bytearray, memoryview)):
            return memoryview(payload).nbytes
    return 0


class _CountedReader:
    """A reader, and how much was read of it."""

    def __init__(self, reader: BinaryIO) -> None:
        self._reader = reader
        self.size = 0

    def read(self, size: int = -1, /) -> bytes:
        block = self._reader.read(size)
        self.size += len(block)
        return block

    def seekable(self) -> bool:
        return self._reader.seekable()

    def tell(self) -> int:
        return self._reader.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._reader.seek(offset, whence)
