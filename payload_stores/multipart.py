"""Transfers of large payloads for all object stores: parallel parts and ranges, files in blocks.

The threads are daemons: the process does not wait for them at exit.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, BinaryIO, Final, ParamSpec, Protocol, TypeVar, cast

from payload_stores.daemon_threads import run_elsewhere
from payload_stores.errors import PayloadIntegrityError, PayloadStoreError, PayloadTooLargeError
from payload_stores.ids import DIGEST_PREFIX

__all__ = [
    "MAX_PARTS",
    "PARALLEL",
    "PART_BYTES",
    "Answer",
    "Blocks",
    "DaemonPool",
    "Downloads",
    "PayloadFile",
    "Source",
    "UnderWay",
    "download_ranges",
    "open_ranges",
    "put_parts",
    "read_parts",
    "released",
    "settle",
    "slices",
    "stream_digest",
]

P = ParamSpec("P")
T = TypeVar("T")

PART_BYTES: Final = 8 << 20
"""Size of parts and ranges in bytes."""
PARALLEL: Final = 8
"""Parts or ranges in flight at once."""
MAX_PARTS: Final = 10_000
"""Maximum parts per upload ("Amazon S3 multipart upload limits" in its user guide; the same for Google)."""

# Size of a range while other downloads keep the network busy.
_LARGE_PART_BYTES: Final = 64 << 20

_READ_BYTES: Final = 256 << 10
_SEND_BYTES: Final = 256 << 10
_DIGEST_BYTES: Final = 1 << 20


class DaemonPool(Executor):
    """Runs calls in a bounded number of daemon threads.

    The interpreter joins the threads of a :class:`~concurrent.futures.ThreadPoolExecutor` at exit, so with a hanging
    server a program would run until all timeouts and retries of all parts are over, long after its own deadline.

    Args:
        threads: Maximum concurrent calls; further ones wait.
    """

    def __init__(self, threads: int) -> None:
        self._free = threads
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_shut = False
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call as soon as a thread is free. See :meth:`concurrent.futures.Executor.submit`.

        Raises:
            PayloadStoreError: The pool was shut down because its store was closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut:
                raise _closed()
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if not self._free:
                return future
            self._free -= 1
        try:
            run_elsewhere(self._work)
        except BaseException:  # the system refuses to start threads, for now
            with self._lock:
                self._free += 1
            future.cancel()
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and optionally cancel waiting ones. Running calls continue.

        Args:
            wait: Ignored: this pool is for calls that may hang.
            cancel_futures: Whether waiting calls fail.
        """
        with self._lock:
            self._is_shut = True
            waiting: list[tuple[Future[Any], object]] = []
            if cancel_futures:
                waiting += self._waiting
                self._waiting.clear()
        for future, _ in waiting:
            if future.set_running_or_notify_cancel():
                # Not cancelled: callers waiting for a part must get an error of the store.
                future.set_exception(_closed())

    def _work(self) -> None:
        """Run calls until none is waiting."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  raised again where the result is asked for
                del call
                future.set_exception(error)
            else:
                # It holds the part, and the next part is read once this call is known to be done.
                del call
                future.set_result(result)
                del result
            del future


def _closed() -> PayloadStoreError:
    return PayloadStoreError("the store is closed")


class UnderWay:
    """Counts the transfers in flight: a single one may use resources that several must share."""

    def __init__(self) -> None:
        # Adding and discarding are atomic, so Ctrl-C in between leaves nothing behind.
        self._running: set[object] = set()

    @contextmanager
    def one_more(self) -> Iterator[int]:
        """Count a transfer during a ``with`` block, which gets the count including this one."""
        one = object()
        try:
            self._running.add(one)
            yield len(self._running)
        finally:
            self._running.discard(one)


def settle(running: Iterable[Future[Any]]) -> None:
    """Cancel calls that have not started, and wait for the rest."""
    running = list(running)
    for future in running:
        future.cancel()
    wait(running)


# Uploads


class Blocks:
    """A part of a payload as a file, read in small blocks.

    HTTP clients send bytes in one call, and the socket's timeout then covers all of it: 100 MB within 5 s, for
    instance. A file is sent in blocks, each with the full timeout.

    Args:
        view: The part; not copied.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size: int | None = -1) -> memoryview:
        """The next block of up to ``size`` bytes, or the rest, without a copy. Blocks are small: see above."""
        end = len(self._view) if size is None or size < 0 else self._at + min(size, _SEND_BYTES)
        block = self._view[self._at : end]
        self._at += len(block)
        return block

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file: clients rewind after checksums and before retries."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = min(max(0, start + offset), len(self._view))
        return self._at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def close(self) -> None:
        """Release the payload: requests may hold their bodies in cycles until the garbage collector runs."""
        self._view = memoryview(b"")


