"""Reads the records of a window: payloads are fetched ahead, and inserted when their record is next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from payload_stores.signals import let_through
from serde_chain import base
from serde_chain.clients.window import WaitingMessage, Window, place
from serde_chain.errors import ContextualError, PayloadStoreUnavailableError, in_chain
from serde_chain.transfer import Prefetch, Transfer, finish

if TYPE_CHECKING:
    from serde_chain.chain import DeserializerChain


def prefetch_for(*chains: DeserializerChain | None) -> Prefetch | None:
    """The prefetcher of a consumer's payloads, within the bounds of its stages; None if no stage fetches."""
    stages = _fetching(chains)
    in_flight = max((stage.downloads_in_flight for stage in stages), default=0)
    if not in_flight:
        return None
    # Each within its stage's deadline: a record must not wait for another record's store.
    return Prefetch(methodcaller("run"), in_flight=in_flight, max_bytes=max(stage.downloads_bytes for stage in stages))


def marker_headers(*chains: DeserializerChain | None) -> frozenset[str] | None:
    """Headers one of which every record with a payload has; None if any record may have a payload."""
    markers = [stage.marker_headers() for stage in _fetching(chains)]
    return None if None in markers else frozenset().union(*filter(None, markers))


def _fetching(chains: Iterable[DeserializerChain | None]) -> list[base.SupportsFetch]:
    return [stage for chain in chains if chain for stage in chain.stages if isinstance(stage, base.SupportsFetch)]


class WindowReader:
    """Reads the records of a window.

    Transfers run in other threads, everything else in the calling thread. After an interrupt, the record starts again.
    ``prefetch.notify`` notifies an event loop, which then calls :meth:`read` again.

    Args:
        window: The records.
        begin: Returns a record's decoded parts, or a transfer that leads to them. Changes nothing.
        is_marked: Whether a record may have a payload to fetch.
        prefetch: Runs the transfers; None for chains that fetch nothing.

    Attributes:
        taken_bytes: Bytes of all payloads inserted into records so far.
    """

    def __init__(
        self,
        window: Window,
        begin: Callable[[Any], Any],
        is_marked: Callable[[Any], bool],
        prefetch: Prefetch | None,
    ) -> None:
        self._window = window
        self._begin = begin
        self._is_marked = is_marked
        self._prefetch = prefetch
        # The last record that was examined ahead.
        self._last: Any = None
        self.taken_bytes = 0

    @property
    def fetches_ahead(self) -> bool:
        """Whether there is anything to fetch ahead."""
        return self._prefetch is not None

    @property
    def most_bytes(self) -> float:
        """The most bytes of payloads that are held."""
        return math.inf if self._prefetch is None or self._prefetch.max_bytes is None else self._prefetch.max_bytes

    @property
    def wants_more(self) -> bool:
        """Whether there is room for more transfers."""
        return self._prefetch is not None and len(self._window.under_way) < self._prefetch.in_flight

    @property
    def has_enough(self) -> bool:
        """Whether enough records wait for the running transfers to finish."""
        return self._prefetch is None or len(self._window.under_way) >= 2 * self._prefetch.in_flight

    def read(self, record: Any) -> Any | None:
        """Read the next record, without waiting.

        Returns:
            Its decoded parts; None while its payload is in flight.

        Raises:
            SerializationError: It cannot be read.
        """
        under_way = self._window.under_way
        waiting = under_way.get(id(record))
        if waiting is not None and not waiting.ahead.is_done:
            waiting.is_awaited = True
            return None
        # Removed first: an interrupted attempt must not be continued.
        under_way.pop(id(record), None)
        if waiting is None or (not waiting.is_awaited and not _is_settled(waiting.ahead.error)):
            # A transient failure ahead of its turn may succeed now.
            step = self._begin(record)
        else:
            self.taken_bytes += waiting.ahead.held_bytes
            step = waiting.ahead.transfer.resume(waiting.ahead.take())
        if waiting is not None and self._prefetch is not None:
            waiting = None
            self._prefetch.go_on()
        if self._prefetch is None:
            return finish(step)
        if not isinstance(step, Transfer):
            return step
        [ahead] = self._prefetch.add([step])
        under_way[id(record)] = WaitingMessage(record, ahead, is_awaited=True)
        return None

    def may_wait(self, record: Any) -> bool:
        """Whether a record may have a payload to fetch."""
        return self._prefetch is not None and self._is_marked(record)

    def wait(self, record: Any, seconds: float) -> bool:
        """Wait for a record's payload; returns whether it is there.

        Raises:
            SerializationError: The system cannot start a thread.
        """
        waiting = self._window.under_way.get(id(record))
        if waiting is None or waiting.ahead.is_done or self._prefetch is None:
            return True
        waiting.is_awaited = True
        try:
            return self._prefetch.wait(waiting.ahead, seconds)
        except PayloadStoreUnavailableError as error:
            raise in_chain(error) from error

    def payload_bytes(self, record: Any) -> int:
        """Size of a marked record's payload in bytes; an assumption if the record does not name it."""
        if self._prefetch is None or not self._is_marked(record):
            return 0
        try:
            step = self._begin(record)
        except Exception as error:  # noqa: BLE001  raised again at its turn
            let_through(error)
            return 0
        return self._prefetch.size_of(step) if isinstance(step, Transfer) else 0

    def look_ahead(self) -> bool:
        """Start the marked records that arrived since the last call.

        Returns:
            Whether any records arrived.
        """
        messages = self._window.messages
        new = list(itertools.takewhile(lambda record: record is not self._last, reversed(messages)))[::-1]
        begun = [(record, step) for record in new if (step := self._begin_ahead(record)) is not None]
        self._fetch_ahead(begun)
        self._last = new[-1] if new else self._last
        return bool(new)

    def look_ahead_within_bound(self) -> list[Any]:
        """Start the marked records of the window while their payloads are within :attr:`most_bytes`.

        The first is always started. Nothing is fetched of the records beyond, which the caller drops.

        Returns:
            The records before the first one beyond.
        """
        messages = self._window.messages
        begun: list[tuple[Any, Transfer[Any]]] = []
        count, held = 0, 0
        for record in messages:
            step = self._begin_ahead(record)
            if step is not None and self._prefetch is not None:
                size = self._prefetch.size_of(step)
                if held and held + size > self.most_bytes:
                    break
                held += size
                begun.append((record, step))
            count += 1
        self._fetch_ahead(begun)
        return messages[:count]

    def _fetch_ahead(self, begun: list[tuple[Any, Transfer[Any]]]) -> None:
        """Fetch the payloads of records that have begun."""
        if self._prefetch is not None and begun:
            for (record, _), ahead in zip(begun, self._prefetch.add(step for _, step in begun), strict=True):
                self._window.under_way[id(record)] = WaitingMessage(record, ahead)

    def look_again(self) -> None:
        """Let the next :meth:`look_ahead` examine all records."""
        self._last = None

    def _begin_ahead(self, record: Any) -> Transfer[Any] | None:
        """Start a record ahead; None if it needs no transfer."""
        window, identity = self._window, id(record)
        if identity in window.under_way or identity in window.decoded:
            return None
        if not self._is_marked(record) or (window.paused and place(record) in window.paused):
            return None
        try:
            step = self._begin(record)
        except Exception as error:  # noqa: BLE001  raised again at its turn
            let_through(error)
            return None
        if isinstance(step, Transfer):
            return step
        window.decoded[identity] = step
        return None


def _is_settled(error: BaseException | None) -> bool:
    """Whether a retry would change nothing."""
    return error is None or (isinstance(error, ContextualError) and error.about_record)
