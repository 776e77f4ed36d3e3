"""A payload store around another, with the capabilities of the inner one."""

# ruff: noqa: D102  a member without a docstring is the contract's

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeVar, cast

from payload_stores.base import CAPABILITIES, Buffer, PayloadStore, PublishContext, RecordWriter
from payload_stores.base import store as contract
from payload_stores.kip1159 import KipPayloadStore, as_store
from payload_stores.options import Option

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Forwarded:
    """An attribute read from the inner store; on the class, the default of all stores."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, middleware: Middleware | None, owner: type) -> Any:
        return getattr(PayloadStore, self._name, None) if middleware is None else getattr(middleware.store, self._name)

    def __set__(self, middleware: Middleware, value: object) -> None:
        setattr(middleware.store, self._name, value)


def _is_taken(cls: type, name: str) -> TypeError:
    return TypeError(
        f"{cls.__name__}.{name} is taken: a middleware forwards {name}, which is part of a capability, to its inner "
        f"store. Rename the attribute, or define a property {name} to change the capability"
    )


_forwarded: Final[Any] = _Forwarded


def _straight(member: F) -> F:
    """A method of the contract that calls the inner store's."""
    name, code = member.__name__, member.__code__
    by_name = frozenset(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])

    def forward(self: Middleware, /, *arguments: Any, **named: Any) -> Any:
        if not named.keys() <= by_name:  # a store may name its parameters otherwise
            bound = inspect.signature(member).bind(self, *arguments, **named)
            arguments, named = bound.args[1:], bound.kwargs
        return getattr(self.store, name)(*arguments, **named)

    return _like(member, forward)


def _call(middleware: Middleware, operation: Callable[..., T], *arguments: Any) -> T:
    return middleware.call(operation, *arguments)


def by_call(member: F, call: Callable[..., Any] = _call) -> F:
    """A method of the contract that has ``call`` call the inner store's, with all arguments by position."""
    name, count = member.__name__, member.__code__.co_argcount - 1

    def forward(self: Middleware, /, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != count:
            bound = inspect.signature(member).bind(self, *arguments, **named)
            bound.apply_defaults()
            arguments = bound.args[1:]
        return call(self, getattr(self.store, name), *arguments)

    return _like(member, forward)


def _attribute(name: str) -> property:
    """An attribute of an ability, read from the inner store."""
    return property(attrgetter(f"store.{name}"))


def _like(member: F, forward: Callable[..., Any]) -> F:
    return cast("F", update_wrapper(forward, member))


class Middleware(PayloadStore):
    """A store around another. It forwards every member of the contract; subclasses override what they change.

    Operations that make a single request go through :meth:`call`: publish, download, delete, open, ranges, whole
    records, ``info``, expiration, lifetimes and ``unprepared``. Override it to act on all of them. ``publish_stream``,
    listings, leftovers and members without I/O go straight to the inner store.

    A middleware has the capabilities of its inner store: ``isinstance(store, SupportsDelete)`` is the same for both,
    even if a subclass overrides ``delete`` and the inner store cannot delete. To add a capability, or remove one,
    override :meth:`supports` as well.

    Args:
        store: The inner store; closed with this one.

    Raises:
        TypeError: Not the instance of a store.

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

    options: ClassVar[tuple[Option[Any], ...]] = _forwarded()
    scheme: str = _forwarded()
    trusted_references: tuple[str, ...] = _forwarded()
    max_payload_bytes: int = _forwarded()
    grace_ms: int = _forwarded()
    stable_references: bool = _forwarded()
    follows_context: bool = _forwarded()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name, value in vars(cls).items():
            if isinstance(vars(Middleware).get(name), property) and not isinstance(value, property):
                raise _is_taken(cls, name)

    def __setattr__(self, name: str, value: object) -> None:
        own = getattr(type(self), name, None)
        if isinstance(own, property) and own is vars(Middleware).get(name):
            raise _is_taken(type(self), name)
        super().__setattr__(name, value)

    def __init__(self, store: PayloadStore | KipPayloadStore) -> None:
        given: object = as_store(store)
        if not isinstance(given, PayloadStore):
            what, name = type(given).__name__, "name"
            if isinstance(given, type):
                what, name = f"the class {given.__name__}", given.__name__
            raise TypeError(
                f"{type(self).__name__} needs a store, not {what}: pass an instance, such as open_store({name}, config)"
            )
        self.store: PayloadStore = given

    def supports(self, capability: type) -> bool:
        """Whether the inner store implements a capability."""
        return isinstance(self.store, capability) if capability in CAPABILITIES else super().supports(capability)

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation of the inner store.

        Args:
            operation: A bound method of the inner store.
            *args: Its arguments; the first is a topic, a reference, or several references.
        """
        return operation(*args)

    # Every store

    configure = _straight(PayloadStore.configure)
    id = _straight(PayloadStore.id)
    reference = _straight(PayloadStore.reference)
    owns = _straight(PayloadStore.owns)
    claim = _straight(PayloadStore.claim)
    worst_case_ms = _straight(PayloadStore.worst_case_ms)
    check_topic = _straight(PayloadStore.check_topic)
    check_size = _straight(PayloadStore.check_size)
    verify = _straight(PayloadStore.verify)
    is_stale = _straight(PayloadStore.is_stale)
    untrusted = _straight(PayloadStore.untrusted)
    close = _straight(PayloadStore.close)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return self.call(self.store.publish, topic, data, context)

    def download(self, reference: str) -> bytes:
        return self.call(self.store.download, reference)

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        if type(self).download is not Middleware.download:  # a subclass may change the payload that the digest is of
            return super().download_verified(reference, size=size, digest=digest)
        verified = self.store.download_verified
        return self.call(update_wrapper(partial(verified, size=size, digest=digest), verified), reference)

    # Abilities: a test compares these lines with the contract

    delete = by_call(contract.SupportsDelete.delete)
    delete_many = by_call(contract.SupportsDeleteMany.delete_many)
    info = by_call(contract.SupportsInfo.info)
    list = _straight(contract.SupportsList.list)
    list_range = _straight(contract.SupportsListRange.list_range)
    open = by_call(contract.SupportsStreaming.open)
    publish_stream = _straight(contract.SupportsStreaming.publish_stream)
    read_range = by_call(contract.SupportsRanges.read_range)
    publish_record = by_call(contract.SupportsRecords.publish_record)
    download_record = by_call(contract.SupportsRecords.download_record)
    topic_of = _straight(contract.SupportsTopics.topic_of)
    joins_transactions = _attribute("joins_transactions")
    now = _straight(contract.SupportsClock.now)
    expiration = by_call(contract.SupportsExpiration.expiration)
    set_expiration = by_call(contract.SupportsExpiration.set_expiration)
    lifetimes = by_call(contract.SupportsLifetimes.lifetimes)
    remove_leftovers = _straight(contract.SupportsLeftovers.remove_leftovers)
    count_leftovers = _straight(contract.SupportsLeftoverCount.count_leftovers)
    unprepared = by_call(contract.SupportsPreparation.unprepared)
    retries = _attribute("retries")
    sender = _attribute("sender")
    offloads = _attribute("offloads")
    fetches = _attribute("fetches")
    why_not = _straight(contract.SupportsOptOut.why_not)

    def within(self, writer: RecordWriter) -> PayloadStore:
        """The middleware around ``within`` of the inner store; it shares everything else with this one."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, store=cast("contract.SupportsTransactions", self.store).within(writer))
        return copied
