"""Values whose payloads are fetched on demand (``large.message.fetch = lazy``)."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import BinaryIO

from payload_stores.buffers import Buffer


class PayloadHandle(ABC):
    """A value that is fetched on demand, so that ignored values cost no download.

    Every value of a lazy reader is a handle, including inline values, which need no download.

    Attributes:
        size: Size of the payload in bytes; None if the record does not name it.
        digest: ``sha256:<hex>`` of the published payload; None if the record does not name it.
        reference: Location of the payload; None if it is inline. Do not log it: a reference may suffice to read the
            payload.

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
        """Fetch the whole payload and verify size and digest; each call fetches it again.

        Raises:
            SerializationError: As raised by an eager reader; or the reader is closed.
        """

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open the payload for reading, and for seeking if the store supports it; the caller closes it.

        At most a few MiB are in memory. A read from beginning to end verifies size and digest, and withholds the last
        bytes if they are wrong. Reads in another order are not verified.

        Raises:
            SerializationError: As in :meth:`read`; reads of the file raise it too.
        """

    def __len__(self) -> int:
        """The size in bytes (``if message:`` calls this); fetches the payload if the record does not name its size."""
        return len(self.read()) if self.size is None else self.size

    def __bool__(self) -> bool:
        """True: a handle is a value. Nothing is fetched."""
        return True

    def __repr__(self) -> str:
        size = "unknown size" if self.size is None else f"{self.size} bytes"
        place = "in the record" if self.reference is None else "in a payload store"
        return f"<PayloadHandle of {size}, {place}>"


class InlineHandle(PayloadHandle):
    """A payload in memory.

    Args:
        data: The payload.
        reference: Its location, if it was fetched.
    """

    def __init__(self, data: Buffer, reference: str | None = None) -> None:
        self._data = bytes(data)
        self.size = len(self._data)
        self.reference = reference
        self.digest = None

    def read(self) -> bytes:
        """The payload."""
        return self._data

    def open(self) -> BinaryIO:
        """Open the payload."""
        return io.BytesIO(self._data)
