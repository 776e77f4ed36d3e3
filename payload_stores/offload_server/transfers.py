"""Uploads and downloads between the event loop and a blocking payload store."""

from __future__ import annotations

import asyncio
import io
import logging
import mmap
import tempfile
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, cast
from uuid import UUID

from starlette.types import Receive, Send

from payload_stores.base import PayloadStore, SupportsDelete, SupportsStreaming
from payload_stores.errors import (
    PayloadIntegrityError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
)
from payload_stores.offload_server import responses as answers
from payload_stores.offload_server import uploads
from payload_stores.offload_server.errors import RefusedError
from payload_stores.offload_server.index import Entry, Index
from payload_stores.offload_server.metrics import Metrics
from payload_stores.offload_server.pipe import Pipe, PipeClosedError
from payload_stores.offload_server.quotas import Shares, WaitBudget
from payload_stores.offload_server.requests import Caller, GoneError, Limits
from payload_stores.offload_server.room import Room, now_ms
from payload_stores.threads import DaemonPool

_log = logging.getLogger(__name__)

T = TypeVar("T")

_BLOCK: Final = 1 << 20
# Threads for short calls (index, permissions, tokens), which must not wait for transfers.
_SHORT_CALLS: Final = 8


class Transfers:
    """Transfers messages into and out of a store, in bounded memory.

    Args:
        store: The payload store; closed by the caller.
        index: The index of messages; closed by the caller.
        spool: Folder for payloads spooled for a store that cannot stream.
        disks: Folders on the disks with the payloads.
        limits: Limits.
        metrics: Counters.
    """

    def __init__(  # noqa: PLR0917  all are parts of the server
        self,
        store: PayloadStore,
        index: Index,
        spool: Path,
        disks: Collection[Path],
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._index = index
        self._spool = spool
        self._limits = limits
        self._metrics = metrics
        self._shares = Shares(limits)
        self._room = Room(limits, index, disks)
        # A transfer holds one thread; if the store hangs, for longer than its slot.
        self._threads = DaemonPool(2 * limits.transfers)
        self._short = DaemonPool(_SHORT_CALLS)

    def close(self) -> None:
        """End the threads, without waiting for running calls."""
        for threads in (self._threads, self._short):
            threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a short function that may block.

        Raises:
            PayloadStoreUnavailableError: It took too long.
        """
        return await self._within(asyncio.get_running_loop().run_in_executor(self._short, function, *arguments))

    async def upload(self, topic: str, receive: Receive, length: int | None, sender: Caller) -> Entry:
        """Store the message in a request's body.

        The message becomes readable only if all of it was valid: the store sees the payload's end after the whole
        document has been checked, and the message enters the index after it is stored.

        Args:
            topic: The topic.
            receive: Returns the body.
            length: Declared size of the body in bytes, if any.
            sender: The sender.

        Raises:
            RefusedError: The body is not an upload (400), too large (413), too slow (408), a duplicate (422), without
                room (507), or truncated.
            PayloadStoreError: The store failed.
        """
        async with self._shares.place(sender):
            most = self._limits.max_bytes if length is None else length
            with self._metrics.transfers.labels("upload").track_inprogress(), self._room.under_way(sender.user, most):
                await self.call(self._room.check, sender.user)
                entry = await self._take(topic, receive, length)
                if self._room.counts_bytes:
                    await self.call(self._room.note, sender.user, entry.size)
                return entry

    async def _take(self, topic: str, receive: Receive, length: int | None) -> Entry:
        parser = uploads.UploadParser(self._limits.max_bytes, length)
        pipe = Pipe()
        publishing: Future[str] | None = None
        try:
            async for chunk in WaitBudget(self._limits).body(receive):
                self._metrics.bytes.labels("upload").inc(len(chunk))
                pieces = parser.feed(chunk)
                if parser.size is not None and publishing is None:
                    publishing = self._threads.submit(self._publish, topic, pipe)
                for piece in pieces:
                    await self._write(pipe, piece)
            upload = parser.upload()
            if await self.call(self._index.find, upload.id) is not None:
                raise _duplicate(upload.id)
        except BaseException as error:
            pipe.fail(error if isinstance(error, PayloadStoreError) else RefusedError("cancelled"))
            if publishing is not None and isinstance(error, PayloadStoreError):
                await self._given_up(publishing, error)
            raise
        assert publishing is not None  # noqa: S101  a document without a message is refused above
        pipe.end()
        reference = await self._finished(publishing)
        return await self._enter(topic, reference, upload)

    async def download(self, entry: Entry, start: Callable[[int], Awaitable[bool]], send: Send, sender: Caller) -> None:
        """Send a message as BSON.

        Args:
            entry: The message.
            start: Begins the answer, given its length in bytes, and returns whether to send its body; called after the
                store has opened the payload.
            send: Sends the answer's pieces.
            sender: The sender of the request.

        Raises:
            PayloadStoreError: The payload is missing or changed; if raised after ``start``, the connection must be cut,
                since the length was declared.
        """
        async with self._shares.place(sender):
            with self._metrics.transfers.labels("download").track_inprogress():
                await self._give(entry, start, send)

    async def _give(self, entry: Entry, start: Callable[[int], Awaitable[bool]], send: Send) -> None:
        opening = self._threads.submit(self._open, entry.reference)
        with closing(_Blocks(await self._within(asyncio.wrap_future(opening)), self._threads, self._read)) as blocks:
            head, tail = answers.frame(entry.size, entry.headers, entry.key, entry.timestamp_ms)
            if not await start(len(head) + entry.size + len(tail)):
                await send({"type": "http.response.body", "body": b""})
                return
            answer = _Answer(send, WaitBudget(self._limits), self._metrics)
            await answer.send(head)
            await self._send_payload(answer, blocks, entry)
            await answer.send(tail, more=False)

    async def _send_payload(self, answer: _Answer, blocks: _Blocks, entry: Entry) -> None:
        left = entry.size
        reading = blocks.next()
        while left:
            block = await self._within(asyncio.wrap_future(reading))
            left -= len(block)
            if not block or left < 0:
                raise PayloadIntegrityError("the payload's size has changed", reference=entry.reference)
            # Read the next block while this one is sent.
            reading = blocks.next()
            await answer.send(block)

    async def _write(self, pipe: Pipe, piece: memoryview) -> None:
        try:
            async with asyncio.timeout(self._limits.store_seconds):
                await pipe.write(piece)
        except TimeoutError:
            raise self._too_slow() from None

    async def _enter(self, topic: str, reference: str, upload: uploads.Upload) -> Entry:
        headers = answers.stored_headers(upload.headers)
        entry = Entry(upload.id, topic, reference, upload.size, headers, upload.key, now_ms())
        try:
            added = await self.call(self._index.add, entry)
        except PayloadStoreError:
            # Keep the payload: the entry may exist after all, and would refer to nothing.
            _log.exception("message %s is stored at %s, but the index failed", upload.id, reference)
            raise
        if not added:
            # Another upload with the same id was added since the lookup.
            self._threads.submit(self._delete, reference)
            raise _duplicate(upload.id)
        return entry

    def _publish(self, topic: str, pipe: Pipe) -> str:
        with closing(pipe), self._metrics.store("upload"):
            if isinstance(self._store, SupportsStreaming):
                return self._store.publish_stream(topic, cast("BinaryIO", pipe))
            return self._publish_spooled(topic, pipe)

    def _publish_spooled(self, topic: str, pipe: Pipe) -> str:
        with tempfile.TemporaryFile(dir=self._spool) as file:
            while block := pipe.read(_BLOCK):
                file.write(block)
            if not file.tell():
                return self._store.publish(topic, b"")
            file.flush()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                return self._store.publish(topic, view)

    def _open(self, reference: str) -> BinaryIO:
        with self._metrics.store("download"):
            if isinstance(self._store, SupportsStreaming):
                return self._store.open(reference)
            return io.BytesIO(self._store.download(reference))

    def _read(self, file: BinaryIO) -> bytes:
        with self._metrics.store("download"):
            return file.read(_BLOCK)

    def _delete(self, reference: str) -> None:
        if isinstance(self._store, SupportsDelete):
            try:
                self._store.delete(reference)
            except PayloadStoreError:
                _log.exception("%s is not needed, but could not be deleted", reference)

    async def _finished(self, publishing: Future[str]) -> str:
        """The reference, if the store finishes in time; otherwise a payload stored later is deleted."""
        try:
            return await self._within(asyncio.wrap_future(publishing))
        except PayloadStoreUnavailableError:
            publishing.add_done_callback(self._delete_late)
            raise

    async def _given_up(self, publishing: Future[str], error: PayloadStoreError) -> None:
        """Wait until a store has discarded a payload that was invalid, or that it refused.

        Raises:
            PayloadStoreError: The store refused it; the message says why.
        """
        try:
            reference = await self._finished(publishing)
        except PayloadStoreError as failure:
            if isinstance(error, PipeClosedError):
                raise failure from None
            return
        _log.error("the store kept %s although its stream failed; it is deleted", reference)
        self._threads.submit(self._delete, reference)

    def _delete_late(self, publishing: Future[str]) -> None:
        if not publishing.cancelled() and publishing.exception() is None:
            self._delete(publishing.result())

    async def _within(self, waiting: asyncio.Future[T]) -> T:
        """Wait for a thread, up to a timeout."""
        done, _ = await asyncio.wait({waiting}, timeout=self._limits.store_seconds)
        if not done:
            # Retrieve its result in any case, to avoid asyncio's warning.
            waiting.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise self._too_slow()
        return waiting.result()

    def _too_slow(self) -> PayloadStoreUnavailableError:
        return PayloadStoreUnavailableError(f"no answer within {self._limits.store_seconds:g} s")


class _Answer:
    """The body of an answer, sent at the client's pace."""

    def __init__(self, send: Send, budget: WaitBudget, metrics: Metrics) -> None:
        self._send = send
        self._budget = budget
        self._passed = metrics.bytes.labels("download")

    async def send(self, block: bytes, *, more: bool = True) -> None:
        try:
            await self._budget.wait(self._send({"type": "http.response.body", "body": block, "more_body": more}))
        except TimeoutError:
            raise GoneError("the client did not read the answer in time") from None
        self._budget.moved(len(block))
        self._passed.inc(len(block))


class _Blocks:
    """Reads a payload in blocks, in threads."""

    def __init__(self, file: BinaryIO, threads: DaemonPool, read: Callable[[BinaryIO], bytes]) -> None:
        self._file = file
        self._threads = threads
        self._read = read
        self._reading: Future[bytes] | None = None

    def next(self) -> Future[bytes]:
        """Start reading the next block; the previous one must have been read."""
        self._reading = self._threads.submit(self._read, self._file)
        return self._reading

    def close(self) -> None:
        """Close the payload in a thread, after the last read."""
        if self._reading is None:
            self._threads.submit(self._file.close)
        else:
            self._reading.add_done_callback(lambda _: self._file.close())


def _duplicate(message_id: UUID) -> RefusedError:
    return RefusedError(f"message {message_id} already exists", status=422)
