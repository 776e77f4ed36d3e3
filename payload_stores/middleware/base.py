"""A payload store around another, with the capabilities of the inner one."""

# ruff: noqa: D102  a member without a docstring forwards to the inner store; the contract documents it

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial, update_wrapper
from typing import Any, BinaryIO, ClassVar, Final, TypeVar, cast

from payload_stores.base import (
    CAPABILITIES,
    Buffer,
    Lifetimes,
    PayloadInfo,
    PayloadStore,
    PublishContext,
    RecordWriter,
    StoredRecord,
)
from payload_stores.errors import PayloadStoreError, UntrustedReferenceError
from payload_stores.kip1159 import KipPayloadStore, as_store
from payload_stores.options import Option

__all__ = ["Middleware"]

T = TypeVar("T")


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

    @property
    def _inner(self) -> Middleware:
        """The inner store, for type checkers with every capability."""
        return cast("Middleware", self.store)

    # Every store

    def configure(self, config: Mapping[str, object]) -> None:
        self.store.configure(config)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return self.call(self.store.publish, topic, data, context)

    def download(self, reference: str) -> bytes:
        return self.call(self.store.download, reference)

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        if type(self).download is not Middleware.download:  # a subclass may change the payload that the digest is of
            return super().download_verified(reference, size=size, digest=digest)
        verified = self.store.download_verified
        return self.call(update_wrapper(partial(verified, size=size, digest=digest), verified), reference)

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        return self.store.id(data, context)

    def reference(self, topic: str, payload_id: str) -> str | None:
        return self.store.reference(topic, payload_id)

    def owns(self, reference: str) -> bool:
        return self.store.owns(reference)

    def claim(self, reference: str) -> int:
        return self.store.claim(reference)

    def worst_case_ms(self) -> int | None:
        return self.store.worst_case_ms()

    def check_topic(self, topic: str) -> str:
        return self.store.check_topic(topic)

    def check_size(self, size: int, reference: str) -> None:
        self.store.check_size(size, reference)

    def verify(self, payload: Buffer, reference: str, *, size: int | None = None, digest: str | None = None) -> None:
        self.store.verify(payload, reference, size=size, digest=digest)

    def is_stale(self, modified: datetime) -> bool:
        return self.store.is_stale(modified)

    def untrusted(self, reference: str, why: str) -> UntrustedReferenceError:
        return self.store.untrusted(reference, why)

    def close(self) -> None:
        self.store.close()

    # Capabilities: one request each

    def delete(self, reference: str) -> None:
        self.call(self._inner.delete, reference)

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        return self.call(self._inner.delete_many, references)

    def info(self, reference: str) -> PayloadInfo:
        return self.call(self._inner.info, reference)

    def open(self, reference: str) -> BinaryIO:
        return self.call(self._inner.open, reference)

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        return self.call(self._inner.read_range, reference, start, length)

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        return self.call(self._inner.publish_record, topic, record, context)

    def download_record(self, reference: str) -> StoredRecord:
        return self.call(self._inner.download_record, reference)

    def expiration(self, topic: str) -> timedelta | None:
        return self.call(self._inner.expiration, topic)

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        self.call(self._inner.set_expiration, topic, age)

    def lifetimes(self, topic: str) -> Lifetimes:
        return self.call(self._inner.lifetimes, topic)

    def unprepared(self, topic: str) -> str | None:
        return self.call(self._inner.unprepared, topic)

    # Capabilities: straight to the inner store

    def now(self) -> datetime:
        return self._inner.now()

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        return self._inner.publish_stream(topic, reader, context)

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        return self._inner.list(topic, prefix=prefix, before=before)

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        return self._inner.list_range(topic, after=after, until=until, before=before)

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        return self._inner.remove_leftovers(older_than_ms)

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        return self._inner.count_leftovers(older_than_ms)

    def topic_of(self, reference: str) -> str:
        return self._inner.topic_of(reference)

    def why_not(self) -> str | None:
        return self._inner.why_not()

    def within(self, writer: RecordWriter) -> PayloadStore:
        """The middleware around ``within`` of the inner store; it shares everything else with this one."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__, store=self._inner.within(writer))
        return copied

    @property
    def joins_transactions(self) -> bool:
        return self._inner.joins_transactions

    @property
    def sender(self) -> str | None:
        return self._inner.sender

    @property
    def offloads(self) -> bool:
        return self._inner.offloads

    @property
    def fetches(self) -> bool:
        return self._inner.fetches

    @property
    def retries(self) -> int:
        return self._inner.retries
