"""Reads S3 objects in ranges; retries truncated answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from http import HTTPStatus
from typing import Any, Final

from payload_stores.counter import Counter
from payload_stores.errors import PayloadIntegrityError, PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.s3.errors import EMPTY, EXISTS, error_code, field, translated
from payload_stores.s3.upload import Target

__all__ = ["S3Object"]

_READ_BYTES: Final = 256 << 10


class S3Object:
    """The source of downloads. See :class:`~payload_stores.multipart.Source`.

    Args:
        client: boto3's S3 client.
        target: The object.
        reference: Its reference, for errors.
        attempts: Total attempts for an answer whose body breaks off; botocore retries only requests without an answer.
        repeated: Counts these retries.
    """

    def __init__(self, client: Any, target: Target, reference: str, *, attempts: int, repeated: Counter) -> None:
        self._client = client
        self._target = target
        self._reference = reference
        self._attempts = attempts
        self._repeated = repeated

    def ask(self, start: int, length: int) -> S3Answer | None:
        """See :meth:`~payload_stores.multipart.Source.ask`."""
        try:
            answer = self._client.get_object(**self._target, Range=f"bytes={start}-{start + length - 1}")
        except Exception as error:
            if error_code(error) in EMPTY:
                return None
            raise
        try:
            return S3Answer(self, answer, start)
        except BaseException:
            answer["Body"].close()
            raise

    def fill(self, part: memoryview, start: int, version: str | None, answer: Mapping[str, Any] | None = None) -> None:
        """See :meth:`~payload_stores.multipart.Source.fill`.

        Args:
            part: The buffer.
            start: Start of the range.
            version: The ETag.
            answer: The answer to the first request, if already received.
        """
        wanted = f"bytes={start}-{start + len(part) - 1}"
        condition = {"IfMatch": version} if version else {}
        for left in reversed(range(self._attempts)):
            if answer is None:
                answer = self._client.get_object(**self._target, **condition, Range=wanted)
            try:
                with translated():
                    return _read(answer, part)
            except PayloadStoreUnavailableError:
                if not left:
                    raise
                answer = None
                self._repeated.add()
        raise AssertionError("there is at least one attempt")

    def is_replaced(self, error: Exception) -> bool:
        """See :meth:`~payload_stores.multipart.Source.is_replaced`."""
        return error_code(error) in EXISTS

    def errors(self) -> AbstractContextManager[None]:
        """See :meth:`~payload_stores.multipart.Source.errors`."""
        return translated(reference=self._reference)


class S3Answer:
    """The answer to the first request. See :class:`~payload_stores.multipart.Answer`."""

    def __init__(self, source: S3Object, answer: Mapping[str, Any], start: int) -> None:
        self._source = source
        self._answer = answer
        # A server without ranges returns the whole object (RFC 9110, section 14.2).
        self._is_whole = answer["ResponseMetadata"]["HTTPStatusCode"] != HTTPStatus.PARTIAL_CONTENT
        self.size = int(field(answer, "ContentLength")) if self._is_whole else _total(answer)
        self.version = _etag(answer)
        self._start = start
        self.length = min(int(field(answer, "ContentLength")), self.size)

    def read(self, part: memoryview) -> None:
        """See :meth:`~payload_stores.multipart.Answer.read`."""
        if self._is_whole and (self._start or len(part) < self.size):
            raise PayloadStoreError("the server does not answer requests for ranges, and so cannot return a part")
        self._source.fill(part, self._start, self.version, self._answer)

    def close(self) -> None:
        """See :meth:`~payload_stores.multipart.Answer.close`."""
        self._answer["Body"].close()


def _read(answer: Mapping[str, Any], part: memoryview) -> None:
    """Read the body of an answer, whose length must equal the part's."""
    with closing(answer["Body"]) as body:
        at = 0
        while at < len(part):
            # botocore's readinto allocates as much memory as its buffer.
            with part[at : at + _READ_BYTES] as block:
                count = body.readinto(block)
            if not count:
                raise PayloadStoreUnavailableError(f"the answer broke off after {at} of {len(part)} bytes")
            at += count
        # botocore verifies checksums at the end of the body.
        if body.readinto(bytearray(1)):
            raise PayloadIntegrityError(f"the answer has more than the {len(part)} bytes that were requested")


def _total(answer: Mapping[str, Any]) -> int:
    """Size of the whole object, from the answer to a range request."""
    content_range = str(field(answer, "ContentRange"))
    total = content_range.rpartition("/")[2]
    if not total.isdecimal():
        # Python's HTTP client treats a truncated header as complete.
        raise PayloadStoreUnavailableError(f"the answer broke off, or its Content-Range is wrong: {content_range!r}")
    return int(total)


def _etag(answer: Mapping[str, Any]) -> str | None:
    """The state of the object in an answer."""
    text = str(answer.get("ETag") or "")
    if text.startswith(('"', 'W/"')) and not re.fullmatch(r'(W/)?"[^"]*"', text):
        raise PayloadStoreUnavailableError(f"the answer broke off, or its ETag is wrong: {text!r}")  # as above
    return text or None
