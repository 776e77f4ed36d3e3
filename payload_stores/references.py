"""Parses and builds references, by the same rules for every store.

A reference comes from the wire and must not be trusted. Anything but ``scheme://host/segment/…/segment`` is refused
here, before a store sees it; the store decides whether to follow the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.errors import ConfigError, PayloadStoreError, UntrustedReferenceError

__all__ = [
    "Location",
    "RootedStore",
    "Roots",
    "begins_id",
    "object_path",
    "parse",
    "parse_prefix",
    "to_url",
]

# Not urllib's urlsplit, which drops tabs, line ends and leading blanks: readers would disagree about the reference.
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#]*)/([^?#]*)")
# Logins, and queries, which may be signatures.
_SECRET: Final = re.compile(r"(?<=//)[^/?#]*@|(?<=[?#]).+", re.DOTALL)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# RFC 3986's unreserved characters need no encoding anywhere. A leading dot is kept for temporary files.
_ID_SEGMENT: Final = re.compile(r"(?!\.)[A-Za-z0-9._~-]{1,200}")


@dataclass(frozen=True, slots=True)
class Location:
    """The target of a reference.

    Attributes:
        scheme: URL scheme, lower case.
        host: The part between ``//`` and the first ``/``: a bucket, or empty.
        segments: The path, percent-decoded, without empty segments, ``.`` or ``..``.

    Example:
        >>> Location("s3", "bucket", ("pre",)).covers(Location("s3", "bucket", ("pre", "alerts", "1")))
        True
    """

    scheme: str
    host: str
    segments: tuple[str, ...]

    def covers(self, other: Location) -> bool:
        """Whether another location lies below this one, by whole segments: ``pre`` does not cover ``prefix/x``."""
        size = len(self.segments)
        return (
            (other.scheme, other.host) == (self.scheme, self.host)
            and len(other.segments) > size
            and other.segments[:size] == self.segments
        )


class Roots:
    """The prefixes below which a store follows references: its own, and those trusted by its user.

    Args:
        store: The store, with its ``scheme`` and ``trusted_references``.
        host: Host of the store's own prefix: a bucket, or empty.
        segments: Path of the store's own prefix: a tuple of text that is not percent-encoded.

    Attributes:
        own: The store's own prefix.

    Raises:
        ConfigError: References below the store's own prefix would be refused by a reader, or a trusted prefix of the
            store's scheme is not a prefix of references.

    Example:
        >>> from payload_stores import open_store
        >>> roots = Roots(open_store("memory", {}), "bucket", ("pre",))
        >>> roots.url(("alerts", "1")), roots.owns("memory://bucket/prefix/alerts/1")
        ('memory://bucket/pre/alerts/1', False)
    """

    def __init__(self, store: PayloadStore, host: str = "", segments: tuple[str, ...] = ()) -> None:
        self._store = store
        self.own = Location(store.scheme, host, segments)
        self._check_own()
        self._trusted = tuple(
            parse_prefix(store, prefix) for prefix in store.trusted_references if prefix.startswith(f"{store.scheme}:")
        )

    def _check_own(self) -> None:
        """Refuse a prefix whose references no reader accepts, before anything is published."""
        try:
            # The scheme has a check of its own, when the store is opened.
            match = _URL.fullmatch(to_url("any", self.own.host, (*self.own.segments, "id")))
            is_read_back = (
                match is not None
                and match[2] == self.own.host
                and _segments(self._store, match[0], match[3]) == (*self.own.segments, "id")
            )
        except (UntrustedReferenceError, UnicodeEncodeError):
            is_read_back = False
        if not is_read_back:
            raise ConfigError(
                f"references below host {self.own.host!r} and segments {self.own.segments!r} could not be read back",
                hint="A host contains no '/', '?' or '#', segments are a tuple of non-empty text, not '.' or '..'",
            )

    def locate(self, reference: str, *, own_only: bool = False) -> tuple[Location, tuple[str, ...]]:
        """Find the prefix that contains a reference.

        Args:
            reference: The reference from the wire.
            own_only: Whether to accept only the store's own prefix, as for deleting.

        Returns:
            The prefix, and the path below it: topic and id.

        Raises:
            UntrustedReferenceError: The reference has another scheme, or is outside all prefixes.
        """
        location = parse(self._store, reference)
        for root in (self.own,) if own_only else (self.own, *self._trusted):
            if root.covers(location):
                return root, location.segments[len(root.segments) :]
        raise self._store.untrusted(reference, f"it is outside {self.url(('',))}")

    def owns(self, reference: str) -> bool:
        """Whether a reference is below one of the prefixes. See :meth:`PayloadStore.owns`."""
        return self.claim(reference) > 0

    def claim(self, reference: str) -> int:
        """Number of segments of the longest prefix that contains a reference. See :meth:`PayloadStore.claim`."""
        try:
            location = parse(self._store, reference)
        except UntrustedReferenceError:
            return 0
        covering = (root for root in (self.own, *self._trusted) if root.covers(location))
        return max((1 + len(root.segments) for root in covering), default=0)

    def listed(self, path: Sequence[str]) -> str | None:
        """The reference of a path listed below the store's own prefix.

        Others may write there too, under names that no reference can have; only listed references can be deleted.

        Returns:
            The reference; None if the path cannot have one.
        """
        try:
            reference = self.url(path)
            if not all(map(_ID_SEGMENT.fullmatch, path)):  # mostly ids
                self.locate(reference, own_only=True)
        except (UntrustedReferenceError, UnicodeEncodeError):  # file names may be invalid Unicode
            return None
        return reference

    def url(self, path: Iterable[str]) -> str:
        """The reference of a path below the store's own prefix."""
        return to_url(self.own.scheme, self.own.host, (*self.own.segments, *path))


