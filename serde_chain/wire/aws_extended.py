"""AWS payload offloading, ``aws-extended``: what the extended clients of SQS and SNS send, in Kafka by way of a bridge.

The value is a JSON array of two: the name of a Java class, and an object with ``s3BucketName`` and ``s3Key``. Clients
in other languages write the object alone, with just these members; other objects are data. Where a bridge makes headers
of message attributes, ``ExtendedPayloadSize`` is the payload's size in bytes; older clients write other names for class
and attribute. There is no digest.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from serde_chain.base import Buffer
from serde_chain.record import Context, get_header
from serde_chain.wire import bounded_json
from serde_chain.wire.foreign import ForeignFormat, document, s3_url, size_of
from serde_chain.wire.reference_format import Reference

MAX_POINTER_BYTES: Final = 8192

_CLASSES: Final = (
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
)
# Jackson writes no blanks, Python's encoder does.
_BEGIN: Final = re.compile(rb'\[\s{0,8}"(?:%s)"\s{0,8},' % b"|".join(re.escape(name.encode()) for name in _CLASSES))
_MEMBERS: Final = frozenset({"s3BucketName", "s3Key"})
_BEGIN_ALONE: Final = re.compile(rb'\{\s{0,8}"s3(?:BucketName|Key)"\s{0,8}:')
_SIZES: Final = ("ExtendedPayloadSize", "SQSLargePayloadSize")
_DIGITS: Final = re.compile(rb"\d{1,18}")


class _AwsExtendedFormat(ForeignFormat):
    in_band = True

    def headers(self, *, is_key: bool) -> Collection[str]:
        return () if is_key else _SIZES

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        pointer: dict[str, Any] | None
        if _BEGIN.match(data):
            found = bounded_json.loads(data, MAX_POINTER_BYTES, "the pointer")
            if not (len(found) == 2 and isinstance(found[1], dict)):
                raise ValueError('the pointer does not have the form ["<class>", {…}]')
            pointer = found[1]
        elif _BEGIN_ALONE.match(data) and len(data) <= MAX_POINTER_BYTES:
            pointer = document(data)
            if pointer is None or pointer.keys() != _MEMBERS:
                return None
        else:
            return None
        return Reference(s3_url(pointer.get("s3BucketName"), pointer.get("s3Key")), None if is_key else _size(ctx))


def _size(ctx: Context | None) -> int | None:
    for name in _SIZES:
        text = get_header(ctx, name)
        if text is not None:
            return size_of(int(text) if _DIGITS.fullmatch(text) else text, f"the header {name}")
    return None


FORMAT: Final = _AwsExtendedFormat()
