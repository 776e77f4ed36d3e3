"""Every payload in two stores: for migrating between them, and for readers in two regions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO, Final, TypeVar, cast

from payload_stores.base import (
    Buffer,
    PayloadStore,
    PublishContext,
    SupportsDelete,
    SupportsList,
    SupportsPreparation,
    SupportsRanges,
    SupportsStreaming,
    SupportsTopics,
)
from payload_stores.errors import ConfigError, PayloadStoreError, PayloadTooLargeError, UntrustedReferenceError
from payload_stores.kip1159 import KipPayloadStore, as_store
from payload_stores.middleware.base import Middleware
from payload_stores.middleware.deadline import Deadline

T = TypeVar("T")

_log = logging.getLogger("payload_stores")

_OF_BOTH: Final[tuple[type, ...]] = (SupportsDelete, SupportsList, SupportsRanges, SupportsStreaming, SupportsTopics)
# Errors that the other store would raise too.
_FINAL: Final = (PayloadTooLargeError, UntrustedReferenceError)


class Mirror(Middleware):
    """Two stores with the same payloads.

    A publish goes to both, under the same topic and id; the reference is the primary's. If one store fails, the
    publish raises, and the other's copy is deleted again, unless its id is of the content: other records may refer to
    it.

    A read goes to the primary, and to the secondary if the primary is down, or has lost or damaged the payload. A
    hanging primary delays a read by ``patience_ms``; while 64 reads hang there, further ones ask the secondary at
    once. References of both are followed. A payload is gone only if both stores say so: while one is down, that is
    the error. Deletes go to both; listings are the primary's.

    It has the capabilities of both stores, among deleting, listing, ranges, streams and topics, and reports resources
    that the first payload would create in either.

    Args:
        primary: The store whose references are written. Its references must contain topic and id (``local``, ``s3``,
            ``objects``), so that it has ``topic_of`` and ``reference``.
        secondary: The other store; same requirement.
        patience_ms: How long a read waits for the primary if the secondary may have the payload, in ms.

    Raises:
        ConfigError: The references of a store do not contain topic and id, or its ``publish`` takes no id.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from payload_stores import open_store
        >>> with TemporaryDirectory() as folder:
        ...     old, new = open_store("memory", {}), open_store("local", {"local.path": folder})
        ...     store = Mirror(old, new)
        ...     reference = store.publish("alerts", b"payload")
        ...     old.delete(reference)
        ...     store.download(reference)
        b'payload'
    """

    def __init__(
        self,
        primary: PayloadStore | KipPayloadStore,
        secondary: PayloadStore | KipPayloadStore,
        *,
        patience_ms: int = PayloadStore.TIMEOUT.default // 2,
    ) -> None:
        primary, self.secondary = as_store(primary), as_store(secondary)
        for store in (primary, self.secondary):
            is_known = isinstance(store, SupportsTopics) and store.reference("topic", "id") is not None
            if not (is_known and store.follows_context):
                raise ConfigError(
                    f"the store {store.scheme} cannot be mirrored: its references do not contain topic and id",
                    hint="Mirror local, s3, objects, or a store with topic_of and reference, whose publish takes the "
                    "context, such as a payload_stores.references.RootedStore",
                )
        super().__init__(primary)
        self._primary_in_time = Deadline(primary, patience_ms, setting=PayloadStore.TIMEOUT.name)

    def supports(self, capability: type) -> bool:
        """Whether both stores implement one of the mirrored capabilities; preparation is always supported."""
        if capability is SupportsPreparation:
            return True
        return capability in _OF_BOTH and all(isinstance(store, capability) for store in (self.store, self.secondary))

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Publish to both. See :meth:`PayloadStore.publish`."""
        is_alone = self._is_alone(context)
        context = self._with_id(topic, data, context)
        reference = self.store.publish(topic, data, context)
        self._also(reference, lambda: self.secondary.publish(topic, data, context), is_alone=is_alone)
        return reference

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish to the primary, and to the secondary by reading it again. See :class:`SupportsStreaming`."""
        primary, secondary = (cast("SupportsStreaming", store) for store in (self.store, self.secondary))
        start = reader.tell() if reader.seekable() else None
        is_alone = self._is_alone(context)
        reference = primary.publish_stream(topic, reader, context)
        payload_id = _id_in(self.store, reference, topic)
        context = replace(context or PublishContext(), payload_id=payload_id)

        def again() -> None:
            if start is not None:
                reader.seek(start)
                secondary.publish_stream(topic, reader, context)
                return
            # A stream that cannot seek is read back from the primary.
            with primary.open(reference) as file:
                secondary.publish_stream(topic, file, context)

        self._also(reference, again, is_alone=is_alone)
        return reference

    def download(self, reference: str) -> bytes:
        """Download from the first store that has it. See :meth:`PayloadStore.download`."""
        return self._first(reference, lambda store, own: store.download(own))

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Download from the first store that has it undamaged. See :meth:`PayloadStore.download_verified`."""
        return self._first(reference, lambda store, own: store.download_verified(own, size=size, digest=digest))

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch a part from the first store that has it. See :class:`~payload_stores.SupportsRanges`."""
        return self._first(reference, lambda store, own: cast("SupportsRanges", store).read_range(own, start, length))

    def open(self, reference: str) -> BinaryIO:
        """Open in the first store that has it; later reads do not fall back. See :class:`SupportsStreaming`."""
        return self._first(reference, lambda store, own: cast("SupportsStreaming", store).open(own))

    def delete(self, reference: str) -> None:
        """Delete from both, even if one fails. See :class:`~payload_stores.SupportsDelete`."""
        failure: PayloadStoreError | None = None
        for store, own in self._places(reference):
            try:
                cast("SupportsDelete", store).delete(own)
            except PayloadStoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def topic_of(self, reference: str) -> str:
        """The topic in a reference of either store. See :class:`~payload_stores.SupportsTopics`."""
        own = self.store if self.store.owns(reference) or not self.secondary.owns(reference) else self.secondary
        return cast("SupportsTopics", own).topic_of(reference)

    def unprepared(self, topic: str) -> str | None:
        """Resources missing in either store. See :class:`~payload_stores.SupportsPreparation`."""
        stores = (store for store in (self.store, self.secondary) if isinstance(store, SupportsPreparation))
        missing = [each for store in stores if (each := store.unprepared(topic)) is not None]
        return " and ".join(missing) or None

    def owns(self, reference: str) -> bool:
        """Whether either store owns it. See :meth:`PayloadStore.owns`."""
        return self.store.owns(reference) or self.secondary.owns(reference)

    def claim(self, reference: str) -> int:
        """The larger of both claims. See :meth:`PayloadStore.claim`."""
        return max(self.store.claim(reference), self.secondary.claim(reference))

    def worst_case_ms(self) -> int | None:
        """The sum of both, in ms; None if one is unbounded."""
        times = (self.store.worst_case_ms(), self.secondary.worst_case_ms())
        return None if None in times else sum(time for time in times if time is not None)

    def close(self) -> None:
        """Close both."""
        try:
            self.store.close()
        finally:
            self.secondary.close()

    def _with_id(self, topic: str, data: Buffer, context: PublishContext | None) -> PublishContext:
        """The context with an id for both stores."""
        context = context or PublishContext()
        if context.payload_id is None:
            context = replace(context, payload_id=self.id(data, context))
        self.secondary.reference(topic, cast("str", context.payload_id))  # raises if unusable there
        return context

    def _is_alone(self, context: PublishContext | None) -> bool:
        """Whether the payload about to be published belongs to this record only."""
        context = context or PublishContext()
        if context.deterministic or context.payload_id is not None:
            return not context.deterministic
        try:
            return self.id(b"", context) != self.id(b"", context)
        except Exception:  # noqa: BLE001  custom ids, made from the payload
            return False

    def _also(self, reference: str, publish: Callable[[], object], *, is_alone: bool) -> None:
        """Publish to the secondary too; if that fails, delete both copies."""
        try:
            publish()
        except BaseException:
            if is_alone and isinstance(self.store, SupportsDelete):
                # Perhaps only the answer was lost, so delete from both.
                for store, own in self._places(reference):
                    try:
                        cast("SupportsDelete", store).delete(own)
                    except PayloadStoreError:
                        _log.warning("a payload without a second copy could not be deleted from %s", store.scheme)
            raise

    def _places(self, reference: str) -> list[tuple[PayloadStore, str]]:
        """The locations of a payload: the store with this reference, and the other with its own reference."""
        for store, other in ((self.store, self.secondary), (self.secondary, self.store)):
            with suppress(UntrustedReferenceError):
                topic = cast("SupportsTopics", store).topic_of(reference)
                copy = None
                with suppress(PayloadStoreError):  # not a valid topic or id in any store
                    payload_id = _id_in(store, reference, topic)
                    copy = None if payload_id is None else other.reference(topic, payload_id)
                places = [(store, reference)] if copy is None else [(store, reference), (other, copy)]
                return sorted(places, key=lambda place: place[0] is not self.store)
        return [(self.store, reference)]  # it raises the reason

    def _first(self, reference: str, read: Callable[[PayloadStore, str], T]) -> T:
        """The first successful result; otherwise the primary's error, unless only the other may recover."""
        failures: list[PayloadStoreError] = []
        places = self._places(reference)
        for store, own in places:
            # The caller's deadline covers both: a hanging primary must not use all of it.
            is_first = len(places) > 1 and store is self.store
            try:
                return read(self._primary_in_time if is_first else store, own)
            except _FINAL:
                raise
            except PayloadStoreError as error:
                failures.append(error)
        # A store that is down may have what the other has lost.
        raise next((error for error in failures if not error.about_record), failures[0])


def _id_in(store: PayloadStore, reference: str, topic: str) -> str | None:
    """The id in a store's own reference; None below a trusted prefix, which the other store does not have."""
    example = store.reference(topic, "id")
    prefix = "" if example is None else example.removesuffix("id")
    return reference.removeprefix(prefix) if prefix and reference.startswith(prefix) else None
