"""Sends records: their transfers run in parallel, and they leave in call order per topic.

This is the side of the calls: admission, waiting, callbacks. A :class:`~serde_chain.clients.driver.Driver` does the
work in daemon threads. The end of the interpreter waits for none of these; unsent records are logged then.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import starmap
from operator import call
from typing import Any

from serde_chain.clients.driver import RETRY_SECONDS, Driver
from serde_chain.clients.outgoing import Buffer, Client, Gate, Ledger, Outgoing

_log = logging.getLogger("serde_chain")


class Sender:
    """Runs the transfers of records, and passes the records to a client in call order per topic.

    Args:
        client: The client.
        in_flight: Most transfers at a time (``large.message.uploads.in.flight``).
        buffer_bytes: Most bytes held by unsent records (``large.message.buffer.bytes``). One record is always
            accepted, regardless of size.
        block_ms: Time in ms for which a record waits for room in the client (``max.block.ms``).
        gate: Decides when records may be sent.
        ledger: Lists payloads in flight.
    """

    def __init__(
        self,
        client: Client,
        *,
        in_flight: int = 8,
        buffer_bytes: int = 256 << 20,
        block_ms: int = 60_000,
        gate: Gate | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._buffer_bytes = buffer_bytes
        self._block_ms = block_ms
        self._last: dict[str, Outgoing] = {}
        self._new_driver = partial(Driver, client, in_flight=in_flight, block_ms=block_ms, gate=gate, ledger=ledger)
        self._reset()
        _senders.add(self)

    def _reset(self) -> None:
        """Begin with nothing; also in a forked process, whose records are its parent's."""
        self._last.clear()
        self._buffer = Buffer(self._buffer_bytes, self._last)
        self._driver = self._new_driver(self._buffer)

    def __len__(self) -> int:
        """Unsent records."""
        return len(self._driver)

    def __bool__(self) -> bool:
        return True

    @property
    def is_idle(self) -> bool:
        """Whether all records are sent, and none is about to go again; reports may be left to :meth:`serve`."""
        return self._driver.is_idle

    @property
    def is_cleaning(self) -> bool:
        """Whether payloads of unsent records are being deleted, or still uploaded."""
        return self._driver.is_cleaning

    @property
    def last(self) -> Mapping[str, Outgoing]:
        """The last record of each topic that came here, for callers that look before every record."""
        return self._last

    def is_clear(self, topic: str) -> bool:
        """Whether a record of a topic may go straight to the client: none is before it."""
        last = self._last.get(topic)
        return last is None or last.is_gone

    def enter(self, record: Outgoing) -> bool:
        """Number a record that bypasses the buffer.

        Returns:
            Whether it may: no record of its topic waits here or may be sent again.
        """
        topic = record.topic
        record.number = next(self._buffer.numbers)
        # As is_clear, written out: this is called for every record.
        return not self._driver.has_waiting(topic) and ((last := self._last.get(topic)) is None or last.is_gone)

    def has_room(self, size: int) -> bool:
        """Whether a record of a size, in bytes, would be accepted now."""
        return self._buffer.has_room(size)

    def offer(self, record: Outgoing) -> bool:
        """Accept a record, if there is room for it.

        Returns:
            Whether it was accepted: it will be sent, or reported.
        """
        if not self._buffer.offer(record):
            return False
        self.wake()
        return True

    def put(self, record: Outgoing, *, while_waiting: Callable[[], object] | None = None) -> None:
        """Accept a record; wait until there is room for it.

        Args:
            record: The record. If this raises, it may have been accepted only where a signal handler has raised.
            while_waiting: Called repeatedly during the wait.

        Raises:
            BufferError: There was no room within ``max.block.ms``.
        """
        seconds = self._block_ms / 1000
        until = time.monotonic() + seconds
        while True:
            turn = threading.Lock()
            turn.acquire()
            self.call_on_change(turn.release)
            if self.offer(record):
                return
            left = until - time.monotonic()
            if left <= 0:
                raise BufferError(
                    f"uploads fill large.message.buffer.bytes "
                    f"({self._buffer_bytes}), and none was finished within {seconds:g} s"
                )
            self.wake()
            turn.acquire(timeout=left if while_waiting is None else min(left, RETRY_SECONDS))
            if while_waiting is not None:
                while_waiting()

    def call_on_change(self, callback: Callable[[], object]) -> None:
        """Call back, once, when a record has left, or a report is there. In a daemon thread; it must not block."""
        self._buffer.call_on_change(callback)

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` until a record has left, a report is there or a payload was deleted."""
        turn = threading.Lock()
        turn.acquire()
        self.call_on_change(turn.release)
        if not self._driver.reports and (self.is_cleaning or not self.is_idle):
            turn.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))
        self._buffer.forget(turn.release)

    def serve(self) -> int:
        """Call the callbacks of records that were not sent, in this thread.

        Returns:
            The number of called ones. An exception of one is raised here; the next call serves the others.
        """
        count = 0
        reports = self._driver.reports
        while reports:
            for number in [*reports]:
                # In one step of C: a removed callback is always called.
                for _ in starmap(call, filter(None, map(reports.pop, (number,), (None,)))):
                    count += 1
        return count

    def wake(self) -> None:
        """Let the driver look for work, in case an interrupted call did not."""
        self._driver.wake()

    def settle(self, report: Any) -> None:
        """Pass a client's report on a record to the gate. May be called again for the same report."""
        self._driver.settle(report)

    def discard(self, references: Iterable[str]) -> None:
        """Delete payloads of records that were handed to the client and will never be read."""
        self._driver.discard(references)

    def purge(self, error: Exception) -> None:
        """Drop all unsent records: they are reported with an error, and their payloads deleted."""
        if len(self):
            self._driver.purge(self._buffer.last_number, error)

    def begin_transaction(self) -> None:
        """Begin a transaction, once the client has begun it: payloads belong to it until its end.

        Payloads of a transaction whose end was not reported here stay: it may have been committed.
        """
        self._driver.begin_transaction()

    @property
    def failure(self) -> BaseException | None:
        """Why a record of the transaction was not sent, if one was not."""
        return self._driver.failure

    def commit(self) -> None:
        """Note that the transaction may be committed from now on: nothing of it is left for the next process."""
        self._driver.commit()

    def end(self, *, delete: bool) -> None:
        """End the transaction.

        Args:
            delete: Whether it was aborted: its payloads are deleted.
        """
        self._driver.end_transaction(delete=delete)


_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


def _forget_all() -> None:
    for sender in list(_senders):
        sender._reset()  # noqa: SLF001, of this module


def _warn_of_undelivered() -> None:
    for sender in list(_senders):
        if count := len(sender):
            _log.warning(
                "%d %s not sent, because the process ended first: wait until flush() returns 0, or call close()",
                count,
                "record was" if count == 1 else "records were",
            )


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_warn_of_undelivered)
