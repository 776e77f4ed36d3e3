"""I/O that a record waits for: a payload to be published or fetched, a topic's limit to be asked for.

A chain does no I/O of its own accord. ``chain.begin(data, ctx)`` returns the result, or a :class:`Transfer` that says
what has to be done first. The caller does it where it likes: on the spot, in a pool, on an event loop's executor, ahead
of a reader. So the protocol is written once and driven in several ways, as httpx's ``auth_flow`` is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["Question", "Transfer", "answer", "finish", "then"]

T = TypeVar("T")


class Transfer(Generic[T]):  # no ABC: isinstance() takes four times as long, for each stage of each record
    """One step of I/O between two steps of a chain.

    Attributes:
        size: Bytes that the transfer holds or will return; None where that is not known. For bounds on memory.
        key: Transfers with equal keys have equal results, so one run can serve them all; None otherwise.
        within_call: Whether it is done before a producer's call returns, which raises its error: a question about the
            configuration, such as the id of a schema, and no payload.

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
        """Do it, within the deadline of its stage. Blocks, and is safe in any thread: it touches no record.

        Returns:
            The result, for :meth:`resume`.

        Raises:
            SerializationError: It failed. A stage's own transfer may raise a PayloadStoreError instead, which a chain
                turns into one of these.
        """
        raise NotImplementedError

    def work(self) -> T:
        """Do it without a deadline, for a driver that has one for several transfers together."""
        return self.run()

    def place(self) -> str | None:
        """Choose where :meth:`run` will put what it makes for this record alone; called before it, in any thread.

        A driver that notes the place first can delete the object later, whatever becomes of the process.

        Returns:
            The reference; None where nothing is made, where others may share it, or where it is not known before.
        """
        return None

    def made(self, _result: T, /) -> str | None:
        """The reference of what :meth:`run` made for this record alone, for a driver to delete if it is never sent.

        Args:
            _result: What :meth:`run` returned.

        Returns:
            The reference; None where nothing was made, where others may share it, or where it cannot be deleted.
        """
        return None

    def resume(self, result: T, /) -> Any:
        """Go on with the record, in the thread to which it belongs: headers are written here.

        Args:
            result: What :meth:`run` returned.

        Returns:
            The data; or another transfer.

        Raises:
            SerializationError: The record cannot go on.
        """
        raise NotImplementedError


class Question(Transfer[T]):
    """Asks for what many records need, and goes on with one.

    Args:
        ask: Asks for it, within a deadline of its own.
        go_on: Called with the answer; returns data or another transfer.
        key: As of any transfer.
        within_call: Likewise.

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
    """Go on with data: now, or once the transfers that lead to it are done.

    Args:
        step: What a ``begin`` or a ``resume`` returned.
        go_on: Called with the data; returns data or another transfer.
        failed: Called with what one of these transfers raises, to raise it with its place, or to return the end result.
    """
    return _Then(step, go_on, failed) if isinstance(step, Transfer) else go_on(step)


class _Then(Transfer[Any]):
    """A transfer, and the step after the data to which it leads."""

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

    def place(self) -> str | None:
        place: str | None = self._do(self._transfer.place)
        return place

    def made(self, result: Any, /) -> str | None:
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


def _run(transfer: Transfer[Any]) -> Any:
    return transfer.run()


def finish(step: Any, run: Callable[[Transfer[Any]], Any] = _run) -> Any:
    """Run transfers on the spot until the data is there.

    Args:
        step: The result of a ``begin`` or a ``resume``.
        run: Runs a transfer and returns its result.

    Example:
        >>> finish(b"data")
        b'data'
    """
    while isinstance(step, Transfer):
        step = step.resume(run(step))
    return step


def answer(step: Any, run: Callable[[Transfer[Any]], Any] = _run) -> Any:
    """Run transfers on the spot that belong into a producer's call; the first other one is left to the caller.

    Args:
        step: The result of a ``begin`` or a ``resume``.
        run: As for :func:`finish`.

    Returns:
        The data, or a transfer.

    Example:
        >>> answer(b"data")
        b'data'
    """
    while isinstance(step, Transfer) and step.within_call:
        step = step.resume(run(step))
    return step
