"""The contract of a stage (KIP-1159, "Serializer chain"): all that a stage's author reads.

A stage transforms the data of one record at a time. The first serializer of a chain usually turns an object into bytes,
the others bytes into bytes; deserializers do the reverse. Stages from object to object come before it. Only
``__call__`` is required.

A Protocol below is optional: a stage has it if it has the members. They stand for ``__call__`` or for facts about it,
so a subclass that overrides ``__call__`` or ``begin`` declares them anew, or is used without them. For whole columns
there are ``SupportsBatchForm`` and ``SupportsColumns`` in :mod:`serde_chain.arrow`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from typing import SupportsIndex

    from payload_stores.buffers import Buffer
    from payload_stores.options import Option
    from serde_chain.base.values import FieldType, RemovedHeaders
    from serde_chain.record import Context

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Data(StrEnum):
    """Kinds of data that a stage accepts or returns."""

    OBJECT = "object"
    BYTES = "bytes"


class Stage(ABC):
    """The base of serializers and deserializers.

    A stage is configured once, does not change afterwards, and is called from several threads. A chain never passes it
    ``None`` (a tombstone).

    Attributes:
        takes: The input. Serializers that accept objects come before the first one that returns bytes. The order is
            checked before stages are made, so the class attribute counts; None there if ``configure`` decides.
        gives: The output, likewise. Deserializers that return objects come after the last one that returns bytes.
        options: The configuration keys that the stage reads.
        moves_payloads: Whether it replaces payloads by placeholders, or fields by references, or follows these. If it
            works on bytes, only stages that preserve placeholders may come between it and the broker: serializers with
            ``max_overhead``, deserializers with ``unwraps_placeholders``.
        authenticates: Whether the output is unreadable without a key; for deserializers, whether it refuses data
            written without a key. A chain with such a deserializer returns nothing that has bypassed it.
        message_format: The format of the bytes, for headers that name it (hop's ``_format``): ``json``, ``avro``; None
            if only this project reads them. Records whose header names another one do not reach a deserializer.
    """

    takes: Data | None
    gives: Data | None
    options: ClassVar[tuple[Option[Any], ...]] = ()
    moves_payloads: ClassVar[bool] = False
    authenticates: bool = False
    message_format: str | None = None
    _configured: tuple[dict[str, object], bool] | None = None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the client's configuration, a flat mapping of dotted keys, for a chain of keys or of values.

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
        """The stage for its neighbours in a chain, None at an end: itself, or a new one that shares its resources."""
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


class Serializer(Stage, Generic[In]):
    """Turns data into bytes on the way to the broker.

    Attributes:
        max_overhead: The most bytes that the stage adds, for stages that may wrap placeholders; None for all others.
            Declared in the class; ``configure`` may set it to None for settings without a bound.
        takes_streams: Whether it also accepts paths and open binary files in place of bytes, and reads them in pieces.
        varies: Advice to the user, for stages that may return different bytes for equal data. Key chains refuse these,
            since partitioning and compaction compare the bytes of keys.
    """

    takes: Data | None = Data.OBJECT
    gives: Data | None = Data.BYTES
    max_overhead: int | None = None
    takes_streams: ClassVar[bool] = False
    varies: str | None = None

    @abstractmethod
    def __call__(self, data: In | None, ctx: Context | None = None, /) -> Buffer | None:
        """Serialize the key or value of the record ``ctx``; None for None.

        Raises:
            EncodeError: The data cannot be serialized.
            SerializationError: Another kind, see :mod:`serde_chain.errors`.
        """


class Deserializer(Stage, Generic[Out]):
    """Turns bytes from the broker back into data.

    Attributes:
        unwraps_placeholders: Whether it removes a frame around placeholders, and so comes before ``large-message``.
        gives_handles: Whether it returns a :class:`~serde_chain.handles.PayloadHandle` instead of bytes.
        takes_handles: Whether it accepts handles.
        own_headers: Headers that the stage hands to the reader. The chain removes them from every record first,
            tombstones included, so that no writer can forge them.
    """

    takes: Data | None = Data.BYTES
    gives: Data | None = Data.OBJECT
    unwraps_placeholders: ClassVar[bool] = False
    gives_handles: bool = False
    takes_handles: ClassVar[bool] = False
    own_headers: frozenset[str] = frozenset()

    @abstractmethod
    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Out | None:
        """Deserialize the key or value of the record ``ctx``; None for None.

        Raises:
            DecodeError: The data is truncated, foreign or corrupt.
            SerializationError: Another kind, see :mod:`serde_chain.errors`.
        """


class StagePair(NamedTuple("_Pair", [("serializer", object), ("deserializer", object)])):
    """Both directions of a stage, registered by third parties under one entry point name.

    Attributes:
        serializer: A :class:`Serializer` class, or a callable.
        deserializer: A :class:`Deserializer` class, or a callable.

    Raises:
        TypeError: One of them is a stage of the other direction.
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


@runtime_checkable
class SupportsTransfers(Protocol):
    """A stage that needs I/O for some records: it publishes, fetches or asks."""

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """What a call returns, or a :class:`~serde_chain.transfer.Transfer` with the I/O to perform first."""


@runtime_checkable
class SupportsPlainCalls(Protocol):
    """A stage that needs only the data of most records, which then need no context.

    Attributes:
        plain: ``data -> data``, made by ``configure`` over local names; None if the stage, as configured, needs the
            context. Called from several threads, for records without headers, with data that is not None. It may
            raise any exception, also where it merely cannot decide: the chain then calls the stages with the context,
            and only their result counts. So it must have no side effects before it raises. Where long data require the
            record, it is a ``ShortBytesOnly``: the stages before are not called again.
    """

    plain: Callable[[Any], Any] | None


@runtime_checkable
class DeclaresHeaders(Protocol):
    """A deserializer that declares its changes of headers, so that Spark reads headers without payloads."""

    @property
    def removed_headers(self) -> tuple[RemovedHeaders, ...] | None:
        """The only headers that it changes: it removes them. None if its changes depend on more than names."""


@runtime_checkable
class SupportsArrowType(Protocol):
    """A deserializer, or a foreign callable, that may know the Arrow type of its results."""

    def arrow_type(self) -> Any | None:
        """The ``pyarrow.DataType``; None if pyarrow must infer it from the values."""


@runtime_checkable
class DescribesFields(Protocol):
    """A typed stage that knows the fields of its values before the first one."""

    @property
    def holds_objects(self) -> bool:
        """Whether a field may hold any object in place of its value, as in dictionaries, unlike Protobuf's messages."""

    def field_type(self) -> FieldType | None:
        """The type of all values; None if it is unknown, or may differ from record to record."""
