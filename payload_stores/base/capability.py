"""How ``isinstance`` checks a store for an optional capability."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)


class Capability(_ProtocolMeta):
    """The metaclass of the Protocols ``Supports…``: ``isinstance(store, SupportsDelete)`` asks ``store.supports``.

    Example:
        >>> from payload_stores import SupportsDelete, open_store
        >>> isinstance(open_store("memory", {}), SupportsDelete), isinstance("text", SupportsDelete)
        (True, False)
    """

    def __instancecheck__(cls, instance: object) -> bool:  # noqa: N805  of a metaclass, which ruff does not see
        if isinstance(instance, HasCapabilities) and not issubclass(cls, HasCapabilities):
            return instance.supports(cls)
        return super().__instancecheck__(instance)

    def has_members(cls, instance: object) -> bool:  # noqa: N805  likewise
        """Whether an object has all members of the Protocol."""
        return super().__instancecheck__(instance)


class HasCapabilities:
    """A base for objects that decide themselves which Protocols they implement."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        own = vars(cls).get("supports")
        # isinstance calls it: another function of this name would answer at random, or raise.
        if own is None or (inspect.isfunction(own) and [*inspect.signature(own).parameters][1:] == ["capability"]):
            return
        raise TypeError(
            f"{cls.__name__}.supports is taken: isinstance(store, SupportsDelete) calls supports(self, capability). "
            "Rename the method, or give it this signature"
        )

    def supports(self, capability: type) -> bool:
        """Whether the store implements a capability: by default, whether it has the methods.

        A middleware answers for its inner store. ``isinstance(store, capability)`` gives the same answer.

        Args:
            capability: One of the Protocols ``Supports…``.

        Example:
            >>> from payload_stores import SupportsDelete, open_store
            >>> open_store("memory", {}).supports(SupportsDelete)
            True
        """
        return cast("Capability", capability).has_members(self)
