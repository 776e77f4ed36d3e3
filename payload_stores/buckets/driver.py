"""What the engine of the bucket stores needs of a library: one request per method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, NamedTuple, Protocol

from payload_stores.buckets.errors import Errors
from payload_stores.buffers import Buffer
from payload_stores.errors import PayloadIntegrityError, PayloadStoreError, PayloadStoreUnavailableError


class Target(NamedTuple):
    """The place of an object.

    Attributes:
        bucket: The bucket or container.
        name: The object's name (S3: its key).
    """

    bucket: str
    name: str


class Head(NamedTuple):
    """Facts about an object.

    Attributes:
        size: Its size in bytes.
        modified: When it was written, or copied onto itself; with its zone.
        version: Identifies its content (ETag); None if the server has none.
    """

    size: int
    modified: datetime
    version: str | None


class ListedObject(NamedTuple):
    """An object in a listing: its name, its size in bytes, and when it was written, with its zone."""

    name: str
    size: int
    modified: datetime


class Answer(Protocol):
    """A server's answer to a range request: facts about the object, and the range.

    Attributes:
        size: Size of the whole object in bytes.
        version: Identifies the object's state, to request further ranges of the same; None if the server has none.
        length: Size of the range; less than requested if the object ends earlier.
    """

    size: int
    version: str | None
    length: int

    def read(self, part: memoryview) -> None:
        """Read the range into a buffer of its length."""

    def close(self) -> None:
        """Release the connection; always called."""


class Driver(ABC):
    """Requests of one library; thread-safe. They raise the library's errors, which ``errors`` converts.

    Attributes:
        errors: Converts them.
        conditional_bytes: Largest payload that :meth:`put` creates conditionally.
        checked_bytes: Payloads above it are looked up before they are created.
        lists_ranges: Whether a listing is sorted by name, and can begin after any name.
    """

    errors: Errors
    conditional_bytes: int
    checked_bytes: int
    lists_ranges: bool = True
    #: What the library calls the names of objects, for messages.
    names: ClassVar[str] = "objects' names"

    def check_process(self) -> None:
        """Raise PayloadStoreError if the library cannot be used in this process."""

    @abstractmethod
    def ask(self, target: Target, start: int, length: int) -> Answer | None:
        """Request a range of at least one byte; None if the object ends at or before its start."""

    @abstractmethod
    def fill(self, target: Target, part: memoryview, start: int, version: str | None) -> None:
        """Read a range into a buffer of its size; refused by ``CONDITION`` if the object has another version."""

    @abstractmethod
    def put(self, target: Target, view: memoryview, digest: str | None, *, create: bool = False) -> None:
        """Upload a payload without copying it, in one request or parallel parts; a failure leaves no parts.

        Args:
            target: The object.
            view: The payload.
            digest: ``sha256:<hex>`` of the payload, if known.
            create: Only if the object does not exist; else refused by ``CONDITION`` or ``CONFLICT``.
        """

    @abstractmethod
    def put_stream(self, target: Target, parts: Iterator[memoryview], *, ahead: int) -> None:
        """Upload an object in parts of 8 MiB as they are read, of which ``ahead`` are in flight at once."""

    @abstractmethod
    def head(self, target: Target) -> Head:
        """Facts about an object."""

    def renew(self, target: Target, head: Head) -> bool:
        """Set an object's modification time to now, if it still has this head; returns whether it was set."""
        return False

    @abstractmethod
    def delete(self, target: Target) -> None:
        """Delete an object; one that is gone is no error."""

    @abstractmethod
    def delete_many(self, bucket: str, names: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete up to a thousand objects; returns the errors of those that were refused, by name, as far as known."""

    @abstractmethod
    def list(self, bucket: str, prefix: str, after: str) -> Iterator[ListedObject]:
        """Objects whose names begin with a prefix, behind another name unless that is empty."""

    def is_object(self, target: Target) -> bool:
        """Whether a listed name without content is that of an object."""
        return True

    @abstractmethod
    def sign(self, target: Target, seconds: int) -> str:
        """Presign a link that reads an object; no request is sent."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


def fill_with(part: memoryview, blocks: Iterable[Buffer]) -> None:
    """Copy the body of an answer into a buffer of its length.

    Args:
        part: The buffer.
        blocks: The body, as received: joining blocks is another copy.

    Raises:
        PayloadIntegrityError: The body is longer.
        PayloadStoreUnavailableError: It is shorter.
    """
    at = 0
    for block in blocks:
        end = at + len(block)
        if end > len(part):
            raise PayloadIntegrityError(f"the answer has more than the {len(part)} bytes that were requested")
        part[at:end] = memoryview(block)
        at = end
        del block  # before the next one is received
    if at < len(part):
        raise PayloadStoreUnavailableError(f"the answer broke off after {at} of {len(part)} bytes")
