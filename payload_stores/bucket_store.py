"""Base of the bucket stores: parallel range downloads."""

from __future__ import annotations

from abc import abstractmethod
from typing import BinaryIO

from payload_stores.buffers import checked_range
from payload_stores.multipart import Downloads, Source
from payload_stores.references import RootedStore

__all__ = ["BucketStore"]


class BucketStore(RootedStore):
    """Stores payloads as objects; subclasses define the requests, and set ``_downloads`` in ``configure``."""

    _downloads: Downloads

    @abstractmethod
    def _source(self, reference: str) -> Source:
        """The object of a reference; no request is sent yet.

        Raises:
            UntrustedReferenceError: The reference must not be followed.
        """

    def download(self, reference: str) -> bytes:
        """Download a payload into one ``bytes`` object. See :meth:`PayloadStore.download`."""
        source = self._source(reference)
        with source.errors():
            return self._downloads.get(source, lambda size: self.check_size(size, reference))

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Download a part of a payload. See :class:`~payload_stores.SupportsRanges`."""
        checked_range(start, length)
        source = self._source(reference)
        with source.errors():
            return self._downloads.read_range(source, start, length, lambda size: self.check_size(size, reference))

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading and seeking. See :class:`~payload_stores.SupportsStreaming`."""
        source = self._source(reference)
        with source.errors():
            return self._downloads.open(source, lambda size: self.check_size(size, reference))
