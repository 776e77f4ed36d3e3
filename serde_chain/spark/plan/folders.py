"""Where the payloads of topics lie, as a job's driver and its workers see it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

from payload_stores.base import PayloadInfo, PayloadStore, SupportsDelete, SupportsInfo, SupportsList
from payload_stores.errors import PayloadNotFoundError
from payload_stores.references import FIRST_CHARACTERS
from serde_chain.chain import DeserializerChain
from serde_chain.spark.plan.references import ReferencePlan
from serde_chain.stages.large_message.stores import without_deadline

__all__ = ["LISTED", "SHARES", "Folder", "ListingPlan", "folders_of", "names_of", "stores_of"]

LISTED: Final = "name bigint, reference string, size bigint, modified bigint, folder int"
"""A payload in a listing, as Spark's columns; ``modified`` in µs since the epoch, ``folder`` its place among all."""

_DIGITS: Final = 16
_ANY_ID: Final = "-"
_MOST_NAMES: Final = 64

# Each has one hexadecimal digit, so that all have about as many payloads, and some of the other characters.
SHARES: Final = tuple((FIRST_CHARACTERS[at], *FIRST_CHARACTERS[_DIGITS + at :: _DIGITS]) for at in range(_DIGITS))
"""What ids begin with, in as many parts as readers of one folder can share."""


@dataclass(frozen=True)
class Folder:
    """The payloads of one topic in one store.

    Attributes:
        store: The store.
        topic: The topic.
        root: What the references of these payloads begin with; None where only the store knows.
    """

    store: PayloadStore
    topic: str
    root: str | None

    def list(self, before: datetime, prefix: str = "") -> Iterator[PayloadInfo]:
        """List what was written earlier than this.

        Raises:
            PayloadStoreError: The listing is not complete.
        """
        # A listing has no deadline: it takes as long as there are pages.
        store = without_deadline(self.store)
        assert isinstance(store, SupportsList)  # noqa: S101, chosen by that
        yield from store.list(self.topic, prefix=prefix, before=before)

    def list_own(
        self, before: datetime, stores: Sequence[PayloadStore], prefix: str = ""
    ) -> Iterator[tuple[int, PayloadInfo]]:
        """List what is this store's, of all that are used: below its prefix may lie another's, with its own topics.

        Yields:
            The payload's name, and the payload.

        Raises:
            PayloadStoreError: The listing is not complete.
        """
        for info in self.list(before, prefix):
            if len(stores) == 1 or max(stores, key=lambda store: store.claim(info.reference)) is self.store:
                yield self.name(info.reference), info

    def name(self, reference: str) -> int:
        """The name by which records that refer to a payload know it (:func:`names_of`)."""
        has_root = self.root is not None and reference.startswith(self.root)
        [name] = names_of(f"{self.topic}/{reference.removeprefix(self.root or '')}" if has_root else reference)
        return name

    def is_old(self, reference: str, before: datetime) -> bool:
        """Whether a payload is still there, and was not renewed since it was listed.

        Raises:
            PayloadStoreError: The store does not say.
        """
        if not self.store.stable_references:
            return True  # each payload is one record's, and never renewed
        if isinstance(self.store, SupportsInfo):
            try:
                return self.store.info(reference).modified < before
            except PayloadNotFoundError:
                return False
        prefix = "" if self.root is None else unquote(reference.removeprefix(self.root))
        return any(info.reference == reference for info in self.list(before, prefix))

    def delete(self, reference: str) -> None:
        """Delete a payload.

        Raises:
            PayloadStoreError: It could not be deleted.
        """
        assert isinstance(self.store, SupportsDelete)  # noqa: S101, chosen by that
        self.store.delete(reference)


@dataclass(frozen=True)
class ListingPlan:
    """The instructions to workers that list payloads.

    Attributes:
        reading: How references are read, and so what the stores and the topics are.
        folders: The places, among all folders, of those that are listed.
        before: Only what was written earlier than this is listed.
        python: The driver's interpreter, for messages.
    """

    reading: ReferencePlan
    folders: tuple[int, ...]
    before: datetime
    python: str = field(default_factory=lambda: sys.executable)


def names_of(reference: str, topics: Collection[str] = ()) -> list[int]:
    """The names by which a payload is known.

    A payload may be in two stores, or be reached below two prefixes, under one topic and id: then a reference to one
    of them is one to the other. So its names are all that may be a topic and an id in the reference, and the whole.

    A name is a number, the hash of its segments from the last to the first: all of them take one pass, however often a
    reference has the topic in it. Two payloads may have one: an orphan then stays. There are at most 64 of them, those
    of the shortest ids: a writer may repeat the topic thousands of times.

    Args:
        reference: The reference.
        topics: The topics whose payloads matter.

    Example:
        >>> [name, whole] = names_of("s3://bucket/pre/alerts/1", {"alerts"})
        >>> [name] == names_of("alerts/1"), [whole] == names_of("s3://bucket/pre/alerts/1")
        (True, True)
    """
    names: list[bytes] = []
    hashed = blake2b(digest_size=8)
    for segment in reversed(unquote(reference).split("/")):
        hashed.update(segment.encode(errors="surrogatepass") + b"/")
        if segment in topics and len(names) < _MOST_NAMES - 1:
            names.append(hashed.digest())
    return [int.from_bytes(name, "big", signed=True) for name in (*names, hashed.digest())]


def stores_of(plan: ReferencePlan, readers: Mapping[str, DeserializerChain]) -> tuple[PayloadStore, ...]:
    """The stores of a plan's chains, each once: the same one is opened for keys and for values."""
    stores = (store for name in plan.with_stores for store in readers[name].stores)
    return tuple({(store.scheme, store.reference("-", "-") or id(store)): store for store in stores}.values())


def folders_of(stores: Iterable[PayloadStore], topics: Iterable[str]) -> tuple[list[Folder], list[PayloadStore]]:
    """The folders of some topics in those stores that can be listed and deleted from, and the other stores."""
    able: list[PayloadStore] = []
    unable: list[PayloadStore] = []
    for store in stores:
        (able if isinstance(store, SupportsList) and isinstance(store, SupportsDelete) else unable).append(store)
    return [Folder(store, topic, _root(store, topic)) for store in able for topic in topics], unable


def _root(store: PayloadStore, topic: str) -> str | None:
    example = store.reference(topic, _ANY_ID)
    return None if example is None else example.removesuffix(_ANY_ID)
