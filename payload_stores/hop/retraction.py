"""Retractions in the archive behind hop's offload API (SCiMMA's archive-api from 1.3 on).

A retraction is a mark in the archive's database: ``PUT /msg/{id}/retraction?retracted=true`` sets it, and only lists of
messages show it (``GET /messages?meta=true``). ``GET /msg/{id}`` answers the same for a retracted message. A list is a
BSON document::

    {"messages": [{"metadata": {…}, "annotations": {"con_text_uuid": uuid, "retracted": bool, …}}, …], …}
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

from payload_stores.plugins import require

require("bson", "hop")

import bson  # noqa: E402  after the check that it is there
from bson.errors import BSONError  # noqa: E402

HEADER: Final = "_retracted"
"""Header of a record that is delivered although it is retracted; its value is ``true``, as that of ``_test``."""
MAX_LIST_BYTES: Final = 4 << 20
"""Maximum bytes of a list; the archive puts at most 1024 messages into one, of about 500 bytes each."""
_MAX_MESSAGES: Final = 1024


def mark_url(message_url: str, *, retracted: bool) -> str:
    """The address that sets or removes the mark of a message.

    Args:
        message_url: The message's address.
        retracted: Whether it is to count as retracted.
    """
    return f"{message_url}/retraction?retracted={str(retracted).lower()}"


def list_url(endpoint: str, timestamp: int) -> str:
    """The address of a list of the messages of one millisecond, retracted ones included.

    Args:
        endpoint: The archive's address.
        timestamp: The archive's time of a message, in ms.
    """
    # Without a topic: the archive looks topics up by permissions, which it keeps for "images", not "images+oversized".
    return (
        f"{endpoint}/messages?start_time={timestamp}&end_time={timestamp + 1}"
        f"&limit={_MAX_MESSAGES}&include_retracted=true&meta=true"
    )


def is_retracted(chunks: Iterable[bytes], message_id: uuid.UUID) -> bool | None:
    """Find a message in a list.

    Args:
        chunks: The list's bytes, in pieces of any size.
        message_id: The message's id.

    Returns:
        Whether it is retracted; None if the list does not say: it lacks messages that the user may not list, and older
        archives have no retractions.

    Raises:
        ValueError: It is not such a list.
    """
    document = bytearray()
    for chunk in chunks:
        document += chunk
        if len(document) > MAX_LIST_BYTES:
            raise ValueError(f"it has more than {MAX_LIST_BYTES} bytes")
    try:
        messages: Any = bson.decode(document).get("messages")
    except BSONError:
        # Without the cause, which may quote the data.
        raise ValueError("it is not a BSON document") from None
    if not isinstance(messages, list):
        raise ValueError("it has no array of messages")
    for message in messages:
        annotations = message.get("annotations") if isinstance(message, dict) else None
        if not isinstance(annotations, dict):
            raise ValueError("it has a message without annotations")
        if _is_id(annotations.get("con_text_uuid"), message_id):
            retracted = annotations.get("retracted")
            return retracted if isinstance(retracted, bool) else None
    return None


def _is_id(value: object, message_id: uuid.UUID) -> bool:
    """Whether a value is the id: text, or binary of the subtypes 3 and 4, by the archive's database driver."""
    if isinstance(value, bytes):
        return bytes(value) == message_id.bytes
    return isinstance(value, str) and value.lower() == str(message_id)
