"""Several transfers of one record, side by side, as one: the fields of a record are uploaded or fetched together."""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from payload_stores.errors import PayloadStoreUnavailableError, release
from payload_stores.threads import run_in_daemon_thread
from serde_chain.transfer import Transfer

__all__ = ["Slots", "together"]

_log: Final = logging.getLogger("serde_chain")


class Slots:
    """A limit on transfers that run at a time, for all records of a stage.

    A queue of tokens, since a signal handler that raises can leave a semaphore locked.

    Args:
        most: The limit.
        patience_ms: Longest wait for a slot in ms. Each transfer ends within its own deadline.
    """

    def __init__(self, most: int, patience_ms: int) -> None:
        self.most = most
        self._patience_s = patience_ms / 1000
        self._tokens: SimpleQueue[None] = SimpleQueue()
        for _ in range(most):
            self._tokens.put(None)

    def run(self, call: Callable[[], Any]) -> Any:
        """Call a function within the limit.

        Raises:
            PayloadStoreUnavailableError: No slot became free in time.
        """
        try:
            self._tokens.get(timeout=self._patience_s)
        except Empty:
            raise PayloadStoreUnavailableError(
                f"other transfers took all of {self.most} slots for {self._patience_s:g} s",
                hint="Check how fast the store answers, or allow more transfers in flight",
            ) from None
        try:
            return call()
        finally:
            self._tokens.put(None)


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

    def _run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        # In other threads even if there is only one: a signal handler that raises here would lose its slot.
        work = _Work(calls, self._slots)
        done = False
        try:
            work.start()
            results = work.wait()
            done = True
        finally:
            if not done:
                self._roll_back(work)
        return results

    def _roll_back(self, work: _Work) -> None:
        """Delete what the others made or will make, in their threads if those still run."""
        transfers, undo = list(self._transfers.values()), self._undo

        def drop(at: int, result: Any) -> None:
            nonlocal undo
            for reference in transfers[at].made(result):
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

        work.cancel(drop)


class _Work:
    """Calls in daemon threads, so that no interrupt ends one of them halfway.

    Args:
        calls: The calls.
        slots: Limits how many run at a time.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]], slots: Slots) -> None:
        self._waiting = deque(enumerate(calls))
        self._count = len(calls)
        self._slots = slots
        self._outcomes: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        self._drop: Callable[[int, Any], None] | None = None
        self._context = contextvars.copy_context()  # so that traces continue in the other threads
        self.results: dict[int, Any] = {}
        self._left = self._count

    def start(self) -> None:
        """Start as many threads as may run at a time."""
        for _ in range(min(self._count, self._slots.most)):
            run_in_daemon_thread(self._work)

    def wait(self) -> list[Any]:
        """The results, in order. Waits for all calls that have begun; each ends within its own deadline.

        Raises:
            Exception: The first error; calls that have not begun then are not made.
        """
        first: BaseException | None = None
        error: BaseException | None = None
        while self._left:
            at, result, error = self._outcomes.get()
            self._left -= 1
            if error is None:
                self.results[at] = result
            elif first is None:
                first = error
                self._left -= self._skip()
        if first is not None:
            try:
                raise first
            finally:
                del first, error  # or it would hold itself, by this frame
        return [self.results[at] for at in range(self._count)]

    def cancel(self, drop: Callable[[int, Any], None]) -> None:
        """Drop all results, those of running calls too."""
        self._drop = drop
        self._skip()
        for at, result in self.results.items():
            drop(at, result)
        self._drop_arrived()

    def _skip(self) -> int:
        """Forget the calls that have not begun; returns their number."""
        count = 0
        while True:
            try:
                self._waiting.popleft()
            except IndexError:
                return count
            count += 1

    def _work(self) -> None:
        while True:
            try:
                at, call = self._waiting.popleft()
            except IndexError:
                return
            result: Any = None
            failure: BaseException | None = None
            try:
                result = self._context.copy().run(self._slots.run, call)
            except BaseException as error:  # noqa: BLE001  raised where the results are waited for
                release(error)
                failure = error
            self._outcomes.put((at, result, failure))
            if self._drop is not None:  # cancelled meanwhile
                self._drop_arrived()

    def _drop_arrived(self) -> None:
        drop = self._drop
        while drop is not None:
            try:
                at, result, error = self._outcomes.get_nowait()
            except Empty:
                return
            if error is None:
                drop(at, result)
