"""aiokafka's records, decoded by deserializer chains while the event loop goes on."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from aiokafka.structs import ConsumerRecord

from serde_chain.base import SupportsFetch
from serde_chain.chain import DeserializerChain
from serde_chain.clients.event_loop import Turns, elsewhere
from serde_chain.clients.reading import marker_headers
from serde_chain.clients.setup import MAX_POLL_INTERVAL, ClientSetup
from serde_chain.config import ERROR_POLICY, RAISE, Config
from serde_chain.errors import SerializationError
from serde_chain.record import KEY, VALUE, RecordContext

__all__ = ["Record", "RecordDecoder"]

Record: TypeAlias = "ConsumerRecord[Any, Any]"

_log = logging.getLogger("serde_chain")

# So many small records are decoded on the event loop at a time.
_FEW: Final = 20
_LARGE_BYTES: Final = 1 << 16


class RecordDecoder:
    """Decodes records that others have fetched with aiokafka, such as FastStream's broker.

    Args:
        config: A mapping, or the path of a TOML or Java ``.properties`` file; what is not about chains, stages and
            stores is passed over.

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

    def __init__(self, config: Config | str | Path) -> None:
        self._setup = setup = ClientSetup.of(config, DeserializerChain, MAX_POLL_INTERVAL)
        policy = ERROR_POLICY.read(setup.config)
        if policy != RAISE:
            told = "%s = %s has no effect with aiokafka: records that cannot be read are raised"
            _log.warning(told, ERROR_POLICY.name, policy)
        self._markers = marker_headers(setup.key, setup.value)
        chains = [chain for chain in (setup.key, setup.value) if chain is not None]
        fetching = [stage for chain in chains for stage in chain.stages if isinstance(stage, SupportsFetch)]
        self._in_flight = asyncio.Semaphore(max((stage.downloads_in_flight for stage in fetching), default=1))
        self._turns = Turns()

    async def decode(self, record: Record) -> Record:
        """A record with key, value and headers in their final form.

        Args:
            record: The record as it came; not changed.

        Raises:
            SerializationError: It cannot be read.
        """
        outcome = (await self.outcomes([record]))[id(record)]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Close the chains and their stores."""
        await elsewhere(self._setup.close)

    async def outcomes(self, records: list[Record]) -> dict[int, Record | Exception]:
        """Decode records, each into another one or an error.

        Args:
            records: The records.

        Returns:
            By the identity of each record. Payloads are fetched in parallel.
        """
        apart = [record for record in records if self._is_apart(record)]
        tasks = [asyncio.create_task(self._fetch(record)) for record in apart]
        try:
            others = [record for record in records if not self._is_apart(record)]
            decode = partial(self._turns.do, lambda: [self._try(record) for record in others])
            is_quick = len(others) <= _FEW and self._turns.is_quick(0)
            outcomes = [*zip(others, decode() if is_quick else await elsewhere(decode), strict=True)]
            outcomes += [*zip(apart, await asyncio.gather(*tasks), strict=True)]
        finally:
            for task in tasks:
                task.cancel()
        return {id(record): outcome for record, outcome in outcomes}

    def _is_apart(self, record: Record) -> bool:
        """Whether a record is decoded in a thread of its own: it is large, or may have a payload to fetch."""
        size = len(record.value or b"") + len(record.key or b"")
        markers = self._markers
        return size > _LARGE_BYTES or markers is None or any(name in markers for name, _ in record.headers)

    async def _fetch(self, record: Record) -> Record | Exception:
        async with self._in_flight:
            return await elsewhere(self._try, record)

    def _try(self, record: Record) -> Record | Exception:
        try:
            return self._decode(record)
        except Exception as error:  # noqa: BLE001  raised when all records before it were returned
            if isinstance(error, SerializationError):
                error.record = record
            return error

    def _decode(self, record: Record) -> Record:
        """Decode a record; the value first, as its reference may stand for a whole record."""
        headers: Any = list(record.headers)
        ctx = RecordContext(record.topic, VALUE, headers, record.key, record.partition, record.timestamp, record.offset)
        key, value = record.key, record.value
        if self._setup.value is not None:
            value = self._setup.value(value, ctx)
            key = ctx.key
        if self._setup.key is not None:
            place = RecordContext(record.topic, KEY, headers, None, record.partition, ctx.timestamp, record.offset)
            key = self._setup.key(key, place)
        timestamp = record.timestamp if ctx.timestamp is None else ctx.timestamp
        return replace(record, key=key, value=value, headers=tuple(headers), timestamp=timestamp)
