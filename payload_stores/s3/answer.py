"""Reads S3's answers to requests for ranges; truncated ones are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.s3.errors import field


class S3Answer:
    """The answer to the first request. See :class:`~payload_stores.buckets.driver.Answer`.

    Args:
        answer: boto3's answer.
        start: Start of the requested range.
        fill: Reads the range of an object with this ETag into a buffer.
    """

    def __init__(self, answer: Mapping[str, Any], start: int, fill: Callable[[memoryview, str | None], object]) -> None:
        self._body = answer["Body"]
        # A server without ranges returns the whole object (RFC 9110, section 14.2).
        self._is_whole = answer["ResponseMetadata"]["HTTPStatusCode"] != HTTPStatus.PARTIAL_CONTENT
        self.size = int(field(answer, "ContentLength")) if self._is_whole else _total(answer)
        self.version = _etag(answer)
        self._start = start
        self._fill = fill
        self.length = min(int(field(answer, "ContentLength")), self.size)

    def read(self, part: memoryview) -> None:
        """See :meth:`~payload_stores.buckets.driver.Answer.read`."""
        if self._is_whole and (self._start or len(part) < self.size):
            raise PayloadStoreError("the server does not answer requests for ranges, and so cannot return a part")
        self._fill(part, self.version)

    def close(self) -> None:
        """See :meth:`~payload_stores.buckets.driver.Answer.close`."""
        self._body.close()


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