def slices(view: memoryview, most_parts: int) -> Iterator[memoryview]:
    """Cut a payload into parts without copying it.

    Args:
        view: The payload.
        most_parts: Maximum parts the store accepts; parts become larger if necessary.
    """
    step = max(PART_BYTES, -(-len(view) // most_parts))
    return (view[start : start + step] for start in range(0, len(view), step))


def read_parts(reader: BinaryIO, most_parts: int, part_bytes: int = PART_BYTES) -> Iterator[memoryview]:
    """Read a file in parts; raw files, sockets and pipes may return fewer bytes than requested.

    Args:
        reader: The file.
        most_parts: Maximum parts the store accepts.
        part_bytes: Size of all parts but the last, in bytes.

    Raises:
        PayloadStoreError: The file is unreadable: not the store's fault, and not transient.
        PayloadTooLargeError: It has more parts than the store accepts.
    """
    for _ in range(most_parts):
        # Allocated at full size, since a growing buffer is copied repeatedly; and in its own pages, which return to the
        # system with it: the allocator would keep holes of this size.
        part, size = mmap.mmap(-1, part_bytes), 0
        try:
            while size < part_bytes and (block := reader.read(min(_READ_BYTES, part_bytes - size))):
                part[size : size + len(block)] = block
                size += len(block)
        except (OSError, ValueError) as error:
            raise _unreadable(error) from error
        if size:
            yield memoryview(part)[:size]
        if size < part_bytes:
            return
    raise PayloadTooLargeError(f"the payload has more than {most_parts} parts of {part_bytes} bytes")


def released(held: list[memoryview], parts: Iterator[memoryview]) -> Iterator[memoryview]:
    """Yield parts already read, then the others, and release each; itertools.chain would hold the first ones."""
    while held:
        yield held.pop(0)
    yield from parts


def put_parts(
    threads: Executor, parts: Iterable[memoryview], put: Callable[[int, memoryview], T], *, ahead: int
) -> list[T]:
    """Upload parts in parallel; if this raises, none is still in flight.

    Args:
        threads: The threads that upload.
        parts: The payload.
        put: Uploads one part, given its number, starting at 1.
        ahead: Maximum parts in flight, and so in memory, at once.

    Returns:
        The results of ``put``, in the order of the parts.
    """
    running: deque[Future[T]] = deque()
    done: list[T] = []
    try:
        for number, part in enumerate(parts, start=1):
            if len(running) >= ahead:
                done.append(running.popleft().result())
            running.append(threads.submit(put, number, part))
        done.extend(future.result() for future in running)
    except BaseException:
        settle(running)
        raise
    return done


def stream_digest(reader: BinaryIO) -> str:
    """Digest of a reader's remaining contents; the reader is rewound afterwards.

    Returns:
        ``sha256:<hex>``.

    Raises:
        PayloadStoreError: The reader cannot seek, or cannot be read.
    """
    if not reader.seekable():
        raise PayloadStoreError(
            "an id of the content requires the digest before the upload, and this stream can be read only once",
            hint="Pass the digest in the context, or use random ids",
        )
    digest = hashlib.sha256()
    try:
        start = reader.tell()
        while block := reader.read(_DIGEST_BYTES):
            digest.update(block)
        reader.seek(start)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    return DIGEST_PREFIX + digest.hexdigest()


def _unreadable(error: Exception) -> PayloadStoreError:
    return PayloadStoreError(f"the payload's own stream cannot be read: {error}")


# Downloads


def download_ranges(
    threads: Executor,
    size: int,
    fill: Callable[[memoryview, int], object],
    *,
    first: Callable[[memoryview], object] | None = None,
    first_bytes: int = 0,
    part_bytes: int = PART_BYTES,
) -> bytes:
    """Download a payload into one object, in parallel ranges; if this raises, none is still in flight.

    Args:
        threads: The threads that download the ranges.
        size: Size of the payload in bytes.
        fill: Downloads the range at a position into its part of the buffer.
        first: Reads the first range in the caller's thread, from the answer that contained the size.
        first_bytes: Size of that range.
        part_bytes: Size of the other ranges, except the last.
    """
    # In CPython, BytesIO accepts and returns its bytes without a copy if nothing else holds them.
    buffer = io.BytesIO(bytes(size))
    with buffer.getbuffer() as view:

        def fill_part(start: int, end: int) -> None:
            # Released before the result is set: while a view exists, the buffer cannot be taken over.
            with view[start:end] as part:
                fill(part, start)

        rest = [
            threads.submit(fill_part, start, min(start + part_bytes, size))
            for start in range(first_bytes, size, part_bytes)
        ]
        try:
            if first is not None:
                with view[:first_bytes] as part:
                    first(part)
            for future in rest:
                future.result()
        except BaseException:
            settle(rest)  # they write to the buffer
            raise
    return buffer.getvalue()


def open_ranges(size: int, fill: Callable[[memoryview, int], object]) -> BinaryIO:
    """Open a payload for reading and seeking; about one part is held in memory.

    Args:
        size: Size of the payload in bytes.
        fill: Downloads the range at a position into a buffer.
    """
    return cast("BinaryIO", io.BufferedReader(_RangedFile(size, fill), PART_BYTES))


class PayloadFile(io.RawIOBase):
    """A payload as a seekable file of known size; subclasses read from ``_at``.

    Args:
        size: Size of the payload in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("negative position")
        self._at = start + offset
        return self._at


class _RangedFile(PayloadFile):
    """A payload as a file: each read requests a range."""

    def __init__(self, size: int, fill: Callable[[memoryview, int], object]) -> None:
        super().__init__(size)
        self._fill = fill

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or read up to the end of the payload.

        Raises:
            PayloadStoreError: As for a download.
        """
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), self._size - self._at)
            if count <= 0:
                return 0
            with view[:count] as part:
                self._fill(part, self._at)
        self._at += count
        return count


