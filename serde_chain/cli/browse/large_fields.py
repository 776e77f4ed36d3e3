"""Fields of a record that are in the store: whether their references resolve, and which are images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from payload_stores.errors import ContextualError
from serde_chain.cli.browse.payloads import Payloads
from serde_chain.cli.browse.preview import Image
from serde_chain.cli.files import suffix_of
from serde_chain.handles import PayloadHandle
from serde_chain.stages.large_fields.paths import look_up
from serde_chain.wire.large_fields import split

HEAD: Final = 3 * 2880
"""The bytes of a payload that show what it is: the header of a FITS image has some blocks of 2,880."""
_MOST: Final = 100
_MOST_SHOWN: Final = 4 << 20


class Seen(NamedTuple):
    """Whether a reference leads to its payload.

    Attributes:
        text: The text to show.
        kind: ``good``, ``bad`` or ``unknown``.
    """

    text: str
    kind: str


class StoredField(NamedTuple):
    """A field in the store.

    Attributes:
        path: Its path.
        size: Its size in bytes.
        reference: The reference to it; None if the value's type holds none.
        image: Its beginning as an image, if it is one.
    """

    path: str
    size: int
    reference: str | None
    image: Image | None = None

    @property
    def is_shown(self) -> bool:
        """Whether a page displays it."""
        return self.size <= _MOST_SHOWN and self.image is not None and self.image.media_type is not None

    def with_head(self, head: bytes | None) -> StoredField:
        """The same with what its first bytes show."""
        return self._replace(image=None if head is None else Image(self.path, head, suffix_of(head)))


def stored_fields(described: Mapping[str, Any], value: Any) -> list[StoredField]:
    """The fields of a value that are in the store, as many as are shown.

    Args:
        described: The value, as described by :func:`~serde_chain.cli.inspect_topic.describe`.
        value: The decoded value, with handles; None if it is undecodable.
    """
    fields = described.get("fields", ())
    listed: Iterable[Mapping[str, Any]] = () if isinstance(fields, str) else islice(fields, _MOST)
    return [StoredField(each["path"], each["payload bytes"], _reference(value, each["path"])) for each in listed]


def _reference(value: Any, path: str) -> str | None:
    try:
        found = look_up(value, split(path))
    except ValueError:
        return None
    return found.reference if isinstance(found, PayloadHandle) else None


def seen(payloads: Payloads, topic: str, reference: str, size: int | None) -> Seen:
    """Whether a reference leads to its payload.

    Args:
        payloads: Asks the stores.
        topic: The topic of the record.
        reference: The reference.
        size: The payload's size in bytes, if the record states it.
    """
    try:
        is_there = payloads.see(topic, reference, size)
    except ContextualError as error:
        return Seen(error.message, "bad")
    return Seen("yes", "good") if is_there else Seen("not asked: only a download would tell", "unknown")
