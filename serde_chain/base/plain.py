"""Plain functions of stages: bases that call them, and functions that leave data unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from payload_stores.buffers import Buffer
from serde_chain.base.stage import Deserializer, Serializer
from serde_chain.record import Context

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


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