class _NoRoots:
    """The roots of a store that did not set them: hidden by the attribute of the instance."""

    def __get__(self, store: PayloadStore | None, owner: type[PayloadStore]) -> Any:
        if store is None:
            return self
        raise ConfigError(
            f"{owner.__name__} has no roots, the prefixes of its references",
            hint="Set self.roots = Roots(self, host, segments) in configure, after super().configure(config)",
        )


_no_roots: Final[Any] = _NoRoots


class RootedStore(PayloadStore):
    """A store whose references are ``<prefix><topic>/<id>``; its prefixes decide what it owns.

    Attributes:
        roots: The prefixes; subclasses set them in ``configure``.

    Example:
        >>> class Shelf(RootedStore):
        ...     scheme = "shelf"
        ...
        ...     def __init__(self):
        ...         self.roots = Roots(self, "hall", ("a",))
        ...
        ...     def publish(self, topic, data, context=None): ...
        ...     def download(self, reference): ...
        >>> shelf = Shelf()
        >>> shelf.reference("alerts", "1"), shelf.topic_of("shelf://hall/a/alerts/1"), shelf.owns("shelf://hall/b/alerts/1")
        ('shelf://hall/a/alerts/1', 'alerts', False)
    """

    roots: Roots = _no_roots()

    def reference(self, topic: str, payload_id: str) -> str | None:
        """See :meth:`PayloadStore.reference`."""
        return self.roots.url(object_path(self, topic, b"", PublishContext(payload_id=payload_id)))

    def owns(self, reference: str) -> bool:
        """See :meth:`PayloadStore.owns`."""
        return self.roots.owns(reference)

    def claim(self, reference: str) -> int:
        """See :meth:`PayloadStore.claim`."""
        return self.roots.claim(reference)

    def topic_of(self, reference: str) -> str:
        """The topic in a reference. See :class:`~payload_stores.SupportsTopics`."""
        _root, path = self.roots.locate(reference)
        return path[0]


