"""FastStream's Kafka broker with a chain around its own codec, which turns bodies into bytes and back.

::

    broker = KafkaBroker({"bootstrap.servers": "localhost:9092", "value.serializers": "zstd, large-message", ...})
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import faststream.kafka
from faststream.kafka.publisher.producer import AioKafkaFastProducerImpl

from payload_stores.errors import release
from serde_chain.clients.aiokafka import Producer, RecordDecoder
from serde_chain.clients.faststream_security import security_of
from serde_chain.config import Config, Resolved, checked
from serde_chain.errors import ContextualError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from faststream.security import BaseSecurity

__all__ = ["KafkaBroker"]

Parser: TypeAlias = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]

_log = logging.getLogger("serde_chain")
_WAIT_SECONDS: Final = 1.0
_SERVERS: Final = "bootstrap.servers"


class KafkaBroker(faststream.kafka.KafkaBroker):
    """A broker whose publishers and subscribers use chains.

    FastStream encodes a body first and decodes it last, so the chain's first stage takes bytes. A record whose store or
    registry is not there waits for it; an unreadable one is an error of FastStream's parser, or left out of its batch.

    Args:
        config: A mapping, or the path of a TOML or Java ``.properties`` file: chains, stages and stores,
            ``bootstrap.servers`` and the keys of ``security``, unless these are given. The client's other settings are
            options.
        bootstrap_servers: As FastStream's.
        parser: A parser of yours; it gets decoded records.
        security: As FastStream's; None for that of the configuration: ``security.protocol``, ``sasl.*``, ``ssl.*``.
        **options: FastStream's other options.

    Raises:
        ConfigError: A chain's configuration is wrong, or a key of security has no counterpart in FastStream.

    Example:
        >>> broker = KafkaBroker({"bootstrap.servers": "localhost:9092", "value.serializers": "zstd"})
        >>> @broker.subscriber("pictures", group_id="readers")
        ... async def handle(body: dict): ...
    """

    def __init__(
        self,
        config: Config | str | Path,
        bootstrap_servers: str | list[str] | None = None,
        *,
        parser: Parser | None = None,
        security: BaseSecurity | None = None,
        **options: Any,
    ) -> None:
        self._resolved = resolved = checked(config)
        security = security_of(resolved.settings) if security is None else security
        self._records = RecordDecoder(resolved)
        self._is_stopped = False
        self._stopping = asyncio.Event()
        self._own_parser = parser
        servers = bootstrap_servers or str(resolved.settings.get(_SERVERS, "localhost"))
        super().__init__(servers, parser=self._parse_decoded, security=security, **options)
        self.config.broker_config.producer = _ChainProducer(resolved)

    async def _parse_decoded(self, record: Any, original: Callable[[Any], Awaitable[Any]]) -> Any:
        """Decode a record before FastStream's own parser gets it; wait while its store is not there."""
        # A subscriber with batch=True gets a tuple of records.
        decoded = await (self._decoded_batch(record) if isinstance(record, tuple) else self._decoded(record))
        parse = partial(_parse, original)
        return await (parse(decoded) if self._own_parser is None else self._own_parser(decoded, parse))

    async def _decoded(self, record: Any) -> Any:
        while True:
            try:
                return await self._records.decode(record)
            except ContextualError as error:  # also of a codec that is not installed, which a record names
                if error.about_record:
                    raise
                # FastStream would go on to the next record.
                _log.warning("a record waits: %s", error)
            if await self._stops_soon():
                # The handler's task ends, as FastStream would end it after graceful_timeout. It commits after errors.
                raise asyncio.CancelledError

    async def _stops_soon(self) -> bool:
        """Whether the broker is stopping; waits a second for it."""
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def _decoded_batch(self, records: tuple[Any, ...]) -> tuple[Any, ...]:
        """Decode a batch, without its undecodable records; if all of them are, raise the last one's error."""
        decoded: list[Any] = []
        failed: ContextualError | None = None
        for record in records:
            try:
                decoded.append(await self._decoded(record))
            except ContextualError as error:
                _log.error("an undecodable record is left out of its batch: %s", error)
                release(error)
                failed = error
        if failed is not None and not decoded:
            raise failed
        return tuple(decoded)

    async def start(self) -> None:
        """Start the broker, also once it was stopped."""
        if self._is_stopped:
            self._records, self._is_stopped = RecordDecoder(self._resolved), False
            self._stopping.clear()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the broker, and close the chains and their stores; records that wait for their store are left."""
        self._stopping.set()
        try:
            await super().stop(exc_type, exc_val, exc_tb)
        finally:
            self._is_stopped = True
            await self._records.close()


async def _parse(original: Callable[[Any], Awaitable[Any]], record: Any) -> Any:
    """Call FastStream's parser without headers that are null or not UTF-8, at which it fails."""
    if isinstance(record, tuple):
        # The records of raw_message are parsed once more.
        return await original(tuple(map(_with_text_headers, record)))
    message = await original(_with_text_headers(record))
    message.raw_message = record
    return message


def _with_text_headers(record: Any) -> Any:
    headers = tuple((name, value) for name, value in record.headers if _is_text(value))
    return record if len(headers) == len(record.headers) else replace(record, headers=headers)


def _is_text(value: bytes | None) -> bool:
    if value is None:
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


class _ChainProducer(AioKafkaFastProducerImpl):
    """FastStream's producer with a chain.

    Args:
        config: The configuration of the chain.
    """

    def __init__(self, config: Resolved) -> None:
        super().__init__(parser=None, decoder=None)
        self._config = config

    async def connect(self, producer: AIOKafkaProducer, serializer: Any, codec: Any = None) -> None:
        """Start the producer behind its chain; one of an earlier attempt to connect is stopped."""
        await self.disconnect()
        own = Producer(producer, self._config)
        try:
            await super().connect(own, serializer, codec)
        except BaseException:
            await own.stop()  # another one needs the journal
            raise

    @property
    def closed(self) -> bool:
        """Whether there is no connection; FastStream looks into its own client for it."""
        return not self
