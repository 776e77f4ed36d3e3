"""Values whose payloads are fetched when they are asked for (``large.message.fetch = lazy``)."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import BinaryIO

from payload_stores.buffers import Buffer

__all__ = ["InlineHandle", "PayloadHandle"]


class PayloadHandle(ABC):
    """A value that is fetched when it is asked for, so that those that are passed over cost no download.

    Every value of a lazy reader is a handle, also one that travelled in its record: then nothing is fetched.

    Attributes:
        size: Size of the payload in bytes; None where the record does not tell.
        digest: ``sha256:<hex>`` of the payload as it was published; None likewise.
        reference: Where the payload lies; None where it travelled in the record. It may be enough
            to read the payload: it is not for logs.

    Example:
        >>> from serde_chain import DeserializerChain, RecordContext
        >>> config = {
        ...     "value.deserializers": "large-message",
        ...     "large.message.fetch": "lazy",
        ...     "large.message.payload.store.class": "memory",
        ... }
        >>> with DeserializerChain.from_config(config) as chain:
        ...     handle = chain(b"payload", RecordContext("images", "value", []))
        ...     handle, handle.size, handle.read()
        (<PayloadHandle of 7 bytes, in the record>, 7, b'payload')
    """

    size: int | None
    digest: str | None = None
    reference: str | None = None

    @abstractmethod
    def read(self) -> bytes:
        """Fetch the whole payload, and verify size and digest; each call fetches it anew.

        Raises:
            SerializationError: As a reader that is not lazy raises it; also where the reader was closed meanwhile.
        """

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open the payload for reading, and for seeking where the store can; the caller closes it.

        A few MiB are held at a time. Size and digest are verified when it is read from its beginning to its end: the
        last bytes are not returned if they are wrong. What is read in another order is not verified.

        Raises:
            SerializationError: As in :meth:`read`; so does reading the file.
        """

    def __len__(self) -> int:
        """The size in bytes (``if message:`` asks for it); the payload is fetched where the record does not tell."""
        return len(self.read()) if self.size is None else self.size

    def __bool__(self) -> bool:
        """Whether there is a value: a handle is one, and nothing is fetched to say so."""
        return True

    def __repr__(self) -> str:
        size = "unknown size" if self.size is None else f"{self.size} bytes"
        place = "in the record" if self.reference is None else "in a payload store"
        return f"<PayloadHandle of {size}, {place}>"


class InlineHandle(PayloadHandle):
    """A payload that is here already.

    Args:
        data: The payload.
        reference: Where it was fetched from, if it was.
        digest: Its digest, if that is known.
    """

    def __init__(self, data: Buffer, reference: str | None = None, digest: str | None = None) -> None:
        self._data = bytes(data)
        self.size = len(self._data)
        self.reference = reference
        self.digest = digest

    def read(self) -> bytes:
        """The payload."""
        return self._data

    def open(self) -> BinaryIO:
        """Open the payload."""
        return io.BytesIO(self._data)
