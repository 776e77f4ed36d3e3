"""Stores written to KIP-1159's interface alone: ``publish``, ``download``, ``id``, ``configure`` and ``close``.

Such a class knows nothing of this package. :class:`KipStore` makes a :class:`~payload_stores.base.PayloadStore` of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeGuard, cast, runtime_checkable

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.base.signatures import Fit, fit, refusal
from payload_stores.errors import PayloadStoreError
from payload_stores.plugins import configure


@runtime_checkable
class KipPayloadStore(Protocol):
    """KIP-1159's interface, as far as it has no default there; the arguments may have any names."""

    def publish(self, topic: str, data: bytes, /) -> str:
        """Store a payload; returns its full path, the reference."""

    def download(self, full_path: str, /) -> bytes:
        """Fetch a payload by its full path."""


@runtime_checkable
class _HasId(Protocol):
    """The KIP's ``id``, a random UUID by default."""

    def id(self, data: bytes, /) -> str:
        """The id of a payload, for ``publish``."""


@runtime_checkable
class _Configurable(Protocol):
    """Kafka's ``Configurable``."""

    def configure(self, configs: Mapping[str, object], /) -> None:
        """Take the client's configuration, all of it."""


@runtime_checkable
class _Closeable(Protocol):
    """Java's ``Closeable``."""

    def close(self) -> None:
        """Release connections."""


@runtime_checkable
class _HasScheme(Protocol):
    """A store that says how its references begin, which the KIP does not require."""

    scheme: str


@runtime_checkable
class HasOptions(Protocol):
    """A class that declares its configuration keys, which the KIP does not require."""

    options: tuple[Any, ...]


def is_kip_store(store: object) -> TypeGuard[KipPayloadStore]:
    """Whether an object has the KIP's methods, and is no ``PayloadStore``.

    Example:
        >>> is_kip_store("text")
        False
    """
    return isinstance(store, KipPayloadStore) and not isinstance(store, (type, PayloadStore))


def is_kip_class(cls: object) -> TypeGuard[type[KipPayloadStore]]:
    """Whether a class has the KIP's methods, and derives from no ``PayloadStore``.

    Example:
        >>> is_kip_class(PayloadStore), is_kip_class(dict)
        (False, False)
    """
    return isinstance(cls, type) and issubclass(cls, KipPayloadStore) and not issubclass(cls, PayloadStore)


class KipStore(PayloadStore):
    """A payload store of an object with KIP-1159's methods.

    The object gets payloads as ``bytes``. It chooses its ids itself, unless its ``publish`` takes a ``context``.
    Without an attribute ``scheme`` it gets every reference that no other store of the reader claims more closely, and
    must refuse those that it does not know.

    Args:
        inner: The object.
        label: Its name, for messages.

    Raises:
        ConfigError: It has a method that cannot be called with the KIP's arguments.

    Example:
        >>> class Shelf:
        ...     payloads = {}
        ...     def publish(self, topic, data):
        ...         self.payloads["1"] = data
        ...         return "1"
        ...     def download(self, full_path):
        ...         return self.payloads[full_path]
        >>> store = KipStore(Shelf(), "Shelf")
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    def __init__(self, inner: KipPayloadStore, label: str) -> None:
        self.inner = inner
        self._label = label
        self._publish = self._fit("publish", inner.publish)
        self._download = self._fit("download", inner.download)
        self._id = self._fit("id", inner.id) if isinstance(inner, _HasId) else None
        self.follows_context = self._publish.context is not None
        self._set_scheme()

    def _fit(self, method: str, function: Any) -> Fit:
        try:
            return fit(method, function, of_kip=True)
        except ValueError as error:
            raise refusal(self._label, method, str(error)) from error

    def _set_scheme(self) -> None:
        """Take the object's scheme; configuring it may set one."""
        self._has_scheme = isinstance(self.inner, _HasScheme)
        self.scheme = self.inner.scheme if isinstance(self.inner, _HasScheme) else _scheme_of(self._label)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the keys that all stores share, and configure the object. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        if isinstance(self.inner, _Configurable):
            configure(self.inner, self._label, config, signature="configure(self, configs)")
        self._set_scheme()

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload. See :meth:`PayloadStore.publish`."""
        payload = data if isinstance(data, bytes) else bytes(data)
        reference: str = self._publish.call(self.inner.publish, (topic, payload, context), {})
        return reference

    def download(self, reference: str) -> bytes:
        """Fetch a payload. See :meth:`PayloadStore.download`."""
        payload: object = self._download.call(self.inner.download, (reference,), {})
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise PayloadStoreError(
                f"the store failed: download returned {type(payload).__name__}, not bytes",
                store=self.scheme,
                reference=reference[:500],
            )
        self.check_size(len(payload), reference)
        return payload if isinstance(payload, bytes) else bytes(payload)

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """The object's own id, if it makes one. See :meth:`PayloadStore.id`."""
        if self._id is None or not isinstance(self.inner, _HasId):
            return super().id(data, context)
        payload = data if isinstance(data, bytes) else bytes(data)
        payload_id: str = self._id.call(self.inner.id, (payload, context), {})
        return payload_id

    def owns(self, reference: str) -> bool:
        """By the scheme; without one, every reference. See :meth:`PayloadStore.owns`."""
        return super().owns(reference) if self._has_scheme else bool(reference)

    def close(self) -> None:
        """Close the object. See :meth:`PayloadStore.close`."""
        if isinstance(self.inner, _Closeable):
            self.inner.close()


def as_store(store: PayloadStore | KipPayloadStore) -> PayloadStore:
    """A store as it is, or a ``PayloadStore`` around an object with the KIP's methods.

    Example:
        >>> from payload_stores import open_store
        >>> as_store(open_store("memory", {})).scheme
        'memory'
    """
    return KipStore(store, type(store).__name__) if is_kip_store(store) else cast("PayloadStore", store)


_NO_SCHEME: Final = re.compile(r"^[^a-z]+|[^a-z0-9+.-]")


def _scheme_of(label: str) -> str:
    """A name for errors and metrics, for a store that has no scheme."""
    return _NO_SCHEME.sub("", label.rpartition(".")[2].lower()) or "kip1159"
