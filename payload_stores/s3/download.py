"""Payloads from S3, by requests for ranges; an answer that breaks off is asked for again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from http import HTTPStatus
from typing import Any, BinaryIO, Final

from payload_stores.errors import PayloadIntegrityError, PayloadStoreUnavailableError
from payload_stores.s3.errors import EMPTY, EXISTS, error_code, field, translated
from payload_stores.s3.upload import Target
from payload_stores.transfer import PART_BYTES, download_ranges, open_ranges

__all__ = ["Downloads"]

_READ_BYTES: Final = 256 << 10
# Of one request, while other downloads keep the network busy.
_LARGE_PART_BYTES: Final = 64 << 20


class Downloads:
    """Downloads over one client; used by several threads at once.

    Args:
        client: boto3's S3 client.
        threads: Where ranges are downloaded.
        attempts: How often the body of an answer is asked for when it breaks off; botocore itself repeats only
            requests that got no answer.
    """

    def __init__(self, client: Any, threads: Executor, *, attempts: int) -> None:
        self._client = client
        self._threads = threads
        self._attempts = attempts
        self._lock = threading.Lock()
        self._under_way = 0

    def get(self, target: Target, check: Callable[[int], None]) -> bytes:
        """Download an object: one larger than a part in several ranges at once.

        Among other downloads parts are larger, since each request takes milliseconds of CPU.

        Args:
            target: Where from.
            check: Called with the size in bytes before memory is allocated; raises if it is too large.
        """
        with self._counted() as is_alone:
            part_bytes = PART_BYTES if is_alone else _LARGE_PART_BYTES
            try:
                return self._get(target, check, part_bytes)
            except Exception as error:
                if error_code(error) not in EXISTS:
                    raise
            # Written anew since the first range: a writer has renewed it. Ranges of the two are not mixed.
            return self._get(target, check, part_bytes)

    @contextmanager
    def _counted(self) -> Iterator[bool]:
        """Count a download; yields whether it is the only one."""
        with self._lock:
            self._under_way += 1
            is_alone = self._under_way == 1
        try:
            yield is_alone
        finally:
            with self._lock:
                self._under_way -= 1

    def _get(self, target: Target, check: Callable[[int], None], part_bytes: int) -> bytes:
        try:
            first = self._client.get_object(**target, Range=f"bytes=0-{part_bytes - 1}")
        except Exception as error:
            if error_code(error) in EMPTY:  # no range lies within an empty object
                return b""
            raise
        with closing(first["Body"]):
            size = _total(first)
            check(size)
            condition = _same(first.get("ETag"))
            return download_ranges(
                self._threads,
                size,
                lambda part, start: self.fill(target, part, start, condition),
                first=lambda part: self.fill(target, part, 0, condition, first),
                first_bytes=min(int(field(first, "ContentLength")), size),
                part_bytes=part_bytes,
            )

    def fill(
        self,
        target: Target,
        part: memoryview,
        start: int,
        condition: Mapping[str, str],
        answer: Mapping[str, Any] | None = None,
    ) -> None:
        """Download a range of an object to where it belongs; a body that breaks off is asked for again.

        Args:
            target: Where from.
            part: Where to; it is as long as the range.
            start: Where the range begins, in bytes.
            condition: ``IfMatch`` or nothing.
            answer: The answer to the first request, if it was made already.
        """
        wanted = f"bytes={start}-{start + len(part) - 1}"
        for left in reversed(range(self._attempts)):
            if answer is None:
                answer = self._client.get_object(**target, **condition, Range=wanted)
            try:
                with translated():
                    return _read(answer, part)
            except PayloadStoreUnavailableError:
                if not left:
                    raise
                answer = None
        raise AssertionError("there is at least one attempt")

    def open(self, target: Target, check: Callable[[int], None], reference: str) -> BinaryIO:
        """Open an object for reading and seeking; about one part of it is held in memory."""
        head = self._client.head_object(**target)
        size = int(field(head, "ContentLength"))
        check(size)
        condition = _same(head.get("ETag"))

        def fill(part: memoryview, start: int) -> None:
            nonlocal condition
            with translated(reference=reference):
                try:
                    return self.fill(target, part, start, condition)
                except Exception as error:
                    if error_code(error) not in EXISTS:
                        raise
                head = self._client.head_object(**target)
                if int(field(head, "ContentLength")) != size:
                    raise PayloadIntegrityError("the object was replaced while it was read")
                # Renewed by a writer: as long as before, and of the same content.
                condition = _same(head.get("ETag"))
                return self.fill(target, part, start, condition)

        return open_ranges(size, fill)


def _read(answer: Mapping[str, Any], part: memoryview) -> None:
    """Read the body of an answer, which must be exactly as long as the part."""
    with closing(answer["Body"]) as body:
        at = 0
        while at < len(part):
            # botocore's readinto allocates as much memory as its buffer has.
            with part[at : at + _READ_BYTES] as block:
                count = body.readinto(block)
            if not count:
                raise PayloadStoreUnavailableError(f"the answer broke off after {at} of {len(part)} bytes")
            at += count
        # botocore compares checksums when it reaches the end, not before.
        if body.readinto(bytearray(1)):
            raise PayloadIntegrityError(f"the answer has more than the {len(part)} bytes that were requested")


def _total(answer: Mapping[str, Any]) -> int:
    """Size of the whole object, by the answer to a request for a range of it."""
    if answer["ResponseMetadata"]["HTTPStatusCode"] != HTTPStatus.PARTIAL_CONTENT:
        return int(field(answer, "ContentLength"))  # the server does not know ranges (RFC 9110, section 14.2)
    content_range = str(field(answer, "ContentRange"))
    total = content_range.rpartition("/")[2]
    if not total.isdecimal():
        # Python's HTTP client treats a truncated header as complete.
        raise PayloadStoreUnavailableError(f"the answer broke off, or its Content-Range is wrong: {content_range!r}")
    return int(total)


def _same(etag: object) -> dict[str, str]:
    """The condition that an object is still the one that an answer was about."""
    text = str(etag or "")
    if text.startswith(('"', 'W/"')) and not re.fullmatch(r'(W/)?"[^"]*"', text):
        raise PayloadStoreUnavailableError(f"the answer broke off, or its ETag is wrong: {text!r}")  # as above
    return {"IfMatch": text} if text else {}
