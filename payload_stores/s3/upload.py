"""Payloads to S3: in one request or in several at once, without copying the payload.

Only requests are made here. What their errors mean is settled in :mod:`payload_stores.s3.errors`; what is published
under which name, in :mod:`payload_stores.s3.store`.
"""

from __future__ import annotations

import io
import logging
import mmap
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from contextlib import closing
from datetime import datetime
from typing import Any, BinaryIO, Final, TypeAlias

from payload_stores.errors import PayloadStoreError, PayloadTooLargeError
from payload_stores.s3.errors import MISSING, NO_UPLOAD, error_code, field

__all__ = ["PARALLEL", "PART_BYTES", "Target", "Uploads", "read_parts", "settle", "slices"]

_log = logging.getLogger(__name__)

PART_BYTES: Final = 8 << 20
PARALLEL: Final = 8
# "Amazon S3 multipart upload limits" in its user guide.
_MAX_PARTS: Final = 10_000
_READ_BYTES: Final = 256 << 10
_SEND_BYTES: Final = 128 << 10

# Arguments of a request that name an object: Bucket and Key.
Target: TypeAlias = Mapping[str, str]


class Body:
    """A part of a payload as the file that botocore sends.

    botocore takes no memoryview. It takes bytes, but sends them in one call, and the socket's timeout then counts for
    the whole of it: 100 MB within 5 s, or else. A file goes out in blocks, each with the full timeout.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size: int | None = -1) -> bytes:
        """Read up to ``size`` bytes, or the rest; little at a time, since each part under way takes that memory."""
        end = len(self._view) if size is None or size < 0 else self._at + min(size, _SEND_BYTES)
        block = bytes(self._view[self._at : end])
        self._at += len(block)
        return block

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as files do: botocore rewinds after checksums and before retries."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = min(max(0, start + offset), len(self._view))
        return self._at

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def close(self) -> None:
        """Let go of the payload: botocore's requests hold their bodies in cycles, until the garbage collector runs."""
        self._view = memoryview(b"")


