"""I/O that a record waits for: an upload, a download, a question to a broker, registry or key provider.

A chain performs no I/O itself. ``chain.begin(data, ctx)`` returns the result, or a :class:`Transfer` with the I/O to do
first. The caller chooses where to run it: immediately, in a pool, on an event loop's executor, ahead of a reader. So
the protocol is written once and driven in several ways, like httpx's ``auth_flow``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

from payload_stores.errors import release

__all__ = ["Question", "Transfer", "answered", "finish", "then"]

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
