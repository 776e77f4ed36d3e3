"""Stores that stream payloads."""

from __future__ import annotations

from typing import BinaryIO, Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.base.context import PublishContext

__all__ = ["SupportsStreaming"]


@runtime_checkable
class SupportsStreaming(Protocol, metaclass=Capability):
    """A store that streams payloads in constant memory.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("local", {"local.path": "/srv/payloads"})  # doctest: +SKIP
        >>> with open("image.fits", "rb") as file:  # doctest: +SKIP
        ...     reference = store.publish_stream("images", file)
    """

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Store the contents of a binary reader. Otherwise like :meth:`PayloadStore.publish`."""

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading; the caller closes it. Same errors as :meth:`PayloadStore.download`."""
