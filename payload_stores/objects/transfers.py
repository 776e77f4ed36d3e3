"""Transfers by obstore: reads ranges directly into the payload's memory, writes from the caller's buffer.

obstore's own threads move the data; Python copies each byte once, from the received block.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import TYPE_CHECKING

from payload_stores.errors import PayloadIntegrityError, PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.multipart import MAX_PARTS, PARALLEL, UnderWay
from payload_stores.objects.errors import Errors, status_of

if TYPE_CHECKING:
    from obstore import GetResult

    from payload_stores.objects.settings import Client

__all__ = ["ObjectSource", "Uploads", "check_process"]

_used_by: int | None = None


def check_process() -> None:
    """Refuse to work in a process forked from one that has used obstore: its threads do not survive a fork.

    Raises:
        PayloadStoreError: This is such a process; obstore itself would wait forever.
    """
    global _used_by  # noqa: PLW0603  a fact about this process
    if _used_by not in {None, os.getpid()}:
        raise PayloadStoreError(
            "the store objects cannot be used in a process that was forked from one that has used it",
            hint="Start processes by spawn or forkserver, or use the store only after the fork",
        )
    _used_by = os.getpid()


class Uploads:
    """Uploads of a store; thread-safe.

    Args:
        part_bytes: Larger payloads are uploaded in parts of this size.
    """

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._under_way = UnderWay()

    def put(self, client: Client, path: str, view: memoryview, *, create: bool = False) -> None:
        """Upload a payload, without copying it.

        Parts share the connections with other uploads: each has a time limit, so it must not wait for others.

        Args:
            client: The client of the bucket.
            path: The object.
            view: The payload.
            create: Upload only if the object does not exist; always one request.

        Raises:
            AlreadyExistsError: The object exists.
        """
        with self._under_way.one_more() as count:
            client.put(
                path,
                view,
                mode="create" if create else "overwrite",
                use_multipart=not create and len(view) > self._part_bytes,
                chunk_size=max(self._part_bytes, -(-len(view) // MAX_PARTS)),
                max_concurrency=max(1, PARALLEL // count),
            )

    @staticmethod
    def put_stream(client: Client, path: str, parts: Iterable[memoryview], *, part_bytes: int, ahead: int) -> None:
        """Upload an object in parts, as they are read; on failure, remove them.

        Args:
            client: The client of the bucket.
            path: The object.
            parts: The payload.
            part_bytes: Size of a part.
            ahead: Maximum parts in flight, and so in memory, at once.
        """
        client.put(path, parts, use_multipart=True, chunk_size=part_bytes, max_concurrency=ahead)


class ObjectSource:
    """The source of downloads. See :class:`~payload_stores.multipart.Source`.

    Args:
        client: The client of the bucket.
        path: The object.
        reference: Its reference, for errors.
        errors: Converts obstore's errors.
    """

    def __init__(self, client: Client, path: str, reference: str, errors: Errors) -> None:
        self._client = client
        self._path = path
        self._reference = reference
        self._errors = errors

    def ask(self, start: int, length: int) -> ObjectAnswer | None:
        """See :meth:`~payload_stores.multipart.Source.ask`."""
        from obstore.exceptions import GenericError

        try:
            return ObjectAnswer(self._client.get(self._path, options={"range": (start, start + length)}))
        except GenericError as error:
            if status_of(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or self._ends_before(start, error):
                return None
            raise

    def _ends_before(self, start: int, error: Exception) -> bool:
        """Whether a server answered without a range instead of 416 (RFC 9110, section 15.5.17)."""
        is_about_range = not status_of(error) and ("CONTENT_RANGE" in str(error) or "Wanted range" in str(error))
        return is_about_range and self._client.head(self._path)["size"] <= start

    def fill(self, part: memoryview, start: int, version: str | None) -> None:
        """See :meth:`~payload_stores.multipart.Source.fill`."""
        _read(self._client.get(self._path, options={"range": (start, start + len(part)), "if_match": version}), part)

    def is_replaced(self, error: Exception) -> bool:
        """See :meth:`~payload_stores.multipart.Source.is_replaced`."""
        from obstore.exceptions import PreconditionError

        return isinstance(error, PreconditionError)

    def errors(self) -> AbstractContextManager[None]:
        """See :meth:`~payload_stores.multipart.Source.errors`."""
        return self._errors.translated(reference=self._reference)


class ObjectAnswer:
    """The answer to the first request. See :class:`~payload_stores.multipart.Answer`."""

    def __init__(self, result: GetResult) -> None:
        self._result = result
        self.size = result.meta["size"]
        self.version = result.meta["e_tag"]
        start, end = result.range
        self.length = end - start

    def read(self, part: memoryview) -> None:
        """See :meth:`~payload_stores.multipart.Answer.read`."""
        _read(self._result, part)

    def close(self) -> None:
        """See :meth:`~payload_stores.multipart.Answer.close`."""
        del self._result


def _read(result: GetResult, part: memoryview) -> None:
    """Read the body of an answer, whose length must equal the part's."""
    at = 0
    for block in result.stream(min_chunk_size=1):  # as received: joining them is another copy
        if at + len(block) > len(part):
            raise PayloadIntegrityError(f"the answer has more than the {len(part)} bytes that were requested")
        part[at : at + len(block)] = memoryview(block)
        at += len(block)
    if at < len(part):
        raise PayloadStoreUnavailableError(f"the answer broke off after {at} of {len(part)} bytes")
