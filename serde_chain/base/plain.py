"""Stages that work on the data alone, so that small records need no context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from payload_stores.buffers import Buffer
from serde_chain.base.stage import Deserializer, Serializer
from serde_chain.record import Context

__all__ = ["PlainDeserializer", "PlainSerializer", "SupportsPlainCalls", "untouched"]

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


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