class Uploads:
    """Uploads over one client; used by several threads at once.

    Args:
        client: boto3's S3 client. Any, because arguments are put together from mappings, which the typed dicts of
            boto3's stubs cannot follow.
        threads: Where parts are uploaded.
        create: Further arguments of what creates objects (encryption).
        checksums: Whether parts carry a CRC32.
    """

    def __init__(self, client: Any, threads: Executor, *, create: Mapping[str, str], checksums: bool) -> None:
        self._client = client
        self._threads = threads
        self._create = create
        self._checksum = {"ChecksumAlgorithm": "CRC32"} if checksums else {}

    def size_of(self, target: Target) -> int | None:
        """Size of an object in bytes, None if it is not there."""
        try:
            return int(field(self._client.head_object(**target), "ContentLength"))
        except Exception as error:
            if error_code(error) in MISSING:
                return None
            raise

    def put(self, target: Target, view: memoryview, condition: Mapping[str, str]) -> None:
        """Upload an object in one request.

        Args:
            target: Where to.
            view: The payload.
            condition: ``IfNoneMatch`` or nothing.
        """
        with closing(Body(view)) as body:
            self._client.put_object(**target, **self._create, **condition, Body=body)

    def put_parts(
        self, target: Target, parts: Iterable[memoryview], condition: Mapping[str, str], *, ahead: int
    ) -> None:
        """Upload an object in parts; after a failure no parts are left behind.

        Args:
            target: Where to.
            parts: The payload; all but the last at least 5 MiB.
            condition: ``IfNoneMatch`` or nothing.
            ahead: How many parts may be under way, and so in memory, at once.
        """
        created = self._client.create_multipart_upload(**target, **self._create, **self._checksum)
        upload = {**target, "UploadId": field(created, "UploadId")}
        running: deque[Future[dict[str, Any]]] = deque()
        done: list[dict[str, Any]] = []
        size = 0
        try:
            for number, part in enumerate(parts, start=1):
                if len(running) >= ahead:
                    done.append(running.popleft().result())
                size += len(part)
                running.append(self._threads.submit(self._put_part, upload, number, part))
            done.extend(part.result() for part in running)
            self._complete(target, upload, done, condition, size)
        except BaseException:
            self._abort(upload, running)
            raise

    def abort_older(self, bucket: str, prefix: str, limit: datetime) -> int:
        """Abort uploads in parts that were begun before a time and never completed.

        Args:
            bucket: Where.
            prefix: What their keys begin with.
            limit: The time, with its zone.

        Returns:
            How many were aborted.
        """
        aborted = 0
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
        for page in pages:
            field(page, "IsTruncated")  # else an answer without a body would be a list without entries
            for found in page.get("Uploads", ()):
                if found["Initiated"] >= limit:
                    continue
                try:
                    self._client.abort_multipart_upload(Bucket=bucket, Key=found["Key"], UploadId=found["UploadId"])
                    aborted += 1
                except Exception as error:
                    if error_code(error) not in NO_UPLOAD:  # completed or aborted since it was listed
                        raise
        return aborted

    def _put_part(self, upload: Mapping[str, str], number: int, part: memoryview) -> dict[str, Any]:
        with closing(Body(part)) as body:
            answer = self._client.upload_part(**upload, PartNumber=number, Body=body)
        # Where the parts had checksums, the list of parts must have them too.
        checksum = {"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {}
        return {"PartNumber": number, "ETag": field(answer, "ETag"), **checksum}

    def _complete(
        self,
        target: Target,
        upload: Mapping[str, str],
        parts: list[dict[str, Any]],
        condition: Mapping[str, str],
        size: int,
    ) -> None:
        try:
            self._client.complete_multipart_upload(**upload, **condition, MultipartUpload={"Parts": parts})
        except Exception as error:
            # Completed by an attempt whose answer was lost: then the upload is gone and the object is there.
            if error_code(error) not in NO_UPLOAD or self.size_of(target) != size:
                raise

    def _abort(self, upload: Mapping[str, str], running: Iterable[Future[dict[str, Any]]]) -> None:
        # A part that arrives after the abort would stay, and be paid for.
        settle(running)
        try:
            self._client.abort_multipart_upload(**upload)
        except Exception as error:  # noqa: BLE001  must not hide the error that led here
            if error_code(error) not in NO_UPLOAD:
                _log.warning(
                    "parts of %s remain in bucket %s, to be removed by a lifecycle rule: %s",
                    upload["Key"],
                    upload["Bucket"],
                    error,
                )


def slices(view: memoryview) -> Iterator[memoryview]:
    """Cut a payload into parts that S3 takes, without copying it."""
    step = max(PART_BYTES, -(-len(view) // _MAX_PARTS))
    return (view[start : start + step] for start in range(0, len(view), step))


def read_parts(reader: BinaryIO) -> Iterator[memoryview]:
    """Read a file in parts; raw files, sockets and pipes may give less at a time than they are asked for.

    Raises:
        PayloadStoreError: The file cannot be read; that is not the store's fault, and no reason to try again.
        PayloadTooLargeError: It is larger than S3 takes in parts of this size, 78 GiB.
    """
    for _ in range(_MAX_PARTS):
        # At its full size at once, since one that grows is copied now and then; and in pages of its own, which go back
        # to the system with it: the allocator would keep holes of this size.
        part, size = mmap.mmap(-1, PART_BYTES), 0
        try:
            while size < PART_BYTES and (block := reader.read(min(_READ_BYTES, PART_BYTES - size))):
                part[size : size + len(block)] = block
                size += len(block)
        except (OSError, ValueError) as error:
            raise PayloadStoreError(f"the payload's own stream cannot be read: {error}") from error
        if size:
            yield memoryview(part)[:size]
        if size < PART_BYTES:
            return
    raise PayloadTooLargeError(f"the payload has more than {_MAX_PARTS} parts of {PART_BYTES} bytes")


def settle(running: Iterable[Future[Any]]) -> None:
    """Cancel what has not begun, and wait for the rest."""
    running = list(running)
    for future in running:
        future.cancel()
    wait(running)
