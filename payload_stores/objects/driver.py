"""The requests of the store ``objects``, by obstore. See :class:`payload_stores.buckets.driver.Driver`.

Ranges are read directly into the payload's memory, uploads from the caller's buffer. obstore's own threads move the
data; Python copies each byte once, from the received block. obstore retries requests, and answers that break off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from payload_stores.buckets.driver import Driver, Head, ListedObject, Target, fill_with
from payload_stores.errors import PayloadNotFoundError, PayloadStoreError
from payload_stores.multipart import MAX_PARTS, PARALLEL, PART_BYTES, TransferCount
from payload_stores.objects.errors import status_of
from payload_stores.objects.listing import before, pages
from payload_stores.plugins import require

if TYPE_CHECKING:
    from obstore import GetResult

    from payload_stores.objects.settings import Client, Clients

_used_by: int | None = None


class ObstoreDriver(Driver):
    """Requests through one client for each bucket.

    Args:
        clients: The clients.
        part_bytes: Larger payloads are uploaded in parts of this size, which obstore can only do unconditionally.
    """

    def __init__(self, clients: Clients, part_bytes: int) -> None:
        self.errors = clients.errors
        self.checked_bytes = self.conditional_bytes = part_bytes
        self.lists_ranges = clients.begins_anywhere
        self._clients = clients
        self._part_bytes = part_bytes
        self._under_way = TransferCount()

    def check_process(self) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.check_process`: obstore's threads do not survive a fork.

        obstore itself would wait forever.
        """
        global _used_by  # noqa: PLW0603  a fact about this process
        if _used_by not in {None, os.getpid()}:
            raise PayloadStoreError(
                "the store objects cannot be used in a process that was forked from one that has used it",
                hint="Start processes by spawn or forkserver, or use the store only after the fork",
            )
        _used_by = os.getpid()

    def ask(self, target: Target, start: int, length: int) -> ObjectAnswer | None:
        """See :meth:`~payload_stores.buckets.driver.Driver.ask`."""
        from obstore.exceptions import GenericError

        client = self._client(target.bucket)
        try:
            return ObjectAnswer(client.get(target.name, options={"range": (start, start + length)}))
        except GenericError as error:
            if status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return None
            # A server that answers without a range instead of 416 (RFC 9110, section 15.5.17).
            is_about_range = not status_of(error) and ("CONTENT_RANGE" in str(error) or "Wanted range" in str(error))
            if not is_about_range:
                raise
            failure = error
        # Outside of the handler: an error of this request would hold the other, whose text may have signatures.
        try:
            if client.head(target.name)["size"] <= start:
                return None
            raise failure
        finally:
            del failure  # this frame is in its traceback

    def fill(self, target: Target, part: memoryview, start: int, version: str | None) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.fill`."""
        options: Any = {"range": (start, start + len(part)), "if_match": version}
        ObjectAnswer(self._client(target.bucket).get(target.name, options=options)).read(part)

    def put(self, target: Target, view: memoryview, digest: str | None, *, create: bool = False) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.put`.

        Parts share the connections with other uploads: each has a time limit, so it must not wait for others.
        """
        with self._under_way.one_more() as count:
            self._client(target.bucket).put(
                target.name,
                view,
                mode="create" if create else "overwrite",
                use_multipart=not create and len(view) > self._part_bytes,
                chunk_size=max(self._part_bytes, -(-len(view) // MAX_PARTS)),
                max_concurrency=max(1, PARALLEL // count),
            )

    def put_stream(self, target: Target, parts: Iterator[memoryview], *, ahead: int) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.put_stream`."""
        client = self._client(target.bucket)
        client.put(target.name, parts, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=ahead)

    def head(self, target: Target) -> Head:
        """See :meth:`~payload_stores.buckets.driver.Driver.head`."""
        head = self._client(target.bucket).head(target.name)
        return Head(head["size"], head["last_modified"].astimezone(UTC), head["e_tag"])

    def delete(self, target: Target) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.delete`."""
        # Already gone, on Google and Azure; a missing bucket is another error.
        with suppress(PayloadNotFoundError), self.errors.translated():
            self._client(target.bucket).delete(target.name)

    def delete_many(self, bucket: str, names: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """See :meth:`~payload_stores.buckets.driver.Driver.delete_many`."""
        self._client(bucket).delete([*names])  # an error does not say whose it is
        return {}

    def list(self, bucket: str, prefix: str, after: str) -> Iterator[ListedObject]:
        """See :meth:`~payload_stores.buckets.driver.Driver.list`.

        obstore lists whole folders: the server skips names before the prefix, and reading ends after it.
        """
        is_ordered = self._clients.is_ordered
        offset = after or (before(prefix) if is_ordered else None)
        for page in pages(self._client(bucket), prefix.rpartition("/")[0], offset, is_ordered=is_ordered):
            for item in page:
                if item["path"].startswith(prefix):
                    yield ListedObject(item["path"], item["size"], item["last_modified"])
                elif is_ordered and item["path"] > prefix:
                    return

    def is_object(self, target: Target) -> bool:
        """Ask for it by a request of its own. See :meth:`~payload_stores.buckets.driver.Driver.is_object`.

        obstore lists a folder's marker of a console without its slash, no cloud describes several names at once, and
        ``list_with_delimiter``, which lists a marker as a folder, has no pages: it holds a whole topic. Few empty
        objects have two segments of ids.
        """
        try:
            self._client(target.bucket).head(target.name)
        except FileNotFoundError:
            return False
        return True

    def sign(self, target: Target, seconds: int) -> str:
        """See :meth:`~payload_stores.buckets.driver.Driver.sign`."""
        sign = require("obstore", "objects").sign
        return str(sign(self._client(target.bucket), "GET", target.name, timedelta(seconds=seconds)))

    def close(self) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.close`."""
        self._clients.close()

    def _client(self, bucket: str) -> Client:
        self.check_process()
        return self._clients.of(bucket)


class ObjectAnswer:
    """The answer to the first request. See :class:`~payload_stores.buckets.driver.Answer`."""

    def __init__(self, result: GetResult) -> None:
        self._result = result
        self.size = result.meta["size"]
        self.version = result.meta["e_tag"]
        start, end = result.range
        self.length = end - start

    def read(self, part: memoryview) -> None:
        """See :meth:`~payload_stores.buckets.driver.Answer.read`."""
        fill_with(part, self._result.stream(min_chunk_size=1))

    def close(self) -> None:
        """See :meth:`~payload_stores.buckets.driver.Answer.close`."""
        del self._result
