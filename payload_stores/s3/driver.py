"""The requests of the store ``s3``, by boto3. See :class:`payload_stores.buckets.driver.Driver`.

botocore has its own retries for requests without an answer; here, answers are retried whose body breaks off.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any, Final

from payload_stores.buckets.driver import Driver, Head, ListedObject, Target, fill_with
from payload_stores.counter import Counter
from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.ids import DIGEST_PREFIX, sha256_digest
from payload_stores.multipart import MAX_PARTS, PARALLEL, PART_BYTES, Blocks, DaemonPool, slices
from payload_stores.s3.answer import S3Answer
from payload_stores.s3.errors import EMPTY, MISSING, S3Errors, arguments, error_code, field, refuse_pages
from payload_stores.s3.parts import Parts

_log = logging.getLogger(__name__)

# "Directory bucket naming rules" in Amazon's S3 User Guide.
DIRECTORY_BUCKET: Final = "--x-s3"
_READ_BYTES: Final = 256 << 10
# Larger than any object.
_ANY_BYTES: Final = 1 << 60


class S3Driver(Driver):
    """Requests through one client.

    Args:
        client: boto3's S3 client. Any, because arguments are built from mappings, which the typed dicts of
            boto3's stubs cannot follow.
        bucket: The store's own bucket.
        threads: The threads that upload parts.
        create: Further arguments for creating objects (encryption).
        checksums: Whether to send the SHA-256 of payloads and the CRC32 of parts.
        threshold: Larger payloads are uploaded in parts.
        attempts: Total attempts for an answer whose body breaks off.

    Attributes:
        parts: Uploads in parts.
        repeated: Counts retries, by botocore or here.
    """

    errors: S3Errors
    conditional_bytes = _ANY_BYTES
    checked_bytes = PART_BYTES
    names = "S3's keys"

    def __init__(
        self,
        client: Any,
        bucket: str,
        threads: DaemonPool,
        *,
        create: Mapping[str, str],
        checksums: bool,
        threshold: int,
        attempts: int,
    ) -> None:
        self.errors = S3Errors("s3")
        # Directory buckets are not sorted ("ListObjectsV2" in the S3 API Reference).
        self.lists_ranges = not bucket.endswith(DIRECTORY_BUCKET)
        self.repeated = Counter()
        self.parts = Parts(client, threads, {**create, "ChecksumAlgorithm": "CRC32"} if checksums else create)
        self._client = client
        self._create = create
        self._checksums = checksums
        self._threshold = threshold
        self._attempts = attempts
        # Called after each attempt; a handler's return value would decide about the retry.
        client.meta.events.register("needs-retry.s3", self._count_retry)
        client.meta.events.register("after-call.s3", refuse_pages)
        if checksums:
            _sign_checksums_only(client)

    def ask(self, target: Target, start: int, length: int) -> S3Answer | None:
        """See :meth:`~payload_stores.buckets.driver.Driver.ask`."""
        try:
            answer = self._client.get_object(**arguments(target), Range=f"bytes={start}-{start + length - 1}")
        except Exception as error:
            if error_code(error) in EMPTY:
                return None
            raise
        try:
            return S3Answer(answer, start, lambda part, version: self._fill(target, part, start, version, answer))
        except BaseException:
            answer["Body"].close()
            raise

    def fill(self, target: Target, part: memoryview, start: int, version: str | None) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.fill`."""
        self._fill(target, part, start, version, None)

    def _fill(
        self, target: Target, part: memoryview, start: int, version: str | None, answer: Mapping[str, Any] | None
    ) -> None:
        """Read a range, the first time from an answer if there is one."""
        wanted = f"bytes={start}-{start + len(part) - 1}"
        condition = {"IfMatch": version} if version else {}
        for left in reversed(range(self._attempts)):
            if answer is None:
                answer = self._client.get_object(**arguments(target), **condition, Range=wanted)
            try:
                # botocore verifies checksums at the end of the body.
                with self.errors.translated(), closing(answer["Body"]) as body:
                    # Not its own iterator, which would hold each block while the next one is received.
                    return fill_with(part, iter(partial(body.read, _READ_BYTES), b""))
            except PayloadStoreUnavailableError:
                if not left:
                    raise
                answer = None
                self.repeated.add()
        raise AssertionError("there is at least one attempt")

    def put(self, target: Target, view: memoryview, digest: str | None, *, create: bool = False) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.put`, and "Conditional writes" in Amazon's S3 User Guide."""
        condition = {"IfNoneMatch": "*"} if create else {}
        if len(view) > self._threshold:
            self.parts.put(target, slices(view, MAX_PARTS), condition, ahead=PARALLEL)
            return
        checksum = {"ChecksumSHA256": _base64(digest or sha256_digest(view))} if self._checksums else {}
        with closing(Blocks(view)) as body:
            self._client.put_object(**arguments(target), **self._create, **condition, **checksum, Body=body)

    def put_stream(self, target: Target, parts: Iterator[memoryview], *, ahead: int) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.put_stream`."""
        self.parts.put(target, parts, {}, ahead=ahead)

    def head(self, target: Target) -> Head:
        """See :meth:`~payload_stores.buckets.driver.Driver.head`."""
        answer = self._client.head_object(**arguments(target))
        return Head(field(answer, "ContentLength"), field(answer, "LastModified"), answer.get("ETag"))

    def renew(self, target: Target, head: Head) -> bool:
        """Copy an object onto itself. See :meth:`~payload_stores.buckets.driver.Driver.renew`.

        Returns:
            Whether it was copied. If not, it is gone or replaced, too large to copy, or unreadable; or the server
            cannot copy, or has no versions.
        """
        if head.version is None:
            return False
        try:
            answer = self._client.copy_object(
                **arguments(target),
                **self._create,
                CopySource=arguments(target),
                CopySourceIfMatch=head.version,
                # S3 refuses to copy an object onto itself unchanged ("Copying objects" in its user guide).
                MetadataDirective="REPLACE",
            )
            renewed: datetime = answer["CopyObjectResult"]["LastModified"]
        except Exception as error:  # noqa: BLE001  the upload raises again if the server is down
            _log.debug("%s is uploaded again, since it could not be copied: %s", target.name, error)
            return False
        return renewed > head.modified

    def delete(self, target: Target) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.delete`."""
        self._client.delete_object(**arguments(target))

    def delete_many(self, bucket: str, names: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """See :meth:`~payload_stores.buckets.driver.Driver.delete_many`."""
        answer = self._client.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": name} for name in names], "Quiet": True}
        )
        refused = (each for each in answer.get("Errors", ()) if each.get("Code") not in MISSING)
        return {each.get("Key", ""): self.errors.of_one(each) for each in refused}

    def list(self, bucket: str, prefix: str, after: str) -> Iterator[ListedObject]:
        """See :meth:`~payload_stores.buckets.driver.Driver.list`."""
        where = {"Prefix": prefix, "StartAfter": after} if after else {"Prefix": prefix}
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, **where):
            field(page, "IsTruncated")  # otherwise an answer without a body would be an empty list
            for item in page.get("Contents", ()):
                yield ListedObject(item["Key"], item["Size"], item["LastModified"])

    def sign(self, target: Target, seconds: int) -> str:
        """See :meth:`~payload_stores.buckets.driver.Driver.sign`."""
        link: str = self._client.generate_presigned_url("get_object", Params=arguments(target), ExpiresIn=seconds)
        return link

    def close(self) -> None:
        """See :meth:`~payload_stores.buckets.driver.Driver.close`."""
        self._client.close()

    def _count_retry(self, attempts: int, **_: object) -> None:
        if attempts > 1:
            self.repeated.add()


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


def _base64(digest: str) -> str:
    """A digest in S3's checksum format."""
    return base64.b64encode(bytes.fromhex(digest.removeprefix(DIGEST_PREFIX))).decode()
