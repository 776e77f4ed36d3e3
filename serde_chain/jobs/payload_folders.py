"""The folders with the payloads of topics."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import unquote

from payload_stores.base import (
    PayloadInfo,
    PayloadStore,
    SupportsDelete,
    SupportsDeleteMany,
    SupportsInfo,
    SupportsList,
    SupportsListRange,
)
from payload_stores.errors import PayloadAccessDeniedError, PayloadNotFoundError, PayloadStoreError
from serde_chain.chain import DeserializerChain
from serde_chain.jobs.reference_plan import ReferencePlan
from serde_chain.stages.large_message.stores import without_deadline
from serde_chain.wire.kip1159 import MAX_REFERENCE_BYTES

_ANY_ID: Final = "-"
_MOST_NAMES: Final = 64
# A random UUID (RFC 9562, section 5.4).
_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Runs of characters of URLs. A run may end with what does not belong to its path, such as the length of Avro's next
# text, so it is also tried up to the end of each id.
_RUN: Final = re.compile(rb"[^\x00-\x20\"<>\\^`{|}\x7f-\xff]+")
_ANY_KNOWN_ID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}(?:/[0-9a-f]{64})?")
# Ends of paths in a value, each of which is hashed from at most as far back as a reference reaches.
_MOST_ENDS: Final = 4000
_QUERY: Final = re.compile("[?#]")
# Segments that do not stay in a path.
_UNRESOLVED: Final = frozenset({"", ".", ".."})
# Escapes of ASCII in JSON.
_ESCAPED: Final = re.compile(rb"\\u00([2-7][0-9a-fA-F])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Folder:
    """The payloads of one topic in one store.

    Attributes:
        store: The store.
        topic: The topic.
        root: Common prefix of the payloads' references; None if only the store knows it.
    """

    store: PayloadStore
    topic: str
    root: str | None

    def list(self, before: datetime, prefix: str = "") -> Iterator[PayloadInfo]:
        """List the payloads written before a time.

        Raises:
            PayloadStoreError: The listing is incomplete.
        """
        # A listing has no deadline: its duration depends on the number of pages.
        store = without_deadline(self.store)
        assert isinstance(store, SupportsList)  # noqa: S101, chosen for that
        yield from store.list(self.topic, prefix=prefix, before=before)

    def list_range(
        self, before: datetime | None = None, after: str = "", until: str | None = None
    ) -> Iterator[PayloadInfo]:
        """List a range of ids, of a store that can (:class:`~payload_stores.SupportsListRange`).

        Raises:
            PayloadStoreError: The listing is incomplete.
        """
        store = without_deadline(self.store)
        assert isinstance(store, SupportsListRange)  # noqa: S101, chosen for that
        yield from store.list_range(self.topic, after=after, until=until, before=before)

    def id_of(self, reference: str) -> str:
        """The id of a payload, or as much of its reference as is known to have it."""
        return unquote(reference.removeprefix(self.root or ""))

    def name(self, reference: str) -> int:
        """The name of a payload in the records that refer to it (:func:`names_of`)."""
        has_root = self.root is not None and reference.startswith(self.root)
        [name] = names_of(f"{self.topic}/{reference.removeprefix(self.root or '')}" if has_root else reference)
        return name

    def is_old(self, reference: str, before: datetime) -> bool:
        """Whether a payload still exists, and was not renewed since it was listed.

        A renewal comes a grace period after ``before``, so that a time without fractions of a second reveals it.

        Raises:
            PayloadStoreError: The store does not answer.
        """
        if not self.store.stable_references:
            return True  # each payload belongs to one record, and is never renewed
        if isinstance(self.store, SupportsInfo):
            try:
                return self.store.info(reference).modified < before
            except PayloadNotFoundError:
                return False
            except PayloadAccessDeniedError:
                pass  # a login that may list and delete, but not read
        prefix = "" if self.root is None else self.id_of(reference)
        return any(info.reference == reference for info in self.list(before, prefix))

    def is_unique(self, reference: str) -> bool:
        """Whether a payload has a random id, so that it belongs to one record, and the store deletes many at once."""
        return (
            isinstance(self.store, SupportsDeleteMany)
            and _RANDOM_ID.fullmatch(reference, reference.rfind("/") + 1) is not None
        )

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete payloads for which :meth:`is_unique`; returns the errors of refused ones.

        Raises:
            PayloadStoreError: They could not be deleted.
        """
        assert isinstance(self.store, SupportsDeleteMany)  # noqa: S101, as is_unique says
        return self.store.delete_many(references)

    def delete(self, reference: str) -> None:
        """Delete a payload.

        Raises:
            PayloadStoreError: It could not be deleted.
        """
        assert isinstance(self.store, SupportsDelete)  # noqa: S101, chosen for that
        self.store.delete(reference)


