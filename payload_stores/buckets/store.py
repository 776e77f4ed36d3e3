"""The engine of the bucket stores: names and uploads, downloads, listings and deletion, by the requests of a driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import BinaryIO, ClassVar, Final

from payload_stores import references
from payload_stores.base import Buffer, PayloadInfo, PublishContext, SupportsListRange
from payload_stores.buckets.download import RangedDownloads
from payload_stores.buckets.driver import Driver, Target
from payload_stores.buckets.errors import Refusal
from payload_stores.buffers import checked_range
from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.ids import sha256_digest
from payload_stores.multipart import MAX_PARTS, PART_BYTES, DaemonPool, read_parts, released, stream_digest

# As many as Amazon's DeleteObjects takes.
_AT_ONCE: Final = 1000
# Parts of a stream in flight at once; with the one being read and some blocks, less than 32 MiB.
_STREAM_AHEAD: Final = 2
# "Naming Amazon S3 objects" in its User Guide: in UTF-8; the others have the same, in bytes (Google) or characters
# (Azure).
_MAX_NAME_BYTES: Final = 1024
# "Sharing objects with presigned URLs" there.
_MAX_LINK_SECONDS: Final = 7 * 86_400


class BucketStore(references.RootedStore):
    """Stores payloads as objects ``<prefix><topic>/<id>``.

    Subclasses have the options, set ``roots`` in ``configure``, whose host is the bucket, and call ``_start`` there.
    """

    # Beginnings of messages.
    _links: ClassVar[str] = "a link is"
    _threads: DaemonPool | None = None  # until it is configured

    def _start(self, driver: Driver, threads: DaemonPool) -> None:
        """Set the driver, and the threads that transfer parts and ranges."""
        self._driver = driver
        self._translated = driver.errors.translated
        self._threads = threads
        self._downloads = RangedDownloads(driver, threads, self.check_size)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Upload a payload directly from the caller's buffer. See :meth:`PayloadStore.publish`."""
        view = memoryview(data).cast("B")
        context = (context or PublishContext()).with_digest(lambda: sha256_digest(view))
        path = references.object_path(self, topic, view, context)
        target, reference = self._target(self.roots.own, path), self.roots.url(path)
        with self._translated(topic=topic, reference=reference):
            if context.deterministic:
                self._put_once(target, view, context.digest)
            else:
                self._driver.put(target, view, context.digest)
        return reference

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Upload the contents of a reader, in parts of 8 MiB. See :class:`~payload_stores.SupportsStreaming`.

        A deterministic id must be known before the upload: either the context has the digest, or the reader must be
        seekable. ``id`` is called with the digest and no data.
        """
        with self._translated(topic=topic):
            context = (context or PublishContext()).with_digest(lambda: stream_digest(reader))
        path = references.object_path(self, topic, b"", context)
        target, reference = self._target(self.roots.own, path), self.roots.url(path)
        parts = read_parts(reader, MAX_PARTS)
        with self._translated(topic=topic, reference=reference):
            first = next(parts, memoryview(b""))
            if len(first) < PART_BYTES:
                self._driver.put(target, first, None)
            else:
                held = [first]
                del first
                self._driver.put_stream(target, released(held, parts), ahead=_STREAM_AHEAD)
        return reference

    def _put_once(self, target: Target, view: memoryview, digest: str | None) -> None:
        """Upload unless the object exists. The id implies the content, so writing it again is harmless."""
        # For a small payload, checking first takes as long as sending it.
        if len(view) > self._driver.checked_bytes and self._keeps(target, len(view)):
            return None
        is_conditional = len(view) <= self._driver.conditional_bytes
        try:
            return self._driver.put(target, view, digest, create=is_conditional)
        except Exception as error:
            refusal = self._driver.errors.refusal(error)
            # Without a condition: Azure drops the parts of this upload when another one finishes.
            if is_conditional and refusal not in {Refusal.CONDITION, Refusal.CONFLICT}:
                raise
            failure = error
        # Outside of the handler: an error of the next request would hold this one, whose text may have signatures.
        try:
            if self._keeps(target, len(view)):
                return None
            if not is_conditional:
                raise failure
        finally:
            del failure  # this frame is in its traceback
        # It was truncated, is old, or the server has no conditional writes: this repairs or renews it.
        return self._driver.put(target, view, digest)

    def _keeps(self, target: Target, size: int) -> bool:
        """Whether a payload exists and will stay: renews one that a sweep may be about to delete."""
        try:
            head = self._driver.head(target)
        except Exception as error:
            # Forbidden: a producer with write permission only, which cannot read the age.
            if self._driver.errors.refusal(error) in {Refusal.MISSING, Refusal.FORBIDDEN}:
                return False
            raise
        return head.size == size and (not self.is_stale(head.modified) or self._driver.renew(target, head))

    def download(self, reference: str) -> bytes:
        """Download a payload into one ``bytes`` object. See :meth:`PayloadStore.download`."""
        return self._downloads.get(self._locate(reference), reference)

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Download a part of a payload. See :class:`~payload_stores.SupportsRanges`."""
        checked_range(start, length)
        return self._downloads.read_range(self._locate(reference), reference, start, length)

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading and seeking. See :class:`~payload_stores.SupportsStreaming`."""
        return self._downloads.open(self._locate(reference), reference)

    def link(self, reference: str, seconds: int = 3600) -> str:
        """Presign a link to a payload for users without credentials: a secret until it expires. Performs no I/O.

        It also expires with temporary credentials. Google requires the key of a service account, Azure that of the
        storage account. The payload may be gone.

        Args:
            reference: The reference.
            seconds: Validity of the link.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The link cannot be signed, or not for this long.
        """
        if not 1 <= seconds <= _MAX_LINK_SECONDS:
            raise PayloadStoreError(
                f"{self._links} valid for 1 to {_MAX_LINK_SECONDS} seconds, not {seconds}",
                store=self.scheme,
                reference=reference,
            )
        target = self._locate(reference)
        with self._translated(reference=reference):
            return self._driver.sign(target, seconds)

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload, in whole seconds. See :class:`~payload_stores.SupportsInfo`."""
        target = self._locate(reference)
        with self._translated(reference=reference):
            head = self._driver.head(target)
        return PayloadInfo(reference, head.size, head.modified.astimezone(UTC))

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """List the payloads of a topic, a thousand per request. See :class:`~payload_stores.SupportsList`."""
        folder = self._folder(topic)
        if references.begins_id(prefix):
            yield from self._list(topic, before, prefix=folder + prefix)

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        """List a range of ids, a thousand per request. See :class:`~payload_stores.SupportsListRange`."""
        folder = self._folder(topic)
        end = None if until is None else folder + until
        yield from self._list(topic, before, prefix=folder, after=after and folder + after, end=end)

    def supports(self, capability: type) -> bool:
        """Without ranges where a listing is not sorted, or always begins at the first name."""
        if capability is SupportsListRange and not self._driver.lists_ranges:
            return False
        return super().supports(capability)

    def _list(
        self, topic: str, before: datetime | None, *, prefix: str, after: str = "", end: str | None = None
    ) -> Iterator[PayloadInfo]:
        own = self.roots.own
        with self._translated(topic=topic):
            for name, size, modified in self._driver.list(own.host, prefix, after):
                if end is not None and name > end:
                    return
                if before is not None and modified >= before:
                    continue
                reference = self.roots.listed(name.split("/")[len(own.segments) :])
                if reference is not None and (size or self._driver.is_object(Target(own.host, name))):
                    yield PayloadInfo(reference, size, modified.astimezone(UTC))

    def delete(self, reference: str) -> None:
        """Delete one of the store's own payloads. See :class:`~payload_stores.SupportsDelete`."""
        target = self._locate(reference, own_only=True)
        with self._translated(reference=reference):
            self._driver.delete(target)

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete the store's own payloads, a thousand at once. See :class:`~payload_stores.SupportsDeleteMany`."""
        with self._translated():
            self._driver.check_process()
        # All of them before the first request: an error means that nothing was deleted.
        waiting = iter({reference: self._locate(reference, own_only=True).name for reference in references}.items())
        failed: dict[str, PayloadStoreError] = {}
        while part := dict(islice(waiting, _AT_ONCE)):
            try:
                failed.update(self._delete_part(part))
            except (PayloadStoreUnavailableError, PayloadAccessDeniedError):
                raise
            except PayloadStoreError:  # a server without bulk deletes, or one object of many
                failed.update(self._delete_singly(part))
        return failed

    def _delete_part(self, names: Mapping[str, str]) -> dict[str, PayloadStoreError]:
        """Delete up to a thousand payloads, given with the objects' names; returns the errors by reference."""
        references = {name: reference for reference, name in names.items()}
        with self._translated(reference=next(iter(names))):
            refused = self._driver.delete_many(self.roots.own.host, [*references])
        return {
            references[name]: error.add_context(store=self.scheme, reference=references[name])
            for name, error in refused.items()
            if name in references
        }

    def _delete_singly(self, references: Iterable[str]) -> dict[str, PayloadStoreError]:
        failed: dict[str, PayloadStoreError] = {}
        for reference in references:
            try:
                self.delete(reference)
            except PayloadStoreUnavailableError:
                raise
            except PayloadStoreError as error:
                failed[reference] = error
        return failed

    def close(self) -> None:
        """Close the connections; requests in flight end by their own timeouts. See :meth:`PayloadStore.close`."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._driver.close()

    @staticmethod
    def _target(root: references.Location, path: tuple[str, ...]) -> Target:
        return Target(root.host, "/".join((*root.segments, *path)))

    def _locate(self, reference: str, *, own_only: bool = False) -> Target:
        target = self._target(*self.roots.locate(reference, own_only=own_only))
        if len(target.name.encode()) > _MAX_NAME_BYTES:
            names = self._driver.names
            raise self.untrusted(reference, f"its path has more than the {_MAX_NAME_BYTES} bytes of {names}")
        return target

    def _folder(self, topic: str) -> str:
        return "".join(f"{segment}/" for segment in (*self.roots.own.segments, self.check_topic(topic)))
