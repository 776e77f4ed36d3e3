"""Base of the bucket stores: parallel range downloads, and deletion of many objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import BinaryIO, Final

from payload_stores.buffers import checked_range
from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.multipart import Downloads, Source
from payload_stores.references import RootedStore

__all__ = ["BucketStore"]

# As many as Amazon's DeleteObjects takes.
_AT_ONCE: Final = 1000


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

    @abstractmethod
    def delete(self, reference: str) -> None:
        """Delete one of the store's own payloads. See :class:`~payload_stores.SupportsDelete`."""

    @abstractmethod
    def _own_name(self, reference: str) -> str:
        """The name of one of the store's own objects; no request is sent.

        Raises:
            UntrustedReferenceError: The reference is not this store's, or longer than any name.
        """

    @abstractmethod
    def _delete_part(self, names: Mapping[str, str]) -> Mapping[str, PayloadStoreError]:
        """Delete up to a thousand own payloads at once.

        Args:
            names: The objects' names, by reference.

        Returns:
            The errors of those that were refused, as far as known.

        Raises:
            PayloadStoreError: The request failed, or cannot tell which object was refused.
        """

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete the store's own payloads, a thousand at once. See :class:`~payload_stores.SupportsDeleteMany`."""
        # All of them before the first request: an error means that nothing was deleted.
        waiting = iter({reference: self._own_name(reference) for reference in references}.items())
        failed: dict[str, PayloadStoreError] = {}
        while part := dict(islice(waiting, _AT_ONCE)):
            try:
                failed.update(self._delete_part(part))
            except (PayloadStoreUnavailableError, PayloadAccessDeniedError):
                raise
            except PayloadStoreError:  # a server without bulk deletes, or one object of many
                failed.update(self._delete_singly(part))
        return failed

    def _delete_singly(self, references: Iterable[str]) -> dict[str, PayloadStoreError]:
        failed: dict[str, PayloadStoreError] = {}
        for reference in references:
            try:
                self.delete(reference)
            except PayloadStoreUnavailableError:
                raise
            except PayloadStoreError as error:
                failed[reference] = error
        return failed
