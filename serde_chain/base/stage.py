"""The contract of a stage: input and output, configuration, and call (KIP-1159, "Serializer chain").

A stage transforms the data of one record at a time. The first serializer of a chain usually turns an object into bytes,
the others bytes into bytes; deserializers do the reverse. Stages from object to object come before it.
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
    """Kinds of data that a stage accepts or returns.

    Example:
        >>> Data("bytes") is Data.BYTES
        True
    """

    OBJECT = "object"
    BYTES = "bytes"


class Stage(ABC):
    """The base of serializers and deserializers.

    A stage is configured once and then called from several threads. A chain never passes ``None`` (a tombstone) to a
    stage.

    Attributes:
        takes: The input. Serializers that accept objects come before the first one that returns bytes. The order is
            checked before stages are made, so the class attribute counts; None there if it depends on the
            configuration.
        gives: The output, likewise. Deserializers that return objects come after the last one that returns bytes.
        options: The configuration keys that the stage reads, for misspelling checks and documentation.
        moves_payloads: Whether the stage replaces payloads by placeholders or follows them, as ``large-message`` does,
            or fields by references, as ``large-fields`` does. If it works on bytes, only stages that preserve
            placeholders may come between it and the broker: serializers with a ``max_overhead``, and deserializers
            with ``unwraps_placeholders``.
        authenticates: Whether the stage's output is unreadable without a key, as that of ``encrypt``; for
            deserializers, whether it refuses data written without a key. A chain with such a deserializer returns
            nothing that has bypassed it, regardless of headers.
    """

    takes: Data | None
    gives: Data | None
    options: ClassVar[tuple[Option[Any], ...]] = ()
    moves_payloads: ClassVar[bool] = False
    authenticates: bool = False
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
        """The stage's configuration, and whether it is for keys; None before ``configure``."""
        return self._configured

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle a configured stage as its configuration: connections and native objects cannot be pickled."""
        if self._configured is None:
            return super().__reduce_ex__(protocol)
        return _reconfigure, (type(self), *self._configured)

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        """The keys that the stage reads with a configuration; a plug-in adds its own to ``options``."""
        return cls.options

    def bind(self, before: object | None, after: object | None) -> Self:
        """The stage adapted to its neighbours.

        A stage does not change after ``configure``, so one object can be part of several chains. Anything that it needs
        to know about its neighbours comes from here.

        Args:
            before: The stage before it in the chain; None if it is the first.
            after: The stage after it; None if it is the last.

        Returns:
            The stage itself if its neighbours do not matter, otherwise a new one that shares its resources.
        """
        return self

    def _with(self, **changes: object) -> Self:
        """The stage with some other attributes, for :meth:`bind`; it shares all resources."""
        # Not copy.copy(), which would configure another one, as pickling does.
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    def close(self) -> None:
        """Release the stage's resources. Idempotent."""


def _reconfigure(cls: type[Stage], config: Mapping[str, object], is_key: bool) -> Stage:
    stage = cls()
    stage.configure(config, is_key)
    return stage


def is_stage(item: object) -> TypeGuard[Stage | type[Stage]]:
    """Whether an item of a chain declares its input and output: a stage or a stage class."""
    return isinstance(item, Stage) or (isinstance(item, type) and issubclass(item, Stage))


class Serializer(Stage, Generic[In]):
    """Turns data into bytes on the way to the broker.

    Attributes:
        max_overhead: The most bytes that the stage adds to its input, for stages that may wrap placeholders: the record
            must stay below the broker's limit. None for all others. Declared in the class, since the order is checked
            before ``configure``, which may set it to None for settings without a bound.
        message_format: The format of the bytes, for large-message formats that name it in a header (hop's ``_format``):
            ``json``, ``avro``; None for bytes that only this project reads.
        takes_streams: Whether a stage for bytes also accepts paths and open binary files (:func:`is_stream`), and reads
            them in pieces.
        varies: Advice to the user, for stages that may return different bytes for equal data. Key chains refuse these,
            since partitioning and compaction compare the bytes of keys. None for all others.

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
    max_overhead: int | None = None
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
    """Turns bytes from the broker back into data.

    Attributes:
        unwraps_placeholders: Whether the stage may come before ``large-message``, because it removes a frame around a
            placeholder.
        message_format: As for serializers. Records whose header names another format do not reach the stage.
        gives_handles: Whether the stage, as configured, returns a :class:`~serde_chain.handles.PayloadHandle` instead
            of bytes.
        takes_handles: Whether the stage accepts handles.
        own_headers: Headers that the stage, as configured, hands to the reader. The chain removes them from every
            record first, tombstones included, so that no writer can forge them.

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
    own_headers: frozenset[str] = frozenset()

    @abstractmethod
    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Out | None:
        """Deserialize one key or value.

        Args:
            data: Output of the previous stage, or bytes from the broker.
            ctx: The record around it.

        Returns:
            The object or bytes, or None for None.

        Raises:
            DecodeError: The data is truncated, foreign or corrupt.
            SerializationError: Another kind, see :mod:`serde_chain.errors`.
        """


class _Pair(NamedTuple):
    serializer: object
    deserializer: object


class StagePair(_Pair):
    """Both directions of a stage, registered by third parties under one entry point name.

    Attributes:
        serializer: A :class:`Serializer` class, or a callable.
        deserializer: A :class:`Deserializer` class, or a callable.

    Raises:
        TypeError: One of them is a stage of the other direction.

    Example:
        >>> pair = StagePair(serializer=str.encode, deserializer=bytes.decode)
        >>> pair.serializer("abc")
        b'abc'
    """

    __slots__ = ()

    def __new__(cls, serializer: object, deserializer: object) -> Self:
        """Refuse swapped directions where the pair is written, not where it is first used."""
        for item, place, other in ((serializer, Serializer, Deserializer), (deserializer, Deserializer, Serializer)):
            kind = item if isinstance(item, type) else type(item)
            if issubclass(kind, other) and not issubclass(kind, place):
                raise TypeError(
                    f"{kind.__name__} is a {other.__name__.lower()}, in the place of the {place.__name__.lower()}: "
                    f"write {cls.__name__}(serializer, deserializer)"
                )
        return super().__new__(cls, serializer, deserializer)
