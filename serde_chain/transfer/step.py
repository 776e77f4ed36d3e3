"""I/O that a record waits for: an upload, a download, a question to a broker, registry or key provider.

A chain performs no I/O itself. ``chain.begin(data, ctx)`` returns the result, or a :class:`Transfer` with the I/O to do
first. The caller chooses where to run it: immediately, in a pool, on an event loop's executor, ahead of a reader. So
the protocol is written once and driven in several ways, like httpx's ``auth_flow``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from payload_stores.errors import PayloadStoreUnavailableError, release
from payload_stores.threads import Call, DaemonPool

T = TypeVar("T")

_log: Final = logging.getLogger("serde_chain")


class Transfer(Generic[T]):  # no ABC: isinstance() takes four times as long, for each stage of each record
    """One step of I/O between two steps of a chain.

    Attributes:
        size: Bytes that the transfer holds or will return, for bounds on memory; None if unknown.
        key: Transfers with equal keys have equal results, so one run serves all of them; None if results may differ.
        within_call: Whether a producer's call runs it before it returns, and raises its error: true for questions about
            the configuration, such as the id of a schema, and not for payloads.

    Example:
        >>> from serde_chain import RecordContext, SerializerChain
        >>> config = {"value.serializers": "bytes, large-message", "large.message.payload.store.class": "memory"}
        >>> with SerializerChain.from_config(config) as chain:
        ...     step = chain.begin(bytes(2_000_000), RecordContext("alerts", "value", []))
        ...     while isinstance(step, Transfer):
        ...         step = step.resume(step.run())
        >>> bytes(step)[:17]
        b'memory:///alerts/'
    """

    size: int | None = None
    key: Hashable | None = None
    within_call: bool = False

    def run(self) -> T:
        """Run the I/O within the stage's deadline. Blocks; thread-safe, since it touches no record.

        Returns:
            The result, for :meth:`resume`.

        Raises:
            SerializationError: It failed. A stage's own transfer may raise PayloadStoreError, which a chain converts.
        """
        raise NotImplementedError

    def work(self) -> T:
        """Run it without a deadline, for a driver that has one deadline for several transfers."""
        return self.run()

    def places(self) -> tuple[str, ...]:
        """Choose the references of the objects that :meth:`run` will make for this record alone.

        Called before it, in any thread. A driver that records the references first can delete the objects later, even
        after a crash.

        Returns:
            The references, without those of objects that records may share, or that are not known in advance.
        """
        return ()

    def made(self, _result: T, /) -> tuple[str, ...]:
        """References of the objects that :meth:`run` made for this record alone; deleted if the record is not sent.

        Args:
            _result: Result of :meth:`run`.

        Returns:
            The references, without those of objects that records may share, or that cannot be deleted.
        """
        return ()

    def resume(self, result: T, /) -> Any:
        """Continue with the record, in the thread that owns it: this writes headers.

        Args:
            result: Result of :meth:`run`.

        Returns:
            The data; or another transfer.

        Raises:
            SerializationError: A later step failed.
        """
        raise NotImplementedError


class Question(Transfer[T]):
    """Asks for something that many records need, and continues with one record.

    Args:
        ask: Returns the answer; has its own deadline.
        go_on: Called with the answer; returns data or another transfer.
        key: As for any transfer.
        within_call: As for any transfer.

    Example:
        >>> finish(Question(lambda: 7, lambda schema_id: b"record of schema %d" % schema_id))
        b'record of schema 7'
    """

    def __init__(
        self,
        ask: Callable[[], T],
        go_on: Callable[[T], Any],
        *,
        key: Hashable | None = None,
        within_call: bool = False,
    ) -> None:
        self.size, self.key, self.within_call = 0, key, within_call
        self._ask = ask
        self._go_on = go_on

    def run(self) -> T:
        """Ask. See :meth:`Transfer.run`."""
        return self._ask()

    def resume(self, result: T, /) -> Any:
        """Go on. See :meth:`Transfer.resume`."""
        return self._go_on(result)


def then(step: Any, go_on: Callable[[Any], Any], failed: Callable[[Exception], Any] | None = None) -> Any:
    """Continue with data: now, or once the transfers that lead to it are done.

    Args:
        step: Result of a ``begin`` or a ``resume``.
        go_on: Called with the data; returns data or another transfer.
        failed: Called with an error of one of these transfers; raises it with its place, or returns the end result.
    """
    return _Then(step, go_on, failed) if isinstance(step, Transfer) else go_on(step)


class _Then(Transfer[Any]):
    """A transfer, and the step that follows it."""

    def __init__(
        self, transfer: Transfer[Any], go_on: Callable[[Any], Any], failed: Callable[[Exception], Any] | None
    ) -> None:
        self._transfer = transfer
        self._go_on = go_on
        self._failed = failed
        self.size, self.key, self.within_call = transfer.size, transfer.key, transfer.within_call

    def run(self) -> Any:
        return self._do(self._transfer.run)

    def work(self) -> Any:
        return self._do(self._transfer.work)

    def places(self) -> tuple[str, ...]:
        places: tuple[str, ...] = self._do(self._transfer.places)
        return places

    def made(self, result: Any, /) -> tuple[str, ...]:
        return self._transfer.made(result)

    def _do(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            if self._failed is None:
                raise
            return self._failed(error)

    def resume(self, result: Any, /) -> Any:
        try:
            step = self._transfer.resume(result)
        except Exception as error:
            if self._failed is None:
                raise
            return self._failed(error)
        return then(step, self._go_on, self._failed)


def finish(step: Any, undo: Callable[[str], object] | None = None) -> Any:
    """Run transfers immediately until the data is there.

    Args:
        step: Result of a ``begin`` or a ``resume``.
        undo: Deletes an object that a transfer has made, if a later step fails. Its own errors are logged.

    Example:
        >>> finish(b"data")
        b'data'
    """
    made: list[str] = []
    try:
        while isinstance(step, Transfer):
            result = step.run()
            made += step.made(result)
            step = step.resume(result)
    except BaseException:
        for reference in made:
            try:
                if undo is not None:
                    undo(reference)
            except Exception as error:  # noqa: BLE001  the first error is raised; a sweep finds the rest
                release(error)
                _log.warning("the payload of a record that failed could not be deleted: %s", error)
        raise
    return step


def answered(step: Any, go_on: Callable[[Any], Any]) -> Any:
    """Go on once the transfers that belong in a producer's call are done, such as registry lookups.

    Args:
        step: Result of a ``begin`` or a ``resume``.
        go_on: Called with the data, or with the first transfer that the caller does not wait for: a payload's.

    Returns:
        The result of ``go_on``, or a transfer that leads to it.

    Example:
        >>> answered(b"data", bytes.upper)
        b'DATA'
    """
    return _Answered(step, go_on) if isinstance(step, Transfer) and step.within_call else go_on(step)


class _Answered(Transfer[Any]):
    """A transfer of a producer's call, and the step after the last of them."""

    def __init__(self, transfer: Transfer[Any], go_on: Callable[[Any], Any]) -> None:
        self._transfer = transfer
        self._go_on = go_on
        self.size, self.key, self.within_call = transfer.size, transfer.key, True

    def run(self) -> Any:
        return self._transfer.run()

    def resume(self, result: Any, /) -> Any:
        return answered(self._transfer.resume(result), self._go_on)


class TransferSlots(DaemonPool):
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
                with suppress(IndexError):
                    self._waiting.append(waiting.popleft())  # this thread takes it, or the one that comes before it
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
    slots: TransferSlots,
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
        >>> together([b"a", b"b"], b"".join, slots=TransferSlots(8, 60_000))
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
        slots: TransferSlots,
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
