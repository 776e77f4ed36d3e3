"""What the formats of other systems have in common: they are read, never written, and most name S3 objects in JSON.

Their objects are in no topic's folder, so a reference may name any key below a configured store's prefix; a bucket that
is not configured is refused, as always.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any, Final, NoReturn

from payload_stores.references import to_url
from serde_chain.base import Buffer
from serde_chain.errors import EncodeError
from serde_chain.record import Context
from serde_chain.wire.reference_format import Reference, ReferenceFormat

MAX_DOCUMENT_BYTES: Final = 1 << 20
"""Maximum size of a document that is read as a placeholder: its objects take some twenty times as much."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{1,254}")
_ARN: Final = re.compile(r"arn:aws[a-z-]*:s3:[^:/]*:[^:/]*:([^:/]+)/(.+)", re.DOTALL)
_MAX_SIZE: Final = 1 << 60


class ForeignFormat(ReferenceFormat):
    """A format that is only read."""

    writes = False

    def headers(self, *, is_key: bool) -> Collection[str]:
        """None, unless a format says otherwise."""
        return ()

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> NoReturn:
        """Refuse; :func:`serde_chain.stages.large_message.options.format_to_write` does so first."""
        raise EncodeError("the format is only read", hint="Set large.message.format to another one")


def document(data: Buffer, *, parse_float: Callable[[str], object] | None = None) -> dict[str, Any] | None:
    """The JSON object in a record's field; None if there is none.

    Args:
        data: The field.
        parse_float: Makes values of numbers with a point or an exponent; by default, floats.

    Raises:
        ValueError: It is larger than :data:`MAX_DOCUMENT_BYTES`.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ValueError(f"the document has {len(data)} bytes, more than {MAX_DOCUMENT_BYTES}")
    try:
        found = json.loads(str(data, "utf-8"), parse_float=parse_float)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def s3_url(bucket: object, key: object) -> str:
    """The reference of an object, percent-encoded.

    Raises:
        ValueError: These are no names of a bucket and an object.

    Example:
        >>> s3_url("payloads", "2026/a b")
        's3://payloads/2026/a%20b'
    """
    if not (isinstance(bucket, str) and _BUCKET.fullmatch(bucket)):
        raise ValueError("the bucket's name is missing or malformed")
    if not (isinstance(key, str) and key):
        raise ValueError("the object's key is missing")
    try:
        return to_url("s3", bucket, key.split("/"))
    except UnicodeEncodeError:
        raise ValueError("the object's key is invalid Unicode") from None


def s3_reference_of_arn(arn: str) -> str:
    """The reference of an object named by its ARN.

    Raises:
        ValueError: It is no ARN of an object in S3.

    Example:
        >>> s3_reference_of_arn("arn:aws:s3:::payloads/2026/1")
        's3://payloads/2026/1'
    """
    match = _ARN.fullmatch(arn)
    if match is None:
        raise ValueError("the reference is no ARN of an object in S3")
    return s3_url(match[1], match[2])


def digest_of(text: object, name: str) -> str:
    """A reference's digest, of 64 hexadecimal digits.

    Raises:
        ValueError: They are not.
    """
    digits = text.lower() if isinstance(text, str) else ""
    if not _SHA256.fullmatch(digits):
        raise ValueError(f"{name} does not have 64 hexadecimal digits")
    return f"sha256:{digits}"


def size_of(number: object, name: str) -> int | None:
    """A reference's size in bytes; None if it is absent or 0, as writers that do not know it say.

    Raises:
        ValueError: It is no size.
    """
    if number is None or (type(number) is int and number == 0):
        return None
    if type(number) is not int or not 0 < number < _MAX_SIZE:
        raise ValueError(f"{name} is not a number of bytes")
    return number
