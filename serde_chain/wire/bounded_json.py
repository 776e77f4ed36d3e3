"""JSON of bounded size, as placeholders have it."""

from __future__ import annotations

import json
from typing import Any

from serde_chain.base import Buffer


def loads(data: Buffer, most_bytes: int, what: str) -> Any:
    """Read a JSON value.

    Args:
        data: The text, in UTF-8.
        most_bytes: Its maximum size.
        what: What it is, for errors.

    Raises:
        ValueError: It is larger, or not JSON.

    Example:
        >>> loads(b'{"url": "s3://bucket/1"}', 8192, "the placeholder")
        {'url': 's3://bucket/1'}
    """
    if len(data) > most_bytes:
        raise ValueError(f"{what} has {len(data)} bytes, more than {most_bytes}")
    try:
        return json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON") from error
