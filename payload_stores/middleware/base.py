"""A payload store around another, and the rule that it can do what that can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, partial, update_wrapper
from inspect import get_annotations, isfunction, signature
from typing import Any, ClassVar, Final, TypeVar, cast

from payload_stores.base import (
    CAPABILITIES,
    Buffer,
    PayloadStore,
    PublishContext,
    RecordWriter,
    SupportsTransactions,
)
from payload_stores.errors import UntrustedReferenceError

__all__ = ["REQUESTS", "Middleware"]

T = TypeVar("T")

REQUESTS: Final = frozenset({
    "delete", "open", "read_range", "publish_record", "download_record", "expiration", "set_expiration",
    "unprepared",
})  # fmt: skip
"""Optional operations that ask once and get one answer: neither streams nor lists."""


def _of_inner(name: str) -> Any:
    """An attribute of the contract that is the inner store's, also after it was configured anew."""

    def read(self: Middleware) -> object:
        return getattr(self.store, name)

    def write(self: Middleware, value: object) -> None:
        setattr(self.store, name, value)

    return property(read, write, doc=f"``{name}`` of the inner store.")


class Middleware(PayloadStore):
    """A store around another. By itself it changes nothing; subclasses override :meth:`call`.

    It has what the inner store has, limits and trusted prefixes included, and can do what that can, and no more:
    ``isinstance(store, SupportsDelete)`` says the same of both. What a subclass does in place of an operation that not
    every store has, it has under the operation's name with ``around_`` before it (``around_delete``), which takes part
    where the inner store has the operation.

    Args:
        store: The inner store; closed with this one.

    Example:
        >>> from payload_stores import open_store
        >>> class Logged(Middleware):
        ...     def call(self, operation, *args):
        ...         print(operation.__name__)
        ...         return super().call(operation, *args)
        >>> Logged(open_store("memory", {})).publish("alerts", b"payload") is None
        publish
        False
    """

    wrapped: ClassVar[frozenset[str]] = frozenset()
    """The optional operations that go through :meth:`call`; the others are the inner store's own."""

    scheme: str = _of_inner("scheme")
    trusted_references: tuple[str, ...] = _of_inner("trusted_references")
    max_payload_bytes: int = _of_inner("max_payload_bytes")
    grace_ms: int = _of_inner("grace_ms")
    stable_references: bool = _of_inner("stable_references")
    shares_listing: bool = _of_inner("shares_listing")

    def __init__(self, store: PayloadStore) -> None:
        self.store = store
        self.options = store.options  # type: ignore[misc]  # of this one, whose class knows of no store
        # A protocol's isinstance looks for the names in the class, and this one would have all of them.
        self.__class__ = _with_capabilities(type(self), self.capabilities())

    def capabilities(self) -> tuple[type, ...]:
        """The protocols that the store has beyond :class:`PayloadStore`: those of the inner one."""
        return tuple(protocol for protocol in CAPABILITIES if isinstance(self.store, protocol))

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation of the inner store.

        Args:
            operation: A bound method of the inner store.
            *args: Its arguments; the first is a topic or a reference.
        """
        return operation(*args)

    def configure(self, config: Mapping[str, object]) -> None:
        """Configure the inner store."""
        self.store.configure(config)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Publish to the inner store. See :meth:`PayloadStore.publish`."""
        return self.call(self.store.publish, topic, data, context)

    def download(self, reference: str) -> bytes:
        """Download from the inner store. See :meth:`PayloadStore.download`."""
        return self.call(self.store.download, reference)

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Download and verify as the inner store does it. See :meth:`PayloadStore.download_verified`."""
        if type(self).download is not Middleware.download:  # what a subclass does to a payload comes before the digest
            return super().download_verified(reference, size=size, digest=digest)
        verified = self.store.download_verified
        return self.call(update_wrapper(partial(verified, size=size, digest=digest), verified), reference)

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """Ids are made by the inner store."""
        return self.store.id(data, context)

    def reference(self, topic: str, payload_id: str) -> str | None:
        """The inner store's. See :meth:`PayloadStore.reference`."""
        return self.store.reference(topic, payload_id)

    def owns(self, reference: str) -> bool:
        """Whether it is the inner store's. See :meth:`PayloadStore.owns`."""
        return self.store.owns(reference)

    def claim(self, reference: str) -> int:
        """As the inner store does it. See :meth:`PayloadStore.claim`."""
        return self.store.claim(reference)

    def worst_case_ms(self) -> int | None:
        """Worst case of one request of the inner store, in ms."""
        return self.store.worst_case_ms()

    def check_topic(self, topic: str) -> str:
        """As the inner store does it. See :meth:`PayloadStore.check_topic`."""
        return self.store.check_topic(topic)

    def check_size(self, size: int, reference: str) -> None:
        """As the inner store does it. See :meth:`PayloadStore.check_size`."""
        self.store.check_size(size, reference)

    def verify(self, payload: Buffer, reference: str, *, size: int | None = None, digest: str | None = None) -> None:
        """As the inner store does it. See :meth:`PayloadStore.verify`."""
        self.store.verify(payload, reference, size=size, digest=digest)

    def is_stale(self, modified: datetime) -> bool:
        """As the inner store sees it. See :meth:`PayloadStore.is_stale`."""
        return self.store.is_stale(modified)

    def untrusted(self, reference: str, why: str) -> UntrustedReferenceError:
        """As the inner store makes it. See :meth:`PayloadStore.untrusted`."""
        return self.store.untrusted(reference, why)

    def close(self) -> None:
        """Close the inner store."""
        self.store.close()


@cache
def _with_capabilities(cls: type[Middleware], capabilities: tuple[type, ...]) -> type[Middleware]:
    """A middleware's class with what some protocols ask for, all of it handed on to the inner store."""
    members: dict[str, Any] = {}
    for protocol in capabilities:
        members |= {name: _of_inner(name) for name in get_annotations(protocol)}
        for name, item in vars(protocol).items():
            if isfunction(item):
                members[name] = getattr(cls, f"around_{name}", None) or _handed_on(name, item)
    if SupportsTransactions in capabilities:
        members["within"] = _within
    # Python's own members of a protocol are not part of it, and the class's own methods are not passed on.
    missing = {name: item for name, item in members.items() if not name.startswith("_") and not hasattr(cls, name)}
    return type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **missing})


def _within(self: Middleware, writer: RecordWriter) -> PayloadStore:
    """``within`` of the inner store, in a copy of this one that shares all else."""
    inner = cast("SupportsTransactions", self.store).within(writer)
    copied = object.__new__(type(self))
    copied.__dict__.update(self.__dict__, store=inner)
    return copied


def _handed_on(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a protocol that is the inner store's; through :meth:`Middleware.call` where it is ``wrapped``."""
    in_order = signature(method).bind

    def run(self: Middleware, *args: Any, **kwargs: Any) -> Any:
        operation = getattr(self.store, name)
        if name not in self.wrapped:
            return operation(*args, **kwargs)
        # By position, as `call` has it: the topic or the reference is the first.
        return self.call(operation, *(in_order(self, *args, **kwargs).args[1:] if kwargs else args))

    run.__name__ = name  # as a middleware around this one knows the operation
    run.__doc__ = f"``{name}`` of the inner store."
    return run
