"""The stage contract: what a serializer and a deserializer are (KIP-1159, "Serializer chain").

A stage turns data into other data for one record at a time. The first serializer of a chain usually turns an object
into bytes, the others bytes into bytes; deserializers run the other way round. Any callable ``(data, ctx)`` can be a
stage too, Confluent's serializers included; deriving from these classes adds configuration and order checks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, SupportsIndex, TypeVar

from payload_stores.base import Buffer
from payload_stores.options import Option
from serde_chain.record import Context

__all__ = ["Buffer", "Data", "Deserializer", "Serializer", "Stage", "StagePair"]

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Data(StrEnum):
    """What a stage takes or gives."""

    OBJECT = "object"
    BYTES = "bytes"


class Stage(ABC):
    """What serializers and deserializers share.

    A stage is configured once and then called by several threads at once. ``None`` (a tombstone) is never passed to a
    stage by a chain.

    Attributes:
        takes: What the stage takes. A stage that takes objects can only be the first serializer. An order is checked
            before stages are made, so what the class says holds; None there if only ``configure`` finds out.
        gives: What the stage gives, likewise. A stage that gives objects can only be the last deserializer.
        options: The configuration keys that the stage reads, for misspelling checks and documentation.
        moves_payloads: Whether the stage puts references in place of payloads, as ``large-message`` does; chains then
            check what stands around it.
    """

    takes: Data | None
    gives: Data | None
    options: ClassVar[tuple[Option[Any], ...]] = ()
    moves_payloads: ClassVar[bool] = False

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Take the client's configuration.

        Args:
            config: Flat mapping of dotted keys; keys of other stages and of the client are ignored.
            is_key: Whether the chain is for record keys.

        Raises:
            ConfigError: A required key is missing or a value is wrong.
            MissingDependencyError: The stage's extra is not installed.
        """
        self._configured = (dict(config), is_key)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle a configured stage as its configuration: connections and native objects cannot travel."""
        configured = getattr(self, "_configured", None)
        return super().__reduce_ex__(protocol) if configured is None else (_reconfigure, (type(self), *configured))

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


class Serializer(Stage, Generic[In]):
    """Turns data into bytes on the way to the broker.

    Attributes:
        max_overhead: The most bytes that the stage ever adds to its input, for stages that may follow
            ``large-message``: they must leave the placeholder below the broker's limit.
        message_format: What the bytes are, for formats of large messages that say so in a header (hop's ``_format``):
            ``json``, ``avro``; None for what needs this project to be read.
        varies: Of stages that may give different bytes for equal data, what to do about it. Key chains refuse them:
            partitions and compaction go by the bytes of a key. None for all others.
    """

    takes: Data | None = Data.OBJECT
    gives: Data | None = Data.BYTES
    max_overhead: ClassVar[int | None] = None
    message_format: str | None = None
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
        reads_before_large_message: Whether the stage may stand before ``large-message``, because it reads what was
            put around a placeholder.
        batch_form: For whole Arrow columns (``DeserializerChain.to_arrow``): ``module:Name`` of a
            :class:`serde_chain.arrow.batch.BatchForm`, imported, and called with the stage, for the first batch.
            Without one, the stage is called record by record.
        message_format: As for serializers. Records that a header calls something else are not given to the stage.
        authenticates: Whether the stage refuses what was not written by those who have a key, as ``encrypt`` does. A
            chain with such a stage hands nothing over that has not been through it, whatever a header says.
        arrow_type_name: For stages without a batch form, name of the ``pyarrow`` factory of the type of what they give,
            such as ``int64``. Without either, pyarrow infers the type.
    """

    takes: Data | None = Data.BYTES
    gives: Data | None = Data.OBJECT
    reads_before_large_message: ClassVar[bool] = False
    batch_form: ClassVar[str | None] = None
    message_format: str | None = None
    authenticates: ClassVar[bool] = False
    arrow_type_name: ClassVar[str | None] = None

    @abstractmethod
    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Out | None:
        """Deserialize one key or value.

        Args:
            data: What the stage before gave, or what came from the broker.
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
    """

    serializer: object
    deserializer: object
