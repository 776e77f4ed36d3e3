"""Uploads payloads to S3, in one request or parallel parts, without copying the payload.

This module only makes requests. :mod:`payload_stores.s3.errors` converts their errors;
:mod:`payload_stores.s3.store` chooses the names of objects.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from payload_stores.ids import DIGEST_PREFIX, sha256_digest
from payload_stores.multipart import Blocks, DaemonPool, put_parts
from payload_stores.s3.errors import MISSING, NO_UPLOAD, error_code, field

__all__ = ["Head", "Target", "Uploads"]

_log = logging.getLogger(__name__)

# Arguments that name an object in a request: Bucket and Key.
Target: TypeAlias = Mapping[str, str]


class Head(NamedTuple):
    """Facts about an object.

    Attributes:
        size: Its size in bytes.
        modified: When it was written, or copied onto itself.
        etag: Identifies its content.
    """

    size: int
    modified: datetime
    etag: str


class Uploads:
    """Uploads through one client; thread-safe.

    Args:
        client: boto3's S3 client. Any, because arguments are built from mappings, which the typed dicts of
            boto3's stubs cannot follow.
        threads: The threads that upload parts.
        create: Further arguments for creating objects (encryption).
        checksums: Whether to send the SHA-256 of payloads and the CRC32 of parts.
    """

    def __init__(self, client: Any, threads: DaemonPool, *, create: Mapping[str, str], checksums: bool) -> None:
        self._client = client
        self._threads = threads
        self._create = create
        self._checksums = checksums
        self._checksum = {"ChecksumAlgorithm": "CRC32"} if checksums else {}
        if checksums:
            self._sign_checksums_only(client)

    def head(self, target: Target) -> Head | None:
        """Facts about an object; None if it does not exist."""
        try:
            answer = self._client.head_object(**target)
        except Exception as error:
            if error_code(error) in MISSING:
                return None
            raise
        return Head(*(field(answer, name) for name in ("ContentLength", "LastModified", "ETag")))

    def renew(self, target: Target, head: Head) -> bool:
        """Copy an object onto itself, so that it counts as written now.

        Args:
            target: The object.
            head: Facts about it.

        Returns:
            Whether it was copied. If not, it must be uploaded again: it is gone or replaced, too large to copy, or
            unreadable; or the server cannot copy.
        """
        try:
            answer = self._client.copy_object(
                **target,
                **self._create,
                CopySource=dict(target),
                CopySourceIfMatch=head.etag,
                # S3 refuses to copy an object onto itself unchanged ("Copying objects" in its user guide).
                MetadataDirective="REPLACE",
            )
            renewed: datetime = answer["CopyObjectResult"]["LastModified"]
        except Exception as error:  # noqa: BLE001  the upload raises again if the server is down
            _log.debug("%s is uploaded again, since it could not be copied: %s", target["Key"], error)
            return False
        return renewed > head.modified

    def put(self, target: Target, view: memoryview, condition: Mapping[str, str], digest: str | None) -> None:
        """Upload an object in one request.

        Args:
            target: The object.
            view: The payload.
            condition: ``IfNoneMatch`` or nothing.
            digest: ``sha256:<hex>`` of the payload, if known.
        """
        checksum = {"ChecksumSHA256": _base64(digest or sha256_digest(view))} if self._checksums else {}
        with closing(Blocks(view)) as body:
            self._client.put_object(**target, **self._create, **condition, **checksum, Body=body)

    def put_parts(
        self, target: Target, parts: Iterable[memoryview], condition: Mapping[str, str], *, ahead: int
    ) -> None:
        """Upload an object in parts; on failure, remove them.

        Args:
            target: The object.
            parts: The payload; all but the last at least 5 MiB.
            condition: ``IfNoneMatch`` or nothing.
            ahead: Maximum parts in flight, and so in memory, at once.
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

    @staticmethod
    def _sign_checksums_only(client: Any) -> None:
        """Keep botocore from hashing payloads again for the signature of a put, and of a part over plain http.

        The signature covers the header with the payload's SHA-256, which the server verifies: even over plain http,
        data cannot be changed in transit. For a part it covers the CRC32, as over TLS; readers compare the whole
        payload with the record's SHA-256. Other requests are signed as usual.
        """
        from botocore.config import Config

        config = client.meta.config
        settings: Any = {"payload_signing_enabled": False, **config.s3}  # the user's own settings file applies
        lean = config.merge(Config(s3=settings))

        def use(context: dict[str, Any], **_: object) -> None:
            context["client_config"] = lean

        for request in ("PutObject", "UploadPart"):
            client.meta.events.register(f"before-call.s3.{request}", use)

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
            if error_code(error) not in NO_UPLOAD or (head := self.head(target)) is None or head.size != size:
                raise

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


def _base64(digest: str) -> str:
    """A digest in S3's checksum format."""
    return base64.b64encode(bytes.fromhex(digest.removeprefix(DIGEST_PREFIX))).decode()