class IdRange(NamedTuple):
    """A range of ids in a folder; by default all.

    Attributes:
        folder: The index of the folder among all folders.
        after: The range begins behind this id.
        until: It ends with this id; None for the last one.
    """

    folder: int
    after: str = ""
    until: str | None = None


class ListedPayload(NamedTuple):
    """A listed payload.

    Attributes:
        name: Its name in the records that refer to it (:func:`names_of`).
        reference: Its reference.
        size: Its size in bytes.
        modified: When it was written or renewed, in µs since the epoch.
        folder: The index of its folder among all folders.
    """

    name: int
    reference: str
    size: int
    modified: int
    folder: int

    @property
    def time(self) -> datetime:
        """When it was written or renewed."""
        return _EPOCH + timedelta(microseconds=self.modified)


def list_folders(
    folders: Sequence[Folder],
    parts: Iterable[IdRange],
    stores: Sequence[PayloadStore],
    before: datetime,
) -> Iterator[ListedPayload]:
    """List folders, only their own store's payloads: below its prefix may be another store, with its own topics.

    Args:
        folders: All folders.
        parts: What of them is listed.
        stores: All stores.
        before: List only payloads written before this time.

    Raises:
        PayloadStoreError: The listing is incomplete.
    """
    for part in parts:
        folder = folders[part.folder]
        is_whole = not part.after and part.until is None
        for info in folder.list(before) if is_whole else folder.list_range(before, part.after, part.until):
            if len(stores) == 1 or max(stores, key=lambda store: store.claim(info.reference)) is folder.store:
                modified = (info.modified - _EPOCH) // timedelta(microseconds=1)
                yield ListedPayload(folder.name(info.reference), info.reference, info.size, modified, part.folder)


def pages_of(payloads: Iterable[ListedPayload], size: int) -> Iterator[list[ListedPayload]]:
    """Payloads, at most a number at a time."""
    rows = iter(payloads)
    while page := list(islice(rows, size)):
        yield page


def names_of(reference: str, topics: Collection[str] = ()) -> list[int]:
    """The names of a payload.

    A payload may be in two stores, or reachable below two prefixes, under one topic and id; a reference to one is then
    a reference to the other. So its names are every possible topic and id in the reference, and the whole reference.

    Readers of KIP-1159 parse a reference as a URL, or give it to a file system: they drop queries and fragments, and
    resolve ``.``, ``..`` and empty segments. So do names.

    A name is a number, the hash of its segments from last to first: one pass computes all names, however often the
    topic occurs in a reference. If two payloads share a name, an orphan may stay. A reference has at most 64 names,
    those with the shortest ids, and as many without its query: a writer may repeat the topic thousands of times.

    Args:
        reference: The reference.
        topics: The topics whose payloads matter.

    Example:
        >>> [name, whole] = names_of("s3://bucket/pre/alerts/1", {"alerts"})
        >>> [name] == names_of("alerts/1"), [whole] == names_of("s3://bucket/pre/alerts/1")
        (True, True)
    """
    if "?" not in reference and "#" not in reference:
        return _names_of_path(reference, topics)
    folder, slash, last = reference.rpartition("/")
    # Neither ids nor topics contain these; the prefix of a store may.
    names = _names_of_path(f"{folder}{slash}{_without_query(last)}", topics)
    path = _without_query(reference)
    # Queries and fragments may contain slashes.
    if topics and "/" in reference[len(path) :]:
        names += _names_of_path(path, topics)
    return names


