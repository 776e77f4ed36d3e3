"""Payloads to S3: in one request or in several at once, without copying the payload.

Only requests are made here. Their errors are translated in :mod:`payload_stores.s3.errors`; the names of objects are
chosen in :mod:`payload_stores.s3.store`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from payload_stores.s3.errors import MISSING, NO_UPLOAD, error_code, field
from payload_stores.transfer import Blocks, put_parts

__all__ = ["MAX_PARTS", "Target", "Uploads"]

_log = logging.getLogger(__name__)

MAX_PARTS: Final = 10_000
"""The most parts of one upload ("Amazon S3 multipart upload limits" in its user guide)."""

# Arguments of a request that name an object: Bucket and Key.
Target: TypeAlias = Mapping[str, str]


class Uploads:
    """Uploads over one client; used by several threads at once.

    Args:
        client: boto3's S3 client. Any, because arguments are built from mappings, which the typed dicts of
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
        with closing(Blocks(view)) as body:
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
        try:
            done = put_parts(self._threads, parts, partial(self._put_part, upload), ahead=ahead)
            self._complete(target, upload, [part for part, _ in done], condition, sum(size for _, size in done))
        except BaseException:
            self._abort(upload)
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
            field(page, "IsTruncated")  # otherwise an answer without a body would be a list without entries
            for upload in page.get("Uploads", ()):
                if upload["Initiated"] >= limit:
                    continue
                try:
                    self._client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    aborted += 1
                except Exception as error:
                    if error_code(error) not in NO_UPLOAD:  # completed or aborted since it was listed
                        raise
        return aborted

    def _put_part(self, upload: Mapping[str, str], number: int, part: memoryview) -> tuple[dict[str, Any], int]:
        with closing(Blocks(part)) as body:
            answer = self._client.upload_part(**upload, PartNumber=number, Body=body)
        # Where the parts had checksums, the list of parts must have them too.
        checksum = {"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {}
        return {"PartNumber": number, "ETag": field(answer, "ETag"), **checksum}, len(part)

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

    def _abort(self, upload: Mapping[str, str]) -> None:
        # No part is under way any more: one that arrives after the abort would stay, and be paid for.
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
