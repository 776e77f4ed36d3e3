"""Several transfers of one record, side by side, as one: the fields of a record are uploaded or fetched together."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, Final

from payload_stores.errors import PayloadStoreUnavailableError, release
from payload_stores.threads import Call, DaemonPool
from serde_chain.transfer import Transfer

__all__ = ["Slots", "together"]

_log: Final = logging.getLogger("serde_chain")


class Slots(DaemonPool):
    """A limit on transfers that run at a time, for all records of a stage.

    Args:
        most: The limit.
        patience_ms: Longest wait for a slot in ms. Each transfer ends within its own deadline.
    """

    def __init__(self, most: int, patience_ms: int) -> None:
        super().__init__(most)
        self._patience_s = patience_ms / 1000

    def run(self, calls: Sequence[_Part]) -> list[Any]:
        """Make the calls of a record, and return their results in order. Records take turns.

        Raises:
            PayloadStoreUnavailableError: No slot became free in time.
            Exception: The first error, after the end of all calls that had begun then; the others are not made.
        """
        waiting = deque(calls)
        failed: list[BaseException] = []

        def follow(error: BaseException | None) -> None:
            if error is None:
                with suppress(IndexError, PayloadStoreUnavailableError):  # the latter is the call's error
                    self.start([waiting.popleft()])
                return
            failed.append(error)
            for call in calls:
                call.follow = None
                call.fail(error)

        for call in calls:
            call.follow = follow
        self.start([waiting.popleft() for _ in range(min(len(calls), self.slots))])
        for call in calls:
            while not call.wait(self._patience_s):
                if not call.has_begun:
                    raise PayloadStoreUnavailableError(
                        f"other transfers took all of {self.slots} slots for {self._patience_s:g} s",
                        hint="Check how fast the store answers, or allow more transfers in flight",
                    )
        if failed:
            raise failed.pop(0)
        return [call.result for call in calls]


class _Part(Call[Any]):
    """A call of a record, in a thread even if it is the only one: a signal handler that raises must not end it.

    Attributes:
        follow: Called at the end with the error, if any.
    """

    follow: Callable[[BaseException | None], None] | None = None

    def ended(self) -> None:
        if self.error is not None:
            release(self.error)
        follow, self.follow = self.follow, None  # which holds the other calls
        if follow is not None:
            follow(self.error)


def together(
    steps: Iterable[Any],
    go_on: Callable[[list[Any]], Any],
    *,
    slots: Slots,
    undo: Callable[[str], object] | None = None,
) -> Any:
    """Continue with the data of several steps: now, or once their transfers are done.

    Args:
        steps: Results of ``begin`` or ``resume``: data, or transfers.
        go_on: Called with the data in the order of the steps; returns data or another transfer.
        slots: Limits the transfers that run at a time.
        undo: Deletes an object that one of the transfers has made, if another one fails.

    Returns:
        The result of ``go_on``, or a transfer that leads to it.

    Example:
        >>> together([b"a", b"b"], b"".join, slots=Slots(8, 60_000))
        b'ab'
    """
    steps = list(steps)
    if not any(isinstance(step, Transfer) for step in steps):
        return go_on(steps)
    return _Together(steps, go_on, slots, undo)


class _Together(Transfer[list[Any]]):
    """Runs the transfers among some steps; equal ones once."""

    def __init__(
        self,
        steps: Sequence[Any],
        go_on: Callable[[list[Any]], Any],
        slots: Slots,
        undo: Callable[[str], object] | None,
    ) -> None:
        self._steps = steps
        self._go_on = go_on
        self._slots = slots
        self._undo = undo
        self._transfers: dict[Hashable, Transfer[Any]] = {}
        self._keys: list[Hashable] = []
        for step in steps:
            key: Hashable = None
            if isinstance(step, Transfer):
                key = id(step) if step.key is None else step.key
                self._transfers.setdefault(key, step)
            self._keys.append(key)
        transfers = self._transfers.values()
        sizes = [transfer.size for transfer in transfers]
        self.size = None if None in sizes else sum(size or 0 for size in sizes)
        self.key = None if any(transfer.key is None for transfer in transfers) else ("together", *self._transfers)
        self.within_call = all(transfer.within_call for transfer in transfers)

    def run(self) -> list[Any]:
        return self._run([transfer.run for transfer in self._transfers.values()])

    def work(self) -> list[Any]:
        return self._run([transfer.work for transfer in self._transfers.values()])

    def places(self) -> tuple[str, ...]:
        return tuple(place for transfer in self._transfers.values() for place in transfer.places())

    def made(self, results: list[Any], /) -> tuple[str, ...]:
        pairs = zip(self._transfers.values(), results, strict=True)
        return tuple(reference for transfer, result in pairs for reference in transfer.made(result))

    def resume(self, results: list[Any], /) -> Any:
        by_key = dict(zip(self._transfers, results, strict=True))
        steps = [
            step.resume(by_key[key]) if isinstance(step, Transfer) else step
            for step, key in zip(self._steps, self._keys, strict=True)
        ]
        return together(steps, self._go_on, slots=self._slots, undo=self._undo)

    def _run(self, work: Iterable[Callable[[], Any]]) -> list[Any]:
        calls = [_Part(each) for each in work]
        try:
            return self._slots.run(calls)
        except BaseException:
            self._roll_back(calls)
            raise

    def _roll_back(self, calls: Sequence[_Part]) -> None:
        """Delete what the others made or will make, in their threads if those still run."""
        undo = self._undo

        def drop(transfer: Transfer[Any], call: Call[Any]) -> None:
            nonlocal undo
            for reference in () if call.error is not None else transfer.made(call.result):
                if undo is None:
                    return
                try:
                    undo(reference)
                except PayloadStoreUnavailableError as error:
                    undo = None  # one wait for a store that is down, not one for each payload
                    release(error)
                    _log.warning("payloads of fields whose record was not sent could not be deleted: %s", error)
                except Exception as error:  # noqa: BLE001  the first error is raised; a sweep finds the rest
                    release(error)
                    _log.warning("the payload of a field whose record was not sent could not be deleted: %s", error)

        for call in calls:
            call.fail(CancelledError())
        for transfer, call in zip(self._transfers.values(), calls, strict=True):
            call.drop(partial(drop, transfer))
