"""Payloads of a batch of records, downloaded ahead of their reader: in parallel, each once, within bounds."""

from __future__ import annotations

import contextvars
import copy
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Self, TypeAlias

from payload_stores.base import StoredRecord
from payload_stores.errors import PayloadStoreUnavailableError, release
from payload_stores.middleware import run_elsewhere
from serde_chain.base import Buffer
from serde_chain.wire.reference_format import Reference

__all__ = ["Downloads"]

Payload: TypeAlias = Buffer | StoredRecord


class Downloads:
    """Returns payloads in the order of their references, and fetches the next ones meanwhile.

    Whole records (:class:`~payload_stores.base.StoredRecord`) are payloads to it as well. A payload that several
    records refer to is kept for the last of them, unless its room is needed.

    Args:
        download: Fetches and verifies one payload. It runs in another thread, which is left behind when the time is up.
        references: The references that will be read, in this order.
        in_flight: Most downloads at a time.
        max_bytes: Most bytes that are on their way, held for later or taken and not let go (:meth:`let_go`), save that
            one payload always may be. None where all that is taken is held to the end in any case.
        timeout_ms: Deadline for all payloads that are taken before the next :meth:`let_go`, in ms.
    """

    def __init__(
        self,
        download: Callable[[Reference], Payload],
        references: Iterable[Reference],
        *,
        in_flight: int,
        max_bytes: int | None,
        timeout_ms: int,
    ) -> None:
        self._download = download
        self._in_flight = in_flight
        self._max_bytes = max_bytes
        self._timeout_ms = timeout_ms
        self._uses = Counter(references)
        self._ahead = deque(self._uses)  # distinct, in the order of their first use
        self._started: dict[Reference, Future[Payload]] = {}
        self._running: set[Future[Payload]] = set()
        self._taken: dict[Reference, Payload] = {}
        # Of payloads that were started and not dropped, or taken and not released.
        self._sizes: dict[Reference, int] = {}
        self._bytes = 0
        # The assumed size of a reference without one, until larger ones were seen.
        self._assumed = max((max_bytes or 0) // in_flight, 1)
        self._until: float | None = None

    def take(self, reference: Reference) -> Payload:
        """The payload of the next reference.

        Raises:
            PayloadStoreError: As in the download; another object for every record, since each has its own place.
            PayloadStoreUnavailableError: The time is up.
        """
        try:
            if reference not in self._taken:
                self._taken[reference] = self._wait(reference)
        finally:
            self._uses[reference] -= 1
            if self._uses[reference] <= 0:
                self._started.pop(reference, None)
        return self._taken[reference]

    def let_go(self) -> None:
        """Release the payloads that were taken; the deadline begins anew with the next one."""
        for reference in self._taken:
            if reference not in self._started:
                self._charge(reference, None)
        self._taken.clear()
        self._until = None

    def close(self) -> None:
        """Start no more downloads; those that run are not waited for."""
        self._ahead.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self, reference: Reference) -> Payload:
        if self._until is None:
            self._until = time.monotonic() + self._timeout_ms / 1000
        self._fill()
        future = self._started.get(reference)
        left = max(self._until - time.monotonic(), 0)
        if future is None and left:
            # No room was left for it, or it had to make room for others.
            self._make_room(reference)
            future = self._start(reference)
        if future is not None:
            wait([future], left)
        if future is None or not future.done():
            raise PayloadStoreUnavailableError(
                f"the payloads of the batch did not arrive within {self._timeout_ms} ms",
                hint="Check that the store is up and how fast it answers, read smaller batches, or raise "
                "large.message.store.timeout.ms",
                reference=reference.url[:500],
            )
        self._running.discard(future)  # it would hold the payload
        error = future.exception()
        if error is not None:
            self._charge(reference, 0 if self._uses[reference] > 1 else None)
            raise copy.copy(error)
        payload = future.result()
        size = len(payload.value if isinstance(payload, StoredRecord) else payload)
        self._charge(reference, size)
        self._assumed = max(self._assumed, size)
        return payload

    def _fill(self) -> None:
        while self._ahead:
            if len(self._running) >= self._in_flight:
                self._running = {future for future in self._running if not future.done()}
                if len(self._running) >= self._in_flight:
                    return
            reference = self._ahead[0]
            if self._uses[reference] > 0 and reference not in self._sizes:
                if not self._has_room(reference):
                    return
                self._start(reference)
            self._ahead.popleft()

    def _has_room(self, reference: Reference) -> bool:
        return self._max_bytes is None or not self._bytes or self._bytes + self._size(reference) <= self._max_bytes

    def _size(self, reference: Reference) -> int:
        return self._assumed if reference.size is None else reference.size

    def _start(self, reference: Reference) -> Future[Payload]:
        future: Future[Payload] = Future()
        context = contextvars.copy_context()  # so that traces go on in the other thread

        def run() -> None:
            try:
                future.set_result(context.run(self._download, reference))
            except BaseException as error:  # noqa: BLE001, raised where the payload is taken
                release(error)  # they hold their payloads until the batch is done
                future.set_exception(error)

        run_elsewhere(run)
        self._started[reference] = future
        self._running.add(future)
        self._charge(reference, self._size(reference))
        return future

    def _make_room(self, reference: Reference) -> None:
        """Drop what is kept for later records, the youngest first."""
        for kept in reversed(list(self._started)):
            if self._has_room(reference):
                return
            if kept not in self._taken and self._started[kept].done():
                del self._started[kept]
                self._charge(kept, None)

    def _charge(self, reference: Reference, size: int | None) -> None:
        """Count the bytes of a payload; None: it is no longer held."""
        self._bytes += (size or 0) - self._sizes.pop(reference, 0)
        if size is not None:
            self._sizes[reference] = size
