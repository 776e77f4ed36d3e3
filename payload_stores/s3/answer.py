"""Reads S3's answers: to requests for ranges, of which truncated ones are refused, and the times in all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.s3.errors import field

if TYPE_CHECKING:
    from botocore.session import Session

# S3's formats: RFC 9110, section 5.6.7, in headers, and RFC 3339 in XML.
_OF_HEADERS: Final = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)
_OF_XML: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", re.ASCII)


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


def with_fast_times(session: Session) -> Session:
    """Make clients of a session read S3's usual times without dateutil, which takes a hundred times as long.

    Args:
        session: The session, before its first client.
    """
    from botocore.utils import parse_timestamp

    def parsed(value: Any) -> datetime:
        # Other forms, truncated ones included, are left to botocore.
        if isinstance(value, str):
            if _OF_HEADERS.fullmatch(value):
                return parsedate_to_datetime(value)
            if _OF_XML.fullmatch(value):
                return datetime.fromisoformat(value)
        return parse_timestamp(value)

    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parsed)
    return session
