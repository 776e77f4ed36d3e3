"""Decodes aiokafka's records by deserializer chains, without blocking the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic

from aiokafka.structs import ConsumerRecord

from payload_stores.signals import let_through
from serde_chain import codec
from serde_chain.chain import DeserializerChain
from serde_chain.clients.client_chains import ClientChains
from serde_chain.clients.event_loop import Pace, Turns, in_daemon_thread, tell
from serde_chain.clients.window import Window
from serde_chain.clients.window_reader import WindowReader, marker_headers, prefetch_for
from serde_chain.codec import Decoded, Decoder
from serde_chain.config import ERROR_POLICY, RAISE, Config, Resolved
from serde_chain.errors import SerializationError
from serde_chain.record import ValueT
from serde_chain.transfer import Prefetch, then

if TYPE_CHECKING:

    class Record(ConsumerRecord, Generic[ValueT]):  # type: ignore[misc]  # aiokafka has no types
        """A record with a decoded key and value, for type checkers."""

        value: ValueT | None

else:
    Record = ConsumerRecord

_log = logging.getLogger("serde_chain")

# Most small records decoded on the event loop at a time.
_FEW: Final = 20
_LARGE_BYTES: Final = 1 << 16


class RecordDecoder:
    """Decodes records that other code has fetched with aiokafka, such as FastStream's broker.

    Args:
        config: A mapping, or the path of a TOML or Java ``.properties`` file; only keys of chains, stages and stores
            are used.

    Raises:
        ConfigError: A chain's configuration is wrong.

    Example:
        >>> record = ConsumerRecord("images", 0, 0, 0, 0, None, b'{"name": "M 51"}', None, 0, 16, ())
        >>> async def main():
        ...     decoder = RecordDecoder({"value.deserializers": "json"})
        ...     return (await decoder.decode(record)).value
        >>> asyncio.run(main())
        {'name': 'M 51'}
    """

    def __init__(self, config: Config | Resolved | str | Path) -> None:
        self._setup = setup = ClientChains.of_reader(config)
        policy = ERROR_POLICY.read(setup.config)
        if policy != RAISE:
            message = "%s = %s has no effect on single records: errors are raised"
            _log.warning(message, ERROR_POLICY.name, policy)
        self._batches = Batches(setup)

    async def decode(self, record: Record) -> Record:
        """Decode key, value and headers of a record.

        Args:
            record: The original record; not changed.

        Raises:
            SerializationError: It cannot be read.
        """
        outcome = (await self._batches.outcomes([record]))[id(record)]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Close the chains and their stores."""
        await in_daemon_thread(self._setup.close)


class Batches:
    """Decodes batches of records; payloads are fetched in parallel, within the bounds of the stages.

    Args:
        setup: The chains.
    """

    def __init__(self, setup: ClientChains[DeserializerChain]) -> None:
        chains = setup.key, setup.value
        self._decoder = Decoder(*chains)
        self._markers = marker_headers(*chains)
        # Chains that fetch no payloads may still have questions, for instance about schemas.
        self._prefetch = prefetch_for(*chains) or Prefetch(methodcaller("run"), in_flight=1)
        self._prefetch.notify = self._tell
        # One per waiting record: several batches may be running, on more than one loop.
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._turns = Turns()
        self._pace = Pace()

    async def outcomes(self, records: list[Record]) -> dict[int, Record | Exception]:
        """Decode records, each into a new record or an error.

        Args:
            records: The records, in the order of need.

        Returns:
            Outcomes by the identity of each record. The payloads of one call are within the stages' limit of bytes,
            though the first is always fetched: records from the first one with a payload beyond that are omitted.
            Records of a partition behind one that failed, and must not be skipped, may be omitted too.
        """
        window = Window()
        reader = WindowReader(window, self._begin, self._is_apart, self._prefetch)
        apart: list[Record] = []
        others: list[Record] = []
        for record in records:
            (apart if self._is_apart(record) else others).append(record)
        if apart:  # small records, the usual case, need no thread
            window.messages += apart
            apart = await in_daemon_thread(reader.look_ahead_within_bound)
        decode = partial(self._turns.do, lambda: [self._read(reader, record) for record in others])
        is_quick = len(others) <= _FEW and self._turns.is_quick(0)
        decoded = decode() if is_quick else await in_daemon_thread(decode)
        outcomes = {id(record): outcome for record, outcome in zip(others, decoded, strict=True) if outcome is not None}
        if self._pace.is_over():
            await asyncio.sleep(0)
        # Small records have no payloads, but their schema may be unknown.
        waiting = {id(record) for record in (*others, *apart)} - outcomes.keys()
        ended: set[tuple[str, int]] = set()
        for record in records:
            place = record.topic, record.partition
            if id(record) not in waiting or place in ended:
                continue
            outcome = window.decoded.get(id(record)) or await self._end(reader, record)
            outcomes[id(record)] = outcome
            if isinstance(outcome, Exception) and not _is_passable(outcome):
                ended.add(place)  # a store that is down would let each of them wait, after the other
        return outcomes

    def _is_apart(self, record: Record) -> bool:
        """Whether a record is decoded in a thread: it is large or may have a payload to fetch."""
        size = len(record.value or b"") + len(record.key or b"")
        markers = self._markers
        return size > _LARGE_BYTES or markers is None or any(name in markers for name, _ in record.headers)

    async def _end(self, reader: WindowReader, record: Record) -> Record | Exception:
        """Wait for a record's payloads, if any, and decode it."""
        outcome: Record | Exception | None = None
        while outcome is None:
            try:
                await self._arrival(reader, record)
            except SerializationError as error:
                return self._at(record, error)
            outcome = await in_daemon_thread(self._read, reader, record)
        return outcome

    async def _arrival(self, reader: WindowReader, record: Record) -> None:
        """Wait until a record's payload is there, which is fetched regardless of its size."""
        with self._news() as news:
            while not reader.wait(record, 0):
                await news.wait()
                news.clear()

    @contextmanager
    def _news(self) -> Iterator[asyncio.Event]:
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(waiting)
        try:
            yield waiting[1]
        finally:
            self._waiting.discard(waiting)

    def _tell(self) -> None:
        """Notify all waiters of a payload; called in another thread."""
        for loop, news in self._waiting.copy():
            tell(loop, news.set)

    def _read(self, reader: WindowReader, record: Record) -> Record | Exception | None:
        """A decoded record or its error; None while its payload is in flight."""
        try:
            return reader.read(record)
        except Exception as error:  # noqa: BLE001  raised when all records before it were returned
            let_through(error)
            return self._at(record, error)

    def _at(self, record: Record, error: Exception) -> Exception:
        if isinstance(error, SerializationError):
            # Records with the same payload share its error.
            error.record = record
            error.topic, error.partition, error.offset = record.topic, record.partition, record.offset
        return error

    def _begin(self, record: Record) -> Any:
        """Decode a record, up to its first I/O."""
        place = (record.partition, record.timestamp, record.offset)
        encoded = codec.Record(record.topic, record.value, record.key, record.headers, *place)
        return then(self._decoder.decode(encoded), partial(_decoded, record))


def _is_passable(error: Exception) -> bool:
    """Whether the next records of the partition may be delivered although this one failed."""
    return isinstance(error, SerializationError) and error.about_record


def _decoded(record: Record, decoded: Decoded) -> Record:
    timestamp = record.timestamp if decoded.timestamp is None else decoded.timestamp
    return replace(record, key=decoded.key, value=decoded.value, headers=tuple(decoded.headers), timestamp=timestamp)
