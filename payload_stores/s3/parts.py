"""Uploads to S3 in parallel parts, without copying the payload, and what killed writers leave of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any

from payload_stores.buckets.driver import Target
from payload_stores.multipart import Blocks, DaemonPool, put_parts
from payload_stores.s3.errors import MISSING, NO_UPLOAD, arguments, error_code, field

_log = logging.getLogger(__name__)


class Parts:
    """Uploads in parts through one client; thread-safe.

    Args:
        client: boto3's S3 client. Any, because arguments are built from mappings, which the typed dicts of
            boto3's stubs cannot follow.
        threads: The threads that upload parts.
        create: Further arguments for creating objects: encryption, the algorithm of checksums.
    """

    def __init__(self, client: Any, threads: DaemonPool, create: Mapping[str, str]) -> None:
        self._client = client
        self._threads = threads
        self._create = create

    def put(self, target: Target, parts: Iterable[memoryview], condition: Mapping[str, str], *, ahead: int) -> None:
        """Upload an object in parts; on failure, remove them.

        Args:
            target: The object.
            parts: The payload; all but the last at least 5 MiB.
            condition: ``IfNoneMatch`` or nothing.
            ahead: Maximum parts in flight, and so in memory, at once.
        """
        created = self._client.create_multipart_upload(**arguments(target), **self._create)
        upload = {**arguments(target), "UploadId": field(created, "UploadId")}
        try:
            done = put_parts(self._threads, parts, partial(self._put_part, upload), ahead=ahead)
            self._complete(target, upload, [part for part, _ in done], condition, sum(size for _, size in done))
        except BaseException:
            self._abort(upload)
            raise

    def abort_older(self, bucket: str, prefix: str, limit: datetime) -> int:
        """Abort incomplete multipart uploads started before a time.

        Args:
            bucket: The bucket.
            prefix: Prefix of their keys.
            limit: The time, with its zone.

        Returns:
            Number of aborted uploads.
        """
        aborted = 0
        for upload in self.older(bucket, prefix, limit):
            try:
                self._client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                aborted += 1
            except Exception as error:
                if error_code(error) not in NO_UPLOAD:  # completed or aborted since it was listed
                    raise
        return aborted

    def older(self, bucket: str, prefix: str, limit: datetime) -> Iterator[Mapping[str, Any]]:
        """Incomplete multipart uploads started before a time, as listed by S3.

        Args:
            bucket: The bucket.
            prefix: Prefix of their keys.
            limit: The time, with its zone.
        """
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
        for page in pages:
            field(page, "IsTruncated")  # otherwise an answer without a body would be an empty list
            yield from (upload for upload in page.get("Uploads", ()) if upload["Initiated"] < limit)

    def _put_part(self, upload: Mapping[str, str], number: int, part: memoryview) -> tuple[dict[str, Any], int]:
        with closing(Blocks(part)) as body:
            answer = self._client.upload_part(**upload, PartNumber=number, Body=body)
        # If the parts had checksums, the list of parts must have them too.
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
            # Completed by an attempt whose answer was lost: the upload is gone and the object exists.
            if error_code(error) not in NO_UPLOAD or not self._exists(target, size):
                raise

    def _exists(self, target: Target, size: int) -> bool:
        try:
            answer = self._client.head_object(**arguments(target))
        except Exception as error:
            if error_code(error) in MISSING:
                return False
            raise
        return bool(field(answer, "ContentLength") == size)

    def _abort(self, upload: Mapping[str, str]) -> None:
        # No part is in flight: one that arrives after the abort would stay and be billed.
        try:
            self._client.abort_multipart_upload(**upload)
        except Exception as error:  # noqa: BLE001  must not hide the original error
            if error_code(error) not in NO_UPLOAD:
                _log.warning(
                    "parts of %s remain in bucket %s, to be removed by a lifecycle rule: %s",
                    upload["Key"],
                    upload["Bucket"],
                    error,
                )