def parse(store: PayloadStore, reference: str) -> Location:
    """Parse a reference.

    Args:
        store: The store asked to follow it, for its scheme and for errors.
        reference: The reference from the wire.

    Raises:
        UntrustedReferenceError: Not such a URL, another scheme than the store's, a query or fragment, or segments that
            could escape the prefix, percent-encoded ones included.

    Example:
        >>> from payload_stores import open_store
        >>> parse(open_store("memory", {}), "memory:///alerts/1").segments
        ('alerts', '1')
    """
    match = _URL.fullmatch(reference)
    if match is None or _CONTROL.search(reference):
        raise store.untrusted(reference, "it is not a plain URL without query and fragment")
    scheme, host, path = match.groups()
    if scheme != store.scheme:
        raise store.untrusted(reference, f"its scheme is not {store.scheme}")
    return Location(scheme, host, _segments(store, reference, path))


def _segments(store: PayloadStore, reference: str, path: str) -> tuple[str, ...]:
    try:
        segments = tuple(unquote(segment, errors="strict") for segment in path.split("/"))
        path.encode()
    except UnicodeError:
        raise store.untrusted(reference, "its path is not UTF-8") from None
    for segment in segments:
        # An encoded slash would be one segment here and two in the store; so would a backslash on some systems.
        if segment in {"", ".", ".."} or _CONTROL.search(segment) or "/" in segment or "\\" in segment:
            raise store.untrusted(reference, f"its path has the segment {segment!r}")
    return segments


def to_url(scheme: str, host: str, segments: Iterable[str]) -> str:
    """Build a percent-encoded reference; the inverse of :func:`parse`.

    Example:
        >>> to_url("s3", "bucket", ("alerts", "a b"))
        's3://bucket/alerts/a%20b'
    """
    return f"{scheme}://{host}/" + "/".join(quote(segment, safe="~") for segment in segments)


def object_path(
    store: PayloadStore, topic: str, data: Buffer, context: PublishContext | None = None
) -> tuple[str, ...]:
    """Make the path of a new payload below a store's prefix: the topic and the segments of the payload's id.

    Args:
        store: The store; its ``id`` makes the id, so that a subclass may choose another kind.
        topic: Topic of the record.
        data: The payload.
        context: Passed to ``id``.

    Raises:
        PayloadStoreError: The topic is not a Kafka topic name, or the id not a relative path of unreserved characters.

    Example:
        >>> from payload_stores import PublishContext, open_store
        >>> object_path(open_store("memory", {}), "alerts", b"payload", PublishContext(payload_id="2026/1"))
        ('alerts', '2026', '1')
    """
    store.check_topic(topic)
    payload_id = store.id(data, context)
    segments = payload_id.split("/")
    if not all(_ID_SEGMENT.fullmatch(segment) for segment in segments):
        raise PayloadStoreError(
            f"{payload_id!r} cannot be used as a payload id",
            hint="An id is a relative path whose segments have letters, digits, '-', '_', '~' and inner '.' only",
            store=store.scheme,
            topic=topic,
        )
    return (topic, *segments)


def begins_id(prefix: str) -> bool:
    """Whether an id can begin with this text; other listings are empty.

    Example:
        >>> begins_id("2026/1"), begins_id("2026/"), begins_id("/"), begins_id("../x")
        (True, True, False, False)
    """
    *whole, last = prefix.split("/")
    return all(_ID_SEGMENT.fullmatch(segment) for segment in (*whole, last or "-"))


def parse_prefix(store: PayloadStore, prefix: str, key: str | None = None) -> Location:
    """Parse a configured prefix of references.

    Args:
        store: The store that will follow references below it.
        prefix: A URL like a reference; its path may be empty and may end with a slash.
        key: Its configuration key; by default ``large.message.trusted.references``.

    Raises:
        ConfigError: Not such a URL.

    Example:
        >>> from payload_stores import open_store
        >>> parse_prefix(open_store("memory", {}), "memory:///mirror/").segments
        ('mirror',)
    """
    try:
        location = parse(store, prefix.rstrip("/") + "/-")
    except UntrustedReferenceError as error:
        key = key or store.TRUSTED.name
        shown, reason = _SECRET.sub("********", prefix), error.message.partition(": ")[2]
        # Without the cause, which has the whole prefix.
        raise ConfigError(f"{key} has {shown!r}, which is not a valid reference prefix: {reason}", key=key) from None
    return Location(location.scheme, location.host, location.segments[:-1])
