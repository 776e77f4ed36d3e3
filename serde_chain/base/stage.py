"""The contract of a stage: what it takes and gives, its configuration, and its call (KIP-1159, "Serializer chain").

A stage turns data into other data for one record at a time. The first serializer of a chain usually turns an object
into bytes, the others bytes into bytes; deserializers run the other way round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, SupportsIndex, TypeGuard, TypeVar

from payload_stores.buffers import Buffer
from payload_stores.options import Option
from serde_chain.record import Context

__all__ = ["Data", "Deserializer", "Serializer", "Stage", "StagePair", "is_stage"]

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
