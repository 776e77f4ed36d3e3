"""Every payload in two stores: for a move from one to the other, and for readers in two regions."""

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
from payload_stores.middleware.base import Middleware
from payload_stores.middleware.deadline import Deadline

__all__ = ["Mirror"]

T = TypeVar("T")

_log = logging.getLogger("payload_stores")

_OF_BOTH: Final[tuple[type, ...]] = (SupportsDelete, SupportsList, SupportsRanges, SupportsStreaming, SupportsTopics)
# What the other store would answer likewise.
_FINAL: Final = (PayloadTooLargeError, UntrustedReferenceError)


class Mirror(Middleware):
    """Two stores with the same payloads.

    A payload is published to both, under the same topic and id; its reference is the primary's. One that is stored in
    one of them alone is not published: the error is raised, and what the other has is deleted again, unless its id is
    of the content, so that other records may refer to it.

    It is read from whichever has it: from the primary, and where that is down, or has lost or damaged it, from the
    secondary. A primary that hangs keeps a read waiting for ``patience_ms``; while 64 reads hang there, further ones
    ask the secondary at once. References of both are followed. A payload counts as gone only where both say so: while
    one of them is down, that is the error. Deleted is from both; a list is the primary's.

    It can do what both stores can, of deleting, listing, ranges, streams and topics, and says what the first payload
    would make in either.

    Args:
        primary: Whose references are written. Its references tell topic and id (``local``, ``s3``, ``objects``).
        secondary: The other one, likewise.
        patience_ms: How long a read waits for the primary where the secondary may have the payload, in ms.

    Raises:
        ConfigError: One of them has references that do not tell.

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
        self, primary: PayloadStore, secondary: PayloadStore, *, patience_ms: int = PayloadStore.TIMEOUT.default // 2
    ) -> None:
        self.secondary = secondary
        for store in (primary, secondary):
            if not isinstance(store, SupportsTopics) or store.reference("topic", "id") is None:
                raise ConfigError(
                    f"the store {store.scheme} cannot be mirrored: its references do not tell a payload's topic and id",
                    hint="Mirror local, s3 or objects",
                )
        super().__init__(primary)
        self._primary_in_time = Deadline(primary, patience_ms, setting=PayloadStore.TIMEOUT.name)

    def supports(self, capability: type) -> bool:
        """Whether both stores can delete, list, or whatever is asked for; either may have something to prepare."""
        if capability is SupportsPreparation:
            return True
        return capability in _OF_BOTH and all(store.supports(capability) for store in (self.store, self.secondary))

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
            # What can be read once is read from the primary.
            with primary.open(reference) as file:
                secondary.publish_stream(topic, file, context)

        self._also(reference, again, is_alone=is_alone)
        return reference

    def download(self, reference: str) -> bytes:
        """Download from whichever has it. See :meth:`PayloadStore.download`."""
        return self._first(reference, lambda store, own: store.download(own))

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Download from whichever has it undamaged. See :meth:`PayloadStore.download_verified`."""
        return self._first(reference, lambda store, own: store.download_verified(own, size=size, digest=digest))

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch a part from whichever has it. See :class:`~payload_stores.SupportsRanges`."""
        return self._first(reference, lambda store, own: cast("SupportsRanges", store).read_range(own, start, length))

    def open(self, reference: str) -> BinaryIO:
        """Open a payload where it is; what fails later does so. See :class:`~payload_stores.SupportsStreaming`."""
        return self._first(reference, lambda store, own: cast("SupportsStreaming", store).open(own))

    def delete(self, reference: str) -> None:
        """Delete from both, also when one of them fails. See :class:`~payload_stores.SupportsDelete`."""
        failure: PayloadStoreError | None = None
        for store, own in self._places(reference):
            try:
                cast("SupportsDelete", store).delete(own)
            except PayloadStoreError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def topic_of(self, reference: str) -> str:
        """The topic in a reference of either. See :class:`~payload_stores.SupportsTopics`."""
        own = self.store if self.store.owns(reference) or not self.secondary.owns(reference) else self.secondary
        return cast("SupportsTopics", own).topic_of(reference)

    def unprepared(self, topic: str) -> str | None:
        """What is missing yet in either. See :class:`~payload_stores.SupportsPreparation`."""
        stores = (store for store in (self.store, self.secondary) if isinstance(store, SupportsPreparation))
        missing = [each for store in stores if (each := store.unprepared(topic)) is not None]
        return " and ".join(missing) or None

    def owns(self, reference: str) -> bool:
        """Whether one of both owns it. See :meth:`PayloadStore.owns`."""
        return self.store.owns(reference) or self.secondary.owns(reference)

    def claim(self, reference: str) -> int:
        """The larger claim of both. See :meth:`PayloadStore.claim`."""
        return max(self.store.claim(reference), self.secondary.claim(reference))

    def worst_case_ms(self) -> int | None:
        """One after the other, in ms; None if one of them has no bound."""
        times = (self.store.worst_case_ms(), self.secondary.worst_case_ms())
        return None if None in times else sum(time for time in times if time is not None)

    def close(self) -> None:
        """Close both."""
        try:
            self.store.close()
        finally:
            self.secondary.close()

    def _with_id(self, topic: str, data: Buffer, context: PublishContext | None) -> PublishContext:
        """The context with an id that both stores use."""
        context = context or PublishContext()
        if context.payload_id is None:
            context = replace(context, payload_id=self.id(data, context))
        self.secondary.reference(topic, cast("str", context.payload_id))  # raises where it cannot use it
        return context

    def _is_alone(self, context: PublishContext | None) -> bool:
        """Whether no other record may refer to what is about to be published."""
        context = context or PublishContext()
        if context.deterministic or context.payload_id is not None:
            return not context.deterministic
        try:
            return self.id(b"", context) != self.id(b"", context)
        except Exception:  # noqa: BLE001  ids that the store makes in its own way, of the payload
            return False

    def _also(self, reference: str, publish: Callable[[], object], *, is_alone: bool) -> None:
        """Publish to the secondary what the primary has; delete it there again if that fails."""
        try:
            publish()
        except BaseException:
            if is_alone and isinstance(self.store, SupportsDelete):
                # The answer may be all that was lost, so it is deleted from both.
                for store, own in self._places(reference):
                    try:
                        cast("SupportsDelete", store).delete(own)
                    except PayloadStoreError:
                        _log.warning(
                            "a payload of which there is no second copy could not be deleted from %s", store.scheme
                        )
            raise

    def _places(self, reference: str) -> list[tuple[PayloadStore, str]]:
        """Where a payload lies: the store that has the reference, and the other one with its own."""
        for store, other in ((self.store, self.secondary), (self.secondary, self.store)):
            with suppress(UntrustedReferenceError):
                topic = cast("SupportsTopics", store).topic_of(reference)
                copy = None
                with suppress(PayloadStoreError):  # what is no topic, or no id, is no store's
                    payload_id = _id_in(store, reference, topic)
                    copy = None if payload_id is None else other.reference(topic, payload_id)
                places = [(store, reference)] if copy is None else [(store, reference), (other, copy)]
                return sorted(places, key=lambda place: place[0] is not self.store)
        return [(self.store, reference)]  # which raises what is wrong with it

    def _first(self, reference: str, read: Callable[[PayloadStore, str], T]) -> T:
        """What the first store returns that can; the error is the primary's, unless only the other's is not final."""
        failures: list[PayloadStoreError] = []
        places = self._places(reference)
        for store, own in places:
            # The caller's deadline is for both: a primary that hangs is not to use all of it.
            is_first = len(places) > 1 and store is self.store
            try:
                return read(self._primary_in_time if is_first else store, own)
            except _FINAL:
                raise
            except PayloadStoreError as error:
                failures.append(error)
        # One that is down may have what the other one has lost.
        raise next((error for error in failures if not error.about_record), failures[0])


def _id_in(store: PayloadStore, reference: str, topic: str) -> str | None:
    """The id in a store's own reference; None in one of a trusted prefix, which the other store does not have."""
    example = store.reference(topic, "id")
    prefix = "" if example is None else example.removesuffix("id")
    return reference.removeprefix(prefix) if prefix and reference.startswith(prefix) else None
