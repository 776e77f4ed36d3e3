"""The stage contract: serializers and deserializers (KIP-1159, "Serializer chain").

A stage turns data into other data for one record at a time. The first serializer of a chain usually turns an object
into bytes, the others bytes into bytes; deserializers run the other way round. Any callable ``(data, ctx)`` can be a
stage too, Confluent's serializers included; deriving from these classes adds configuration and order checks.

What a stage may have beyond that is a Protocol below (``Supports…``): a chain and its clients look for nothing else.

==========================  ======================================================================================
SupportsPlainCalls          works on the data alone, so that small records need no context
SupportsArrowType           knows the type of the column of its results
SupportsTransfers           has to publish or fetch something before some records can go on
SupportsOffload             puts payloads elsewhere, and placeholders in their place
SupportsFetch               reads such placeholders
SupportsReferences          says what a placeholder refers to, without fetching it
SupportsConfigure           classes that are not stages, and are configured like one
SupportsClose, …AsyncClose  foreign callables that hold resources
SupportsBuild               builders of foreign callables: refused, with what to write
SupportsClusterId, …Async…  foreign callables that need the cluster's id
==========================  ======================================================================================
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    SupportsIndex,
    TypeGuard,
    TypeVar,
    runtime_checkable,
)

from payload_stores.buffers import Buffer
from payload_stores.options import Option
from serde_chain.record import Context
from serde_chain.transfer import Transfer

if TYPE_CHECKING:
    from pathlib import Path

    from payload_stores.base import PayloadStore, RecordWriter
    from serde_chain.arrow import BatchForm
    from serde_chain.wire.reference_format import Reference

__all__ = [
    "Buffer",
    "Data",
    "Deserializer",
    "PlainDeserializer",
    "PlainSerializer",
    "RecordLimits",
    "Serializer",
    "Stage",
    "StagePair",
    "SupportsArrowType",
    "SupportsAsyncClose",
    "SupportsAsyncClusterId",
    "SupportsBuild",
    "SupportsClose",
    "SupportsClusterId",
    "SupportsConfigure",
    "SupportsFetch",
    "SupportsOffload",
    "SupportsPlainCalls",
    "SupportsRead",
    "SupportsReferences",
    "SupportsTransfers",
    "is_stage",
    "is_stream",
    "untouched",
]

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Data(StrEnum):
    """Kinds of data that a stage takes or gives.

    Example:
        >>> Data("bytes") is Data.BYTES
        True
    """

    OBJECT = "object"
    BYTES = "bytes"


class Stage(ABC):
    """The base of serializers and deserializers.

    A stage is configured once and then called by several threads at once. ``None`` (a tombstone) is never passed to a
    stage by a chain.

    Attributes:
        takes: What the stage takes. A stage that takes objects can only be the first serializer. An order is checked
            before stages are made, so the class's value counts; None there if only ``configure`` can tell.
        gives: What the stage gives, likewise. A stage that gives objects can only be the last deserializer.
        options: The configuration keys that the stage reads, for misspelling checks and documentation.
        moves_payloads: Whether the stage puts placeholders in place of payloads or follows them, as ``large-message``
            does. Between it and the broker may stand only stages that pass placeholders on: serializers with a
            ``max_overhead``, and deserializers with ``unwraps_placeholders``.
    """

    takes: Data | None
    gives: Data | None
    options: ClassVar[tuple[Option[Any], ...]] = ()
    moves_payloads: ClassVar[bool] = False
    _configured: tuple[dict[str, object], bool] | None = None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the client's configuration.

        Args:
            config: Flat mapping of dotted keys; keys of other stages and of the client are ignored.
            is_key: Whether the chain is for record keys.

        Raises:
            ConfigError: A required key is missing or a value is wrong.
            MissingDependencyError: The stage's extra is not installed.
        """
        self._configured = (dict(config), is_key)

    @property
    def configured(self) -> tuple[Mapping[str, object], bool] | None:
        """The configuration of the stage, and whether it is for keys; None before it is configured."""
        return self._configured

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle a configured stage as its configuration: connections and native objects cannot travel."""
        if self._configured is None:
            return super().__reduce_ex__(protocol)
        return _reconfigure, (type(self), *self._configured)

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        """The keys that the stage reads under a configuration; more than ``options`` where it loads a plug-in."""
        return cls.options

    def bind(self, before: object | None, after: object | None) -> Self:
        """The stage as it is between two others.

        A stage does not change once it is configured, so one object can stand in several chains. What it has to know
        of its neighbours it learns here.

        Args:
            before: The stage before it in the chain; None if it is the first.
            after: The stage after it; None if it is the last.

        Returns:
            The stage itself where its neighbours do not matter to it, or another one that shares what it holds.
        """
        return self

    def close(self) -> None:
        """Release what the stage holds. Calling it again does nothing."""


def _reconfigure(cls: type[Stage], config: Mapping[str, object], is_key: bool) -> Stage:
    stage = cls()
    stage.configure(config, is_key)
    return stage


def is_stage(item: object) -> TypeGuard[Stage | type[Stage]]:
    """Whether an item of a chain declares what it takes and gives: a stage, or the class of one."""
    return isinstance(item, Stage) or (isinstance(item, type) and issubclass(item, Stage))


class Serializer(Stage, Generic[In]):
    """Turns data into bytes on the way to the broker.

    Attributes:
        max_overhead: The most bytes that the stage ever adds to its input, for stages that may wrap placeholders: they
            must leave the record below the broker's limit. None for stages that may not.
        message_format: What the bytes are, for formats of large messages that say so in a header (hop's ``_format``):
            ``json``, ``avro``; None for bytes that only this project reads.
        takes_streams: Whether a stage that takes bytes also takes paths and open binary files (:func:`is_stream`), and
            reads them piece by piece.
        varies: Of stages that may return different bytes for equal data, the advice for the user. Key chains refuse
            them: partitions and compaction go by the bytes of a key. None for all others.

    Example:
        >>> class Reverse(Serializer[bytes]):
        ...     takes = Data.BYTES
        ...
        ...     def __call__(self, data, ctx=None, /):
        ...         return None if data is None else bytes(data)[::-1]
        >>> Reverse()(b"abc")
        b'cba'
    """

    takes: Data | None = Data.OBJECT
    gives: Data | None = Data.BYTES
    max_overhead: ClassVar[int | None] = None
    message_format: str | None = None
    takes_streams: ClassVar[bool] = False
    varies: str | None = None

    @abstractmethod
    def __call__(self, data: In | None, ctx: Context | None = None, /) -> Buffer | None:
        """Serialize one key or value.

        Args:
            data: The object or the bytes.
            ctx: The record around it.

        Returns:
            Bytes, or None for None.

        Raises:
            EncodeError: The data cannot be serialized.
            SerializationError: Another kind, see :mod:`serde_chain.errors`.
        """


class Deserializer(Stage, Generic[Out]):
    """Turns what came from the broker back into data.

    Attributes:
        unwraps_placeholders: Whether the stage may stand before ``large-message``, because it reads what was put around
            a placeholder.
        message_format: As for serializers. Records of another format, by a header, do not reach the stage.
        gives_handles: Whether the stage, as it is configured, gives a :class:`~serde_chain.handles.PayloadHandle` in
            place of bytes.
        takes_handles: Whether the stage passes them on.
        authenticates: Whether the stage refuses data that was not written with a key, as ``encrypt`` does. A chain with
            such a stage returns nothing that has not been through it, whatever a header says.

    Example:
        >>> class Reverse(Deserializer[bytes]):
        ...     gives = Data.BYTES
        ...
        ...     def __call__(self, data, ctx=None, /):
        ...         return None if data is None else bytes(data)[::-1]
        >>> Reverse()(b"cba")
        b'abc'
    """

    takes: Data | None = Data.BYTES
    gives: Data | None = Data.OBJECT
    unwraps_placeholders: ClassVar[bool] = False
    message_format: str | None = None
    gives_handles: bool = False
    takes_handles: ClassVar[bool] = False
    authenticates: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Out | None:
        """Deserialize one key or value.

        Args:
            data: What the stage before returned, or what came from the broker.
            ctx: The record around it.

        Returns:
            The object or bytes, or None for None.

        Raises:
            DecodeError: The data is truncated, foreign or corrupt.
            SerializationError: Another kind, see :mod:`serde_chain.errors`.
        """

    def arrow_type(self) -> Any | None:
        """The ``pyarrow.DataType`` of the stage's results, for stages without a batch form.

        Returns:
            The type; None for one that pyarrow infers from the values.

        Raises:
            MissingDependencyError: The extra ``arrow`` is not installed.
        """
        return None

    def batch_form(self) -> BatchForm | None:
        """The stage at work on whole Arrow columns (``DeserializerChain.to_arrow``); imported and made here.

        Returns:
            The form, asked for once per chain; None for a stage that is called record by record.

        Raises:
            MissingDependencyError: The extra ``arrow`` is not installed.
        """
        return None


@runtime_checkable
class SupportsRead(Protocol):
    """An open binary file, or what reads like one, as the value of a record: it is read while it is uploaded."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to a number of bytes, or all that is left; nothing at the end."""


def is_stream(data: object) -> TypeGuard[Path | SupportsRead]:
    """Whether a value is read from a file, for stages with ``takes_streams``.

    Example:
        >>> import io, pathlib
        >>> is_stream(pathlib.Path("image.fits")), is_stream(io.BytesIO()), is_stream(b"data")
        (True, True, False)
    """
    return isinstance(data, (os.PathLike, SupportsRead))


@runtime_checkable
class SupportsPlainCalls(Protocol):
    """A stage that can do its work on the data alone, for most records at least.

    A chain of such stages runs these functions straight, without the context of each record. It is the same
    implementation: calling the stage calls the function too.

    A class declares ``plain`` in its body. A subclass that has a ``__call__`` or ``begin`` of its own and no ``plain``
    does something else, and is called. It is the same with ``begin`` of :class:`SupportsTransfers` and ``__call__``.

    Attributes:
        plain: ``data -> data``, made by ``configure`` over local names; None where the stage needs the record, as it is
            configured. Called with data that is not None, of records without headers, by several threads at once.
            It may raise anything, even where it only cannot decide: the chain then calls the stages themselves, with
            the context, and what these return or raise counts. So it must not have done anything before.
    """

    plain: Callable[[Any], Any] | None


def untouched(data: Any) -> Any:
    """The ``plain`` of a stage that leaves such records unchanged; a chain skips it."""
    return data


class PlainSerializer(Serializer[In]):
    """A serializer that needs nothing but the data: a subclass has ``plain``, or makes it in ``configure``."""

    plain: Callable[[Any], Buffer]

    def __call__(self, data: In | None, ctx: Context | None = None, /) -> Buffer | None:
        """Serialize one key or value; see :class:`Serializer`."""
        return None if data is None else self.plain(data)


class PlainDeserializer(Deserializer[Out]):
    """A deserializer that needs nothing but the data: a subclass has ``plain``, or makes it in ``configure``."""

    plain: Callable[[Any], Out]

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Out | None:
        """Deserialize one key or value; see :class:`Deserializer`."""
        return None if data is None else self.plain(data)


@runtime_checkable
class SupportsArrowType(Protocol):
    """A deserializer, or a foreign callable, that may know the Arrow type of its results."""

    def arrow_type(self) -> Any | None:
        """The ``pyarrow.DataType``; None for one that pyarrow infers from the values."""


@runtime_checkable
class SupportsTransfers(Protocol):
    """A stage that has to publish or fetch something before some records can go on."""

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Do what calling the stage does, up to the first I/O.

        Args:
            data: The data; not None.
            ctx: The record around it.

        Returns:
            The stage's result, or a :class:`~serde_chain.transfer.Transfer` that leads to it.
        """


class RecordLimits(Protocol):
    """Limits that a client puts on the records that it sends; for stages that can make a record smaller.

    Attributes:
        most: Bytes of the largest value that the client sends at all.
        setting: The key that sets that and its value, for messages: ``message.max.bytes (1000000)``.
        always: Bytes of a field for which every record without headers and with a key of up to 4096 bytes has
            room, whatever its topic; 0 if unknown.
    """

    most: int
    setting: str
    always: int

    def of_client(self) -> RecordLimits:
        """The limits of the client alone, for stages that do not ask for those of topics."""

    def ask(self, ctx: Context | None) -> Transfer[None] | None:
        """The question that must be answered before the other methods know the record's topic; None if none."""

    def largest(self, ctx: Context | None) -> int:
        """The largest field that client and topic accept, in bytes, the record's key and headers considered."""

    def denied(self, ctx: Context | None) -> str | None:
        """Why the record may not be offloaded, if it may not."""

    def compacted(self, ctx: Context | None) -> bool:
        """Whether the record's topic is compacted."""


@runtime_checkable
class SupportsOffload(Protocol):
    """A serializer that puts payloads elsewhere, and placeholders in their place.

    Attributes:
        negotiates: Whether the stage wants the topic's own limit instead (PIP-36): then it is asked for.
        limits_ttl_ms: How long the topic's limit is remembered, in ms.
        timeout_ms: Deadline of one upload in ms.
        worst_case_ms: Longest time in ms that one request may take by the store's own timeouts and retries.
        joins_transactions: Whether the stage's store can write in a client's transactions.
        most_alone: Bytes of the largest payload that stays in its record, whatever else is in that; 0 if none does.
    """

    @property
    def most_alone(self) -> int: ...  # noqa: D102  described above, as the others are
    @property
    def negotiates(self) -> bool: ...  # noqa: D102
    @property
    def limits_ttl_ms(self) -> int: ...  # noqa: D102
    @property
    def timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def worst_case_ms(self) -> int: ...  # noqa: D102

    @property
    def joins_transactions(self) -> bool: ...  # noqa: D102

    def with_limits(self, limits: RecordLimits) -> Self:
        """The stage with a client's limits: it also offloads what the client would refuse to send.

        Raises:
            ConfigError: A threshold that was set is above what the client sends.
        """

    def within(self, writer: RecordWriter) -> Self:
        """The stage, whose payloads belong to a client's transactions where its store can do that; otherwise itself.

        Args:
            writer: The client's transactional producer.
        """

    def is_inline(self, data: Buffer, ctx: Context | None) -> bool:
        """Whether the stage returned what it was given: neither a placeholder nor marked in its bytes."""

    def offload(self, data: Buffer, ctx: Context | None) -> Transfer[Any]:
        """Offload a payload, whatever its size."""

    def owns(self, reference: str) -> bool:
        """Whether the stage's store has what a reference points to, and can delete it."""

    def delete(self, reference: str) -> None:
        """Delete what a transfer has made for a record that is never sent; one that is gone already is no error.

        Args:
            reference: What :meth:`Transfer.made` or :meth:`Transfer.place` returned.

        Raises:
            PayloadStoreError: It could not be deleted.
        """


@runtime_checkable
class SupportsFetch(Protocol):
    """A deserializer that fetches what placeholders stand for.

    Attributes:
        restores_records: Whether placeholders may stand for whole records, with headers, key and timestamp.
        timeout_ms: Deadline of one download in ms.
        worst_case_ms: Longest time in ms that one request may take by the store's own timeouts and retries.
        downloads_in_flight: Most downloads at a time, for those who fetch ahead; 0 where there are none.
        downloads_bytes: Most bytes that they fetch ahead.
    """

    @property
    def restores_records(self) -> bool: ...  # noqa: D102  described above, as the others are
    @property
    def timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def worst_case_ms(self) -> int: ...  # noqa: D102
    @property
    def downloads_in_flight(self) -> int: ...  # noqa: D102
    @property
    def downloads_bytes(self) -> int: ...  # noqa: D102

    def marker_headers(self) -> frozenset[str] | None:
        """Headers of which every placeholder has at least one; None if a placeholder may be marked in its bytes."""


@runtime_checkable
class SupportsReferences(Protocol):
    """A deserializer that reads placeholders without following them, for jobs that clean and check stores.

    Attributes:
        stores: The stores that its configuration names.
    """

    @property
    def stores(self) -> tuple[PayloadStore, ...]: ...  # noqa: D102  described above

    def reference_in(self, data: Buffer, ctx: Context | None) -> Reference | None:
        """What a record's field refers to, whether or not a reader may follow it.

        Args:
            data: What the stage before returned.
            ctx: The record around it; it is not changed.

        Returns:
            The reference; None for a payload that is in the record itself.

        Raises:
            DecodeError: The placeholder is malformed.
        """


@runtime_checkable
class SupportsConfigure(Protocol):
    """A class that is not a stage, and is configured like one (KIP-1159, ``configure``)."""

    def configure(self, config: Mapping[str, object], is_key: bool, /) -> object:
        """Take the client's configuration; as :meth:`Stage.configure`."""


@runtime_checkable
class SupportsClose(Protocol):
    """A foreign callable that holds resources."""

    def close(self) -> object:
        """Release them."""


@runtime_checkable
class SupportsBuild(Protocol):
    """A builder of Confluent's, which makes a serializer for their clients. A chain takes what it builds."""

    def build(self, conf: Mapping[str, object], is_key: bool, /) -> tuple[Any, Mapping[str, object]]:
        """Build a serializer; returns it, and what is left of the configuration."""


@runtime_checkable
class SupportsAsyncClose(Protocol):
    """A foreign callable that is closed from a coroutine, as those of Confluent's asyncio clients."""

    def aclose(self) -> Awaitable[object]:
        """Release what it holds."""


@runtime_checkable
class SupportsClusterId(Protocol):
    """A foreign callable that needs the cluster's id, as Confluent's serializers do."""

    def set_cluster_id_resolver(self, resolver: Callable[..., Any], /) -> object:
        """Take a function that returns the cluster's id."""


@runtime_checkable
class SupportsAsyncClusterId(Protocol):
    """The same, of Confluent's asyncio serializers."""

    def set_async_cluster_id_resolver(self, resolver: Callable[..., Any], /) -> object:
        """Take a coroutine function that returns the cluster's id."""


class StagePair(NamedTuple):
    """Both directions of a stage, as third parties register them under one entry point name.

    Attributes:
        serializer: A :class:`Serializer` class, or a callable.
        deserializer: A :class:`Deserializer` class, or a callable.

    Example:
        >>> pair = StagePair(serializer=str.encode, deserializer=bytes.decode)
        >>> pair.serializer("abc")
        b'abc'
    """

    serializer: object
    deserializer: object
