"""One record, key and value, encoded or decoded by the chains of a configuration.

Clients, Spark's workers and commands differ in the source of records and in how they run transfers. Everything
between is implemented here, once: the order of key and value, the context for stages, headers, frozen buffers.

====================  ==================================================================================
:class:`RecordCodec`  both directions of a configuration; chains are opened on first use
:class:`Encoder`      serializer chains of key and value, for clients that adapt their chains
:class:`Decoder`      deserializer chains, likewise
====================  ==================================================================================
"""

# Annotations are types here: if they are text, each field of a named tuple is compiled when a process starts.
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.record import KEY, VALUE, Header, Headers, RecordContext
from serde_chain.stage_calls import Begun
from serde_chain.transfer import Transfer, answered, then

if TYPE_CHECKING:
    from pathlib import Path

    from serde_chain.chain import DeserializerChain, SerializerChain

__all__ = ["Decoded", "Decoder", "Encoded", "Encoder", "Record", "RecordCodec", "frozen"]

ChainT = TypeVar("ChainT", "SerializerChain", "DeserializerChain")


class Record(NamedTuple):
    """A record, before or after its chains.

    Attributes:
        topic: Topic.
        value: An object for the value chain, or what its ``plain`` has begun; when decoding, bytes from the broker.
        key: Likewise, for the key chain.
        headers: Headers; never changed.
        partition: Partition, when known.
        timestamp: Timestamp in ms since the epoch, when known.
        offset: Offset, when reading.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | Sequence[Header] | None = None
    partition: int | None = None
    timestamp: int | None = None
    offset: int | None = None


class Encoded(NamedTuple):
    """An encoded record.

    Attributes:
        key: The key: bytes, or None. Without a chain, the caller's object.
        value: The value, likewise.
        headers: The record's headers and those of its stages, in a new list.
    """

    key: Any
    value: Any
    headers: list[Any]


class Decoded(NamedTuple):
    """A decoded record.

    Attributes:
        key: The key.
        value: The value.
        headers: The headers, without transport headers, in a new list.
        timestamp: The timestamp in ms; that of the stored record, if a whole record was offloaded.
    """

    key: Any
    value: Any
    headers: list[Any]
    timestamp: int | None


def frozen(data: Any) -> Any:
    """A copy of a mutable buffer; all other data unchanged.

    Example:
        >>> frozen(bytearray(b"M 51"))
        b'M 51'
    """
    if type(data) is Begun:
        return Begun(frozen(data.data), data.at)
    is_buffer = isinstance(data, (bytearray, memoryview))  # other objects are encoded before the call returns
    return bytes(data) if is_buffer and not memoryview(data).readonly else data


class Encoder:
    """Encodes records: the key first, because stages of the value may need it.

    Thread-safe.

    Args:
        key: The chain of keys; None leaves keys as they are, text as UTF-8.
        value: The chain of values; None leaves values as they are.
        blocks: Whether :meth:`encode_in_call` may run a chain's transfers at once, where none is of a payload; faster.
    """

    def __init__(
        self,
        key: "SerializerChain | None",
        value: "SerializerChain | None",
        *,
        blocks: bool = True,
    ) -> None:
        self._chains: tuple[Any, Any] = key, value
        # A call uses the fast path of plain stages; `begin` stops at transfers.
        self._key, self._value = (
            chain.begin if chain is not None and (chain.moves_payloads or not blocks) else chain
            for chain in (key, value)
        )

    def encode(self, record: Record) -> Any:
        """Encode a record, up to its first transfer.

        Args:
            record: The record. Mutable buffers are copied if they are kept.

        Returns:
            :class:`Encoded`, or a :class:`~serde_chain.transfer.Transfer` that leads to it.

        Raises:
            SerializationError: A stage failed.

        Example:
            >>> from serde_chain import SerializerChain
            >>> Encoder(None, SerializerChain.from_config({"value.serializers": "json"})).encode(
            ...     Record("images", {"name": "M 51"}, "M 51")
            ... )
            Encoded(key=b'M 51', value=b'{"name":"M 51"}', headers=[])
        """
        headers = _own(record.headers)
        if self._key is None:
            return _settled(self._with_key(record, headers, record.key), then)
        return then(self._key_step(record, headers), lambda key: _settled(self._with_key(record, headers, key), then))

    def encode_in_call(self, record: Record) -> Any:
        """Like :meth:`encode`, but a payload's transfer stays: the client uploads it after its call has returned.

        Everything else belongs in the call, which raises its errors: transfers of the key, and registry lookups.

        Args:
            record: The record.

        Returns:
            :class:`Encoded`, whose value may be a payload's transfer, or a transfer that leads to it.

        Raises:
            SerializationError: A stage failed.
        """
        headers = _own(record.headers)
        if self._key is None:
            return _settled(self._with_key(record, headers, record.key), answered)
        return then(
            self._key_step(record, headers), lambda key: _settled(self._with_key(record, headers, key), answered)
        )

    def _key_step(self, record: Record, headers: list[Any]) -> Any:
        topic, _, key, _, partition, timestamp, _ = record
        encode: Any = self._key
        ctx = RecordContext(topic, KEY, headers, None, partition, timestamp)
        return self._chains[0].resume(key, ctx) if type(key) is Begun else encode(key, ctx)

    def _with_key(self, record: Record, headers: list[Any], key: Any) -> Encoded:
        """The record; its value may still be a transfer."""
        topic, value, _, _, partition, timestamp, _ = record
        if not (key is None or type(key) is bytes):
            key = key.encode() if isinstance(key, str) else frozen(key)
        if type(value) is not bytes:
            value = frozen(value)
        if self._value is not None:
            ctx = RecordContext(topic, VALUE, headers, key, partition, timestamp)
            value = self._chains[1].resume(value, ctx) if type(value) is Begun else self._value(value, ctx)
        return Encoded(key, value, headers)


class Decoder:
    """Decodes records: the value first, because an offloaded whole record brings its own key and timestamp.

    Thread-safe.

    Args:
        key: The chain of keys; None leaves keys as bytes.
        value: The chain of values, likewise.
    """

    def __init__(self, key: "DeserializerChain | None", value: "DeserializerChain | None") -> None:
        self._key, self._value = (None if chain is None else chain.begin for chain in (key, value))

    def decode(self, record: Record) -> Any:
        """Decode a record, up to its first transfer.

        Args:
            record: The record from the broker; not changed.

        Returns:
            :class:`Decoded`, or a :class:`~serde_chain.transfer.Transfer` that leads to it.

        Raises:
            SerializationError: The record is undecodable, or its surroundings failed.

        Example:
            >>> from serde_chain import DeserializerChain
            >>> Decoder(None, DeserializerChain.from_config({"value.deserializers": "json"})).decode(
            ...     Record("images", b'{"name":"M 51"}', b"M 51")
            ... )
            Decoded(key=b'M 51', value={'name': 'M 51'}, headers=[], timestamp=None)
        """
        topic, value, key, headers, partition, timestamp, offset = record
        ctx = RecordContext(topic, VALUE, _own(headers), key, partition, timestamp, offset)
        step = value if self._value is None else self._value(value, ctx)
        return then(step, partial(self._with_value, ctx)) if isinstance(step, Transfer) else self._with_value(ctx, step)

    def _with_value(self, ctx: RecordContext, value: Any) -> Any:
        headers: Any = ctx.headers
        if self._key is None:
            return Decoded(ctx.key, value, headers, ctx.timestamp)
        step = self._key(
            ctx.key, RecordContext(ctx.topic, KEY, headers, None, ctx.partition, ctx.timestamp, ctx.offset)
        )
        return then(step, lambda key: Decoded(key, value, headers, ctx.timestamp))


class RecordCodec:
    """Encodes and decodes whole records by one configuration.

    A direction's chains are built on first use. Thread-safe; a context manager.

    Args:
        config: A mapping, or the path of a TOML or Java ``.properties`` file.

    Raises:
        ConfigError: The configuration is wrong. Chains are checked when they are built.

    Example:
        >>> with RecordCodec({"value.serializers": "json, gzip", "value.deserializers": "gzip, json"}) as codec:
        ...     key, value, headers = codec.encode(Record("images", {"name": "M 51"}, "M 51"))
        ...     codec.decode(Record("images", value, key, headers)).value
        {'name': 'M 51'}
    """

    def __init__(self, config: "Config | str | Path") -> None:
        self._resolved = configuration.checked(config)
        self._lock = threading.Lock()
        self._chains: list[SerializerChain | DeserializerChain] = []
        self._encoder: Encoder | None = None
        self._decoder: Decoder | None = None

    def encode(self, record: Record) -> Any:
        """Encode a record; see :meth:`Encoder.encode`."""
        encoder = self._encoder
        if encoder is None:
            from serde_chain.chain import SerializerChain  # clients get theirs, and importing them loads no chain

            with self._lock:
                encoder = self._encoder = self._encoder or Encoder(*self._open(SerializerChain))
        return encoder.encode(record)

    def decode(self, record: Record) -> Any:
        """Decode a record; see :meth:`Decoder.decode`."""
        decoder = self._decoder
        if decoder is None:
            from serde_chain.chain import DeserializerChain

            with self._lock:
                decoder = self._decoder = self._decoder or Decoder(*self._open(DeserializerChain))
        return decoder.decode(record)

    def _open(self, kind: type[ChainT]) -> tuple[ChainT | None, ChainT | None]:
        key, value = (self._chain(kind, is_key=is_key) for is_key in (True, False))
        return key, value

    def _chain(self, kind: type[ChainT], *, is_key: bool) -> ChainT | None:
        chain = kind.from_config(self._resolved, is_key=is_key)
        self._chains.append(chain)
        return chain if chain.stages else None

    def close(self) -> None:
        """Close the chains."""
        from serde_chain.chain import close_all

        close_all(self._chains)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own(headers: Headers | Sequence[Header] | None) -> list[Any]:
    """A new list: stages change it, and the caller may reuse the original."""
    if not headers:
        return []
    return list(headers.items() if isinstance(headers, dict) else headers)


def _settled(encoded: Encoded, go_on: Callable[[Any, Callable[[Any], Any]], Any]) -> Any:
    """An encoded record after the transfers of its value: all of them by ``then``, those of a call by ``answered``."""
    key, value, headers = encoded
    return go_on(value, lambda data: Encoded(key, data, headers)) if isinstance(value, Transfer) else encoded