class Answer(Protocol):
    """A server's answer to a range request: facts about the object, and the range.

    Attributes:
        size: Size of the whole object in bytes.
        version: Identifies the object's state, to request further ranges of the same; None if the server has none.
        length: Size of the range; less than requested if the object ends earlier.
    """

    size: int
    version: str | None
    length: int

    def read(self, part: memoryview) -> None:
        """Read the range into a buffer of its length."""

    def close(self) -> None:
        """Release the connection; always called."""


class Source(Protocol):
    """One object of a store, for :class:`Downloads`; raises the store's own errors."""

    def ask(self, start: int, length: int) -> Answer | None:
        """Request a range.

        Args:
            start: Start of the range, in bytes.
            length: Number of bytes, at least 1.

        Returns:
            The answer; None if the object ends at or before the start of the range.
        """

    def fill(self, part: memoryview, start: int, version: str | None) -> None:
        """Read a range into a buffer.

        Args:
            part: The buffer, with the size of the range.
            start: Start of the range.
            version: The expected state of the object.

        Raises:
            Exception: One for which :meth:`is_replaced` is true, if the object has changed.
        """

    def is_replaced(self, error: Exception) -> bool:
        """Whether an error means that the object has changed."""

    def errors(self) -> AbstractContextManager[None]:
        """Converts the errors of the store's library to those of payload stores."""


class Downloads:
    """Downloads objects in parallel ranges, never mixing two states of an object.

    Args:
        threads: The threads that download the ranges.
    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._under_way = UnderWay()

    def get(self, source: Source, check: Callable[[int], None]) -> bytes:
        """Download an object; if larger than a part, in parallel ranges.

        With several downloads in flight, parts are larger, since each request costs milliseconds of CPU.

        Args:
            source: The object.
            check: Called with the size in bytes before memory is allocated; raises if too large.
        """
        with self._under_way.one_more() as count:
            part_bytes = PART_BYTES if count == 1 else _LARGE_PART_BYTES
            return self._get(source, check, 0, None, part_bytes)

    def read_range(self, source: Source, start: int, length: int, check: Callable[[int], None]) -> bytes:
        """Download a range of an object. See :class:`~payload_stores.SupportsRanges`.

        Args:
            source: The object.
            start: Start of the range, in bytes, at least 0.
            length: Number of bytes, at least 0; fewer are returned if the object ends earlier.
            check: Called with the size of the object in bytes.
        """
        return self._get(source, check, start, length, PART_BYTES)

    def open(self, source: Source, check: Callable[[int], None]) -> BinaryIO:
        """Open an object for reading and seeking; about one part is held in memory.

        Args:
            source: The object.
            check: Called with the size in bytes.
        """
        size, version = self._state(source)
        check(size)

        def fill(part: memoryview, start: int) -> None:
            nonlocal version
            with source.errors():
                try:
                    return source.fill(part, start, version)
                except Exception as error:
                    if not source.is_replaced(error):
                        raise
                is_size, version = self._state(source)
                if is_size != size:
                    raise PayloadIntegrityError("the object was replaced while it was read")
                # Renewed by a writer: same size and content.
                return source.fill(part, start, version)

        return open_ranges(size, fill)

    @staticmethod
    def _state(source: Source) -> tuple[int, str | None]:
        """Size of an object in bytes, and its version.

        Not by HEAD: without a body, the answer for a missing payload equals that for a missing bucket.
        """
        answer = source.ask(0, 1)
        if answer is None:
            return 0, None
        try:
            answer.read(memoryview(bytearray(1)))  # so that the connection can be reused
            return answer.size, answer.version
        finally:
            answer.close()

    def _get(
        self, source: Source, check: Callable[[int], None], start: int, length: int | None, part_bytes: int
    ) -> bytes:
        try:
            return self._get_state(source, check, start, length, part_bytes)
        except Exception as error:
            if not source.is_replaced(error):
                raise
        # A writer renewed the object since the first range. Ranges of two states must not be mixed.
        return self._get_state(source, check, start, length, part_bytes)

    def _get_state(
        self, source: Source, check: Callable[[int], None], start: int, length: int | None, part_bytes: int
    ) -> bytes:
        # An empty range requests one byte, to check that the payload exists and is readable.
        answer = source.ask(start, part_bytes if length is None else max(1, min(length, part_bytes)))
        if answer is None:
            return b""
        try:
            check(answer.size)
            if length == 0:
                return b""
            end = answer.size if length is None else min(answer.size, start + length)
            version = answer.version
            return download_ranges(
                self._threads,
                end - start,
                lambda part, at: source.fill(part, start + at, version),
                first=answer.read,
                first_bytes=min(answer.length, end - start),
                part_bytes=part_bytes,
            )
        finally:
            answer.close()