def _without_query(reference: str) -> str:
    return _QUERY.split(reference, maxsplit=1)[0]


def _names_of_path(reference: str, topics: Collection[str]) -> list[int]:
    segments = unquote(reference).split("/")
    if not _UNRESOLVED.isdisjoint(segments):
        segments = _resolved(segments)
    names: list[bytes] = []
    hashed = blake2b(digest_size=8)
    for segment in reversed(segments):
        hashed.update(segment.encode(errors="surrogatepass") + b"/")
        if segment in topics and len(names) < _MOST_NAMES - 1:
            names.append(hashed.digest())
    return [int.from_bytes(name, "big", signed=True) for name in (*names, hashed.digest())]


def _resolved(segments: Iterable[str]) -> list[str]:
    """The segments of a path as a file system resolves them."""
    left = [segment for segment in segments if segment and segment != "."]
    return posixpath.normpath("/".join(left)).split("/") if ".." in left else left


def is_plain(reference: str) -> bool:
    """Whether a reference is a single run of a URL's characters; otherwise a URL may be within it.

    Example:
        >>> is_plain("s3://bucket/alerts/1"), is_plain('{"url": "s3://bucket/alerts/1"}')
        (True, False)
    """
    return _RUN.fullmatch(reference.encode(errors="surrogatepass")) is not None


def names_in(data: bytes | bytearray | memoryview, topics: AbstractSet[str]) -> set[int]:
    """The names of the payloads to which some bytes may refer, whatever their format: of all paths with a topic.

    Args:
        data: A value, or a header's.
        topics: The topics whose payloads matter.

    Example:
        >>> names_in(b'{"url": "s3://bucket/alerts/1"}', {"alerts"}) == {*names_of("s3://bucket/alerts/1", {"alerts"})}
        True
    """
    unescaped = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), bytes(data)).replace(b"\\/", b"/")
    runs = (match[0] for match in _RUN.finditer(unescaped))
    paths = (run for run in runs if not topics.isdisjoint(unquote(run.decode()).split("/")))
    ends = ((path, end) for path in paths for end in _ends_in(path))
    found = (path[max(end - MAX_REFERENCE_BYTES, 0) : end].decode() for path, end in islice(ends, _MOST_ENDS))
    return {name for reference in found for name in names_of(reference, topics)}


def _ends_in(path: bytes) -> Iterator[int]:
    yield len(path)
    for match in _ANY_KNOWN_ID.finditer(path):
        yield match.end()


def stores_of(plan: ReferencePlan, readers: Mapping[str, DeserializerChain]) -> tuple[PayloadStore, ...]:
    """The stores of a plan's chains, without duplicates: keys and values open the same stores."""
    stores = (store for name in plan.with_stores for store in readers[name].stores)
    return tuple({(store.scheme, store.reference("-", "-") or id(store)): store for store in stores}.values())


def folders_of(stores: Iterable[PayloadStore], topics: Iterable[str]) -> tuple[list[Folder], list[PayloadStore]]:
    """The topics' folders in stores that support listing and deletion, and the other stores."""
    able: list[PayloadStore] = []
    unable: list[PayloadStore] = []
    for store in stores:
        (able if isinstance(store, SupportsList) and isinstance(store, SupportsDelete) else unable).append(store)
    return [Folder(store, topic, _root(store, topic)) for store in able for topic in topics], unable


def _root(store: PayloadStore, topic: str) -> str | None:
    example = store.reference(topic, _ANY_ID)
    return None if example is None else example.removesuffix(_ANY_ID)
