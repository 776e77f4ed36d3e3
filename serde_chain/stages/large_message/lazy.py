"""``large.message.fetch = lazy``: handles of payloads in a store."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

from payload_stores.errors import PayloadIntegrityError, PayloadStoreError
from payload_stores.foreign_errors import translated
from payload_stores.ids import DIGEST_PREFIX
from payload_stores.probes import refuse_larger
from serde_chain.errors import in_chain
from serde_chain.handles import PayloadHandle
from serde_chain.record import Context, RecordContext
from serde_chain.wire.reference_format import Reference

_BUFFER_BYTES: Final = 1 << 20


class LazyHandle(PayloadHandle):
    """A payload in a store.

    Args:
        open_: Opens a payload, unverified.
        scheme_of: Returns the scheme of a reference's store.
        fetch: Downloads and verifies the payload.
        reference: Its reference.
        ctx: The record, for errors.
    """

    def __init__(
        self,
        open_: Callable[[Reference], BinaryIO],
        scheme_of: Callable[[str], str | None],
        fetch: Callable[[], Any],
        reference: Reference,
        ctx: Context | None,
    ) -> None:
        self._open = open_
        self._scheme_of = scheme_of
        self._fetch = fetch
        self._reference = reference
        self._place: dict[str, object] = {}
        if ctx is not None:
            self._place = {"topic": ctx.topic, "field": str(ctx.field)}
        if isinstance(ctx, RecordContext):
            self._place |= {"partition": ctx.partition, "offset": ctx.offset}
        # Payloads compressed in the store have another size and digest there.
        known = reference.compression is None
        self.size = reference.size if known else None
        self.digest = reference.digest if known else None
        self.reference = reference.url

    def read(self) -> bytes:
        """See :meth:`PayloadHandle.read`."""
        with self._explained():
            return bytes(self._fetch())

    def open(self) -> BinaryIO:
        """See :meth:`PayloadHandle.open`."""
        if self._reference.compression is not None:
            return io.BytesIO(self.read())
        with self._explained():
            file = self._open(self._reference)
        return cast("BinaryIO", io.BufferedReader(_Verified(file, self._reference, self._explained), _BUFFER_BYTES))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the record's position to the store's errors, as a chain does."""
        try:
            with translated(self._scheme_of(self._reference.url), reference=self._reference.url):
                yield
        except PayloadStoreError as error:
            raise in_chain(error).add_context(**self._place) from error


class _Verified(io.RawIOBase):
    """An open payload, verified when it is read from beginning to end.

    Args:
        file: The payload.
        reference: Expected size and digest.
        explained: Adds the record's position to errors.
    """

    def __init__(self, file: BinaryIO, reference: Reference, explained: Callable[[], Any]) -> None:
        self._file = file
        self._reference = reference
        self._explained = explained
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._at = 0
        self._is_compared = False

    def readable(self) -> bool:
        """Always readable."""
        return True

    def seekable(self) -> bool:
        """Whether the store's file can be sought."""
        return self._file.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek, as files do."""
        with self._explained():
            self._at = self._file.seek(offset, whence)
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read; raises instead of returning the end of a payload that differs from the published one.

        Raises:
            PayloadIntegrityError: Size or digest are wrong.
        """
        with self._explained():
            if not self._is_compared:
                self._compare()
            block = self._file.read(len(buffer))
            if self._at == self._hashed:
                self._hash.update(block)
                self._hashed += len(block)
                self._verify(is_end=not block)
        self._at += len(block)
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        """Close the store's file."""
        if not self.closed:
            self._file.close()
        super().close()

    def _compare(self) -> None:
        """Refuse a larger payload before any of it is fetched."""
        refuse_larger(self._file, self._reference.url, self._reference.size)
        if self._file.seekable():
            self._file.seek(self._at)
        self._is_compared = True

    def _verify(self, *, is_end: bool) -> None:
        size, digest = self._reference.size, self._reference.digest
        if (is_end and size not in {None, self._hashed}) or (size is not None and self._hashed > size):
            raise PayloadIntegrityError(
                f"the payload does not have the {size} bytes that were published", reference=self._reference.url
            )
        is_whole = is_end if size is None else self._hashed == size
        if is_whole and digest not in {None, DIGEST_PREFIX + self._hash.hexdigest()}:
            raise PayloadIntegrityError(
                "the payload's digest is not the one that was published", reference=self._reference.url
            )
