"""Stages that work on the data alone, so that small records need no context."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from payload_stores.buffers import Buffer
from serde_chain.base.stage import Deserializer, Serializer
from serde_chain.record import Context

__all__ = [
    "PlainDeserializer",
    "PlainSerializer",
    "ShortBytes",
    "ShortBytesOnly",
    "SupportsPlainCalls",
    "is_same_work",
    "untouched",
]

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


@runtime_checkable
class SupportsPlainCalls(Protocol):
    """A stage that needs only the data, at least for most records.

    A chain of such stages calls these functions directly, without a context per record. The implementation is shared:
    calling the stage calls the function too.

    A class declares ``plain`` in its body. A subclass that overrides ``__call__`` or ``begin`` but not ``plain`` is
    called instead. The same holds for ``begin`` of :class:`SupportsTransfers`, and for batch forms.

    Attributes:
        plain: ``data -> data``, made by ``configure`` over local names; None if the stage, as configured, needs the
            context. Called from several threads, for records without headers, with data that is not None. It may
            raise any exception, also where it merely cannot decide: the chain then calls the stages with the context,
            and only their result counts. So it must have no side effects before it raises. Where long data require the
            record, it is a :class:`ShortBytesOnly`: the stages before are not called again.
    """

    plain: Callable[[Any], Any] | None


def untouched(data: Any) -> Any:
    """The ``plain`` of a stage that leaves these records unchanged; a chain skips it."""
    return data


class ShortBytes:
    """A ``plain`` that returns short ``bytes`` unchanged, so that a producer need not call it for them.

    Args:
        function: The function of all data.
        most: Length up to which it returns objects of exactly the type ``bytes`` unchanged.

    Example:
        >>> ShortBytes(bytes.upper, 0)(b"m 51")
        b'M 51'
    """

    __slots__ = ("function", "most")

    def __init__(self, function: Callable[[Any], Any], most: int) -> None:
        self.function = function
        self.most = most

    def __call__(self, data: Any) -> Any:
        """Call the function."""
        return self.function(data)


class ShortBytesOnly(ShortBytes):
    """A ``plain`` that returns short ``bytes`` unchanged, and leaves all other data to the stage with its record.

    A chain does not call it: it compares the length, and continues with the stage itself where that is too large. What
    the stages before it have made is not made again.

    Args:
        most: Length up to which it returns objects of exactly the type ``bytes`` unchanged.

    Example:
        >>> ShortBytesOnly(4)(b"M 51")
        b'M 51'
    """

    __slots__ = ()

    def __init__(self, most: int) -> None:
        super().__init__(self._only_short, most)

    def _only_short(self, data: Any) -> bytes:
        if type(data) is bytes and len(data) <= self.most:
            return data
        raise ValueError("the decision requires the record")


class PlainSerializer(Serializer[In]):
    """A serializer that needs only the data: a subclass defines ``plain``, or makes it in ``configure``."""

    plain: Callable[[Any], Buffer]

    def __call__(self, data: In | None, ctx: Context | None = None, /) -> Buffer | None:
        """Serialize one key or value; see :class:`Serializer`."""
        return None if data is None else self.plain(data)


class PlainDeserializer(Deserializer[Out]):
    """A deserializer that needs only the data: a subclass defines ``plain``, or makes it in ``configure``."""

    plain: Callable[[Any], Out]
    removed_headers = ()

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Out | None:
        """Deserialize one key or value; see :class:`Deserializer`."""
        return None if data is None else self.plain(data)


def is_same_work(stage: object, name: str) -> bool:
    """Whether a member is equivalent to a call: not if a subclass overrides ``__call__`` or ``begin``."""
    for cls in type(stage).__mro__:
        if name in vars(cls) or name in inspect.get_annotations(cls):
            return True
        if not vars(cls).keys().isdisjoint({"__call__", "begin"}):
            return False
    return True
