"""A payload store in a cloud's bucket or container (obstore).

The reference of an object is its URL, ``<objects.url>/<topic>/<id>``, so this store reads payloads of the store ``s3``,
and vice versa.

obstore retries requests without an answer or with a temporary refusal, up to ``objects.retry.attempts`` attempts. With
the defaults a request takes less than a minute in the worst case, less than Kafka's default ``max.block.ms``
(KIP-1159).
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final

from payload_stores import references
from payload_stores.base import Buffer, PayloadInfo, PublishContext, SupportsListRange
from payload_stores.bucket_store import BucketStore
from payload_stores.errors import ConfigError, PayloadNotFoundError, PayloadStoreError
from payload_stores.ids import sha256_digest
from payload_stores.multipart import (
    MAX_PARTS,
    PARALLEL,
    PART_BYTES,
    DaemonPool,
    Downloads,
    read_parts,
    released,
    stream_digest,
)
from payload_stores.objects.settings import PROVIDERS, Clients
from payload_stores.objects.transfers import ObjectSource, Uploads, check_process
from payload_stores.options import Option, integer, nearest, text, without_login
from payload_stores.plugins import import_object, require

if TYPE_CHECKING:
    from payload_stores.objects.settings import Client

__all__ = ["ObjectsStore"]

_log = logging.getLogger("payload_stores")

# Parts of a stream in flight at once; with the one being read and some blocks, less than 32 MiB.
_STREAM_AHEAD: Final = 2
_MAX_BACKOFF_MS: Final = 1_000
# S3's limit, in UTF-8; the others have the same, in bytes (Google) or characters (Azure).
_MAX_NAME_BYTES: Final = 1024
_MAX_LINK_SECONDS: Final = 7 * 86_400
_LIST_ITEMS: Final = 1000
# obstore fails on a page of a listing if one name has an empty segment, "." or "..", or a control character.
_REFUSED_NAME: Final = re.compile(r'Path "(.*)"(?:: Encountered illegal| contained empty)', re.DOTALL)
_ILLEGAL: Final = re.compile(r"(?<=/)\.{1,2}(?=/|\Z)|(?<=/)(?=/)|[\x00-\x1f\x7f]")
# Characters that can follow such a name, in listing order.
_LEGAL: Final = "!$&'()+,-0123456789:;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
# Characters of ids, in listing order.
_ORDER: Final = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~"
_SHOWN: Final = 200
_ALIASES: Final = {"gcs": "gs", "s3a": "s3", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az"}


def _credential_provider(value: object) -> object:
    if isinstance(value, str):
        return text(value)
    if not callable(value):
        raise ValueError("expected the dotted path of a class, or a callable")
    return value


class ObjectsStore(BucketStore):
    """Stores payloads as objects in S3, Google Cloud Storage or Azure Blob Storage, by URL.

    Payloads up to ``objects.part.bytes`` are uploaded in one request, larger ones in parallel parts; downloads of more
    than 8 MiB use parallel ranges. With ids of the content, an existing object is not replaced.

    Without configured credentials, obstore searches environment variables and the metadata services of the clouds'
    machines. Trusted references may be read, but are never deleted.

    The scheme is that of ``objects.url``.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("objects", {"objects.url": "gs://payloads/alerts/"})  # doctest: +SKIP
        >>> store.publish("images", b"payload")  # doctest: +SKIP
        'gs://payloads/alerts/images/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    scheme = "objects"

    URL: ClassVar[Option[str]] = Option(
        "objects.url", text, "", required=True, doc="s3://bucket/folder/, gs://bucket/folder/, az://container/folder/"
    )
    PART: ClassVar[Option[int]] = Option(
        "objects.part.bytes", integer(5 << 20, 4_000 << 20), PART_BYTES, doc="payloads above it are uploaded in parts"
    )
    ATTEMPTS: ClassVar[Option[int]] = Option("objects.retry.attempts", integer(1), 3, doc="total attempts per request")
    CONNECT_MS: ClassVar[Option[int]] = Option("objects.connection.timeout.ms", integer(1), 5_000, doc="to connect")
    REQUEST_MS: ClassVar[Option[int]] = Option(
        "objects.request.timeout.ms", integer(1), 18_000, doc="for a whole request of up to objects.part.bytes"
    )
    PROVIDER: ClassVar[Option[Any]] = Option(
        "objects.credential.provider.class", _credential_provider, None, doc="class whose objects give credentials"
    )
    # Common options whose values may be shown.
    ENDPOINT: ClassVar[Option[str]] = Option("objects.endpoint", text, "", doc="server, if it is not the cloud's own")
    REGION: ClassVar[Option[str]] = Option("objects.region", text, "", doc="S3's region; default: us-east-1")
    ACCESS_KEY: ClassVar[Option[str]] = Option("objects.access_key_id", text, "", doc="S3's access key")
    ACCOUNT: ClassVar[Option[str]] = Option("objects.account_name", text, "", doc="Azure's storage account")
    ALLOW_HTTP: ClassVar[Option[str]] = Option("objects.allow_http", text, "", doc="true for servers without TLS")
    OBSTORE: ClassVar[Option[str]] = Option(
        "objects.*", text, "", secret=True, doc="any other option of obstore, by obstore's name"
    )
    _OWN: ClassVar[tuple[Option[Any], ...]] = (URL, PART, ATTEMPTS, CONNECT_MS, REQUEST_MS, PROVIDER)
    options = (*_OWN, ENDPOINT, REGION, ACCESS_KEY, ACCOUNT, ALLOW_HTTP, OBSTORE)

    def __init__(self) -> None:
        self._threads: DaemonPool | None = None

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the ``objects.*`` keys and create the client, without I/O. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        place = self._read_url(config)
        without_login(self.ENDPOINT.read(config), self.ENDPOINT.name)
        self.roots = references.Roots(self, place.host, place.segments)
        self._attempts = self.ATTEMPTS.read(config)
        self._request_ms = self.REQUEST_MS.read(config)
        own = tuple(option.name for option in self._OWN)
        self._clients = Clients(
            self.scheme,
            {
                name: value
                for name, value in self.OBSTORE.select(config).items()
                if f"objects.{name}" not in own and value not in (None, "")
            },
            known=own,
            provider=self._read_provider(config),
            connect_ms=self.CONNECT_MS.read(config),
            request_ms=self._request_ms,
            attempts=self._attempts,
            backoff_ms=_MAX_BACKOFF_MS,
        )
        self._errors = self._clients.errors
        self._clients.of(place.host)  # reports what obstore refuses
        self._part_bytes = self.PART.read(config)
        self._threads = DaemonPool(PARALLEL)
        self._uploads = Uploads(self._part_bytes)
        self._downloads = Downloads(self._threads)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Upload a payload directly from the caller's buffer. See :meth:`PayloadStore.publish`."""
        view = memoryview(data).cast("B")
        context = context or PublishContext()
        if context.deterministic and context.digest is None:
            context = replace(context, digest=sha256_digest(view))
        path = references.object_path(self, topic, view, context)
        reference, name = self.roots.url(path), self._name(self.roots.own, path)
        with self._errors.translated(topic=topic, reference=reference):
            client = self._own_client()
            if not context.deterministic:
                self._uploads.put(client, name, view)
            elif len(view) > self._part_bytes:
                self._put_parts_once(client, name, view)
            else:
                self._put_once(client, name, view)
        return reference

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Upload the contents of a reader, in parts of 8 MiB. See :class:`~payload_stores.SupportsStreaming`.

        A deterministic id must be known before the upload: either the context has the digest, or the reader must be
        seekable. ``id`` is called with the digest and no data.
        """
        if context is not None and context.deterministic and context.digest is None:
            with self._errors.translated(topic=topic):
                context = replace(context, digest=stream_digest(reader))
        path = references.object_path(self, topic, b"", context)
        reference, name = self.roots.url(path), self._name(self.roots.own, path)
        parts = read_parts(reader, MAX_PARTS)
        with self._errors.translated(topic=topic, reference=reference):
            client = self._own_client()
            first = next(parts, memoryview(b""))
            if len(first) < PART_BYTES:
                self._uploads.put(client, name, first)
            else:
                held = [first]
                del first
                self._uploads.put_stream(
                    client, name, released(held, parts), part_bytes=PART_BYTES, ahead=_STREAM_AHEAD
                )
        return reference

    def link(self, reference: str, seconds: int = 3600) -> str:
        """Sign a link to a payload for users without credentials: a secret until it expires. Performs no I/O.

        Google requires the key of a service account, Azure that of the storage account. The payload may be gone.

        Args:
            reference: The reference.
            seconds: Validity of the link.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The link cannot be signed, or not for this long.
        """
        if not 1 <= seconds <= _MAX_LINK_SECONDS:
            raise PayloadStoreError(
                f"a link is valid for 1 to {_MAX_LINK_SECONDS} seconds, not {seconds}",
                store=self.scheme,
                reference=reference,
            )
        client, name = self._locate(reference)
        sign = require("obstore", "objects").sign
        with self._errors.translated(reference=reference):
            return str(sign(client, "GET", name, timedelta(seconds=seconds)))

    def delete(self, reference: str) -> None:
        """Delete one of the store's own payloads. See :class:`~payload_stores.SupportsDelete`."""
        client, name = self._locate(reference, own_only=True)
        # Already gone, on Google and Azure; a missing bucket is another error.
        with suppress(PayloadNotFoundError), self._errors.translated(reference=reference):
            client.delete(name)

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload, in whole seconds. See :class:`~payload_stores.SupportsInfo`."""
        client, name = self._locate(reference)
        with self._errors.translated(reference=reference):
            head = client.head(name)
        return PayloadInfo(reference, head["size"], head["last_modified"].astimezone(UTC))

    def _own_name(self, reference: str) -> str:
        return self._locate(reference, own_only=True)[1]

    def _delete_part(self, names: Mapping[str, str]) -> Mapping[str, PayloadStoreError]:
        with self._errors.translated(reference=next(iter(names))):
            self._own_client().delete([*names.values()])  # an error does not say whose it is
        return {}

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """List the payloads of a topic, a thousand per request. See :class:`~payload_stores.SupportsList`."""
        self.check_topic(topic)
        if not references.begins_id(prefix):
            return
        start = "/".join((*self.roots.own.segments, topic, prefix))
        # obstore lists whole folders: the server skips names before the prefix, and reading ends after it.
        offset = _before(start) if prefix and self._clients.is_ordered else None
        for name, info in self._list(topic, start.rpartition("/")[0], offset, before):
            if name.startswith(start):
                if info is not None:
                    yield info
            elif self._clients.is_ordered and name > start:
                return

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        """List a range of ids, a thousand per request. See :class:`~payload_stores.SupportsListRange`."""
        self.check_topic(topic)
        folder = "/".join((*self.roots.own.segments, topic))
        end = None if until is None else f"{folder}/{until}"
        for name, info in self._list(topic, folder, f"{folder}/{after}" if after else None, before):
            if end is not None and name > end:
                return
            if info is not None:
                yield info

    def supports(self, capability: type) -> bool:
        """Without ranges where a listing always begins at the first name, as in Azure."""
        if capability is SupportsListRange and not self._clients.begins_anywhere:
            return False
        return super().supports(capability)

    def _list(
        self, topic: str, folder: str, offset: str | None, before: datetime | None
    ) -> Iterator[tuple[str, PayloadInfo | None]]:
        """Names in a folder behind an offset, each with its payload; None if it is younger, or has no reference."""
        client = self._own_client()
        with self._errors.translated(topic=topic):
            for page in self._pages(client, folder, offset):
                for item in page:
                    name, modified = item["path"], item["last_modified"].astimezone(UTC)
                    path = name.split("/")[len(self.roots.own.segments) :]
                    reference = self.roots.listed(path) if before is None or modified < before else None
                    # obstore lists "a/", a folder's marker of a console, as "a", which need not exist.
                    if reference is not None and not item["size"] and not _exists(client, name):
                        reference = None
                    yield name, None if reference is None else PayloadInfo(reference, item["size"], modified)

    def _pages(self, client: Client, folder: str, offset: str | None) -> Iterator[Any]:
        """Pages of a listing; it continues after a name that obstore refuses."""
        for count in itertools.count(1):
            try:
                yield from client.list(folder, offset=offset, chunk_size=_LIST_ITEMS)
            except Exception as error:
                refused = _REFUSED_NAME.search(str(error))
                if refused is None:
                    raise
                behind = _behind(refused[1]) if self._clients.is_ordered else None
                if behind is None or (offset is not None and behind <= offset):
                    raise PayloadStoreError(
                        f"the listing ends at an object of another writer, whose name obstore refuses: "
                        f"{refused[1][:_SHOWN]!r}",
                        hint="Delete or rename the object; the store s3 lists such names",
                    ) from error
                _log.warning(
                    "obstore refuses a name of another writer (%d so far in %s), and with it the names of its page, up "
                    "to 1,000: delete or rename %.200r, or use the store s3",
                    *(count, folder, refused[1]),
                )
                offset = behind
            else:
                return

    def worst_case_ms(self) -> int:
        """Maximum time in ms until a request without an answer fails permanently.

        The same bound applies to a server that answers a few bytes at a time.
        """
        return self._attempts * self._request_ms + (self._attempts - 1) * _MAX_BACKOFF_MS

    def close(self) -> None:
        """Close the connections; requests in flight end by their own timeouts. See :meth:`PayloadStore.close`."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._clients.close()

    def _put_once(self, client: Client, name: str, view: memoryview) -> None:
        """Upload unless the object exists."""
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        try:
            return self._uploads.put(client, name, view, create=True)
        except (AlreadyExistsError, NotSupportedError):
            # It exists, or another writer is writing it. The id implies the content, so writing it again is harmless,
            # repairs a truncated object, and renews it.
            if self._keeps(client, name, len(view)):
                return None
        return self._uploads.put(client, name, view)

    def _put_parts_once(self, client: Client, name: str, view: memoryview) -> None:
        """Upload in parts unless the object exists; a conditional upload would be one request, too large here.

        The id implies the content, so several writers may write it.
        """
        from obstore.exceptions import BaseError

        if self._keeps(client, name, len(view)):
            return
        try:
            self._uploads.put(client, name, view)
        except BaseError:
            # Azure drops the parts of this upload when another one finishes.
            if not self._keeps(client, name, len(view)):
                raise

    def _keeps(self, client: Client, name: str, size: int) -> bool:
        """Whether a payload exists and will stay; one that a sweep may be about to delete must be written again."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        try:
            head = client.head(name)
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
            return False  # the last two: a producer with write permission only
        return head["size"] == size and not self.is_stale(head["last_modified"])

    def _own_client(self) -> Client:
        check_process()
        return self._clients.of(self.roots.own.host)

    def _source(self, reference: str) -> ObjectSource:
        client, name = self._locate(reference)
        return ObjectSource(client, name, reference, self._errors)

    def _locate(self, reference: str, *, own_only: bool = False) -> tuple[Client, str]:
        root, path = self.roots.locate(reference, own_only=own_only)
        name = self._name(root, path)
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise self.untrusted(reference, f"its path has more than the {_MAX_NAME_BYTES} bytes of objects' names")
        with self._errors.translated(reference=reference):
            check_process()
        return self._clients.of(root.host), name

    @staticmethod
    def _name(root: references.Location, path: tuple[str, ...]) -> str:
        return "/".join((*root.segments, *path))

    def _read_url(self, config: Mapping[str, object]) -> references.Location:
        url, key = self.URL.read(config), self.URL.name
        self.scheme = url.partition("://")[0]
        if self.scheme not in PROVIDERS:
            near = _ALIASES.get(self.scheme) or nearest(self.scheme, PROVIDERS)
            raise ConfigError(
                f"{key} does not begin with any of {', '.join(f'{scheme}://' for scheme in PROVIDERS)}",
                hint=f"Did you mean {near}://?" if near else "For a folder on this machine there is the store local",
                key=key,
            )
        place = references.parse_prefix(self, url, key)
        if not place.host or any(sign in place.host for sign in "@: "):
            raise ConfigError(
                f"{key} names no bucket or container behind ://",
                hint="Accounts, keys and servers have options of their own: objects.account_name, objects.endpoint, …",
                key=key,
            )
        return place

    def _read_provider(self, config: Mapping[str, object]) -> object:
        provider = self.PROVIDER.read(config)
        if not isinstance(provider, str):
            return provider
        made = import_object(provider, "credential provider")
        if not callable(made):
            raise ConfigError(f"{provider} is not a class", key=self.PROVIDER.name)
        try:
            return made()
        except Exception as error:  # a third-party class may raise anything
            raise ConfigError(
                f"{provider} cannot be made without arguments: {type(error).__name__}: {error}", key=self.PROVIDER.name
            ) from error


def _exists(client: Client, name: str) -> bool:
    """Whether an object has this name, by a request of its own.

    obstore drops the slash of a marker, no cloud describes several names at once, and ``list_with_delimiter``, which
    lists a marker as a folder, has no pages: it holds a whole topic. Few empty objects have two segments of ids.
    """
    try:
        client.head(name)
    except FileNotFoundError:
        return False
    return True


def _before(start: str) -> str | None:
    """A name that sorts before all names beginning with some text of id characters; None if none helps."""
    at = _ORDER.find(start[-1])
    return f"{start[:-1]}{_ORDER[at - 1]}~" if at > 0 else None


def _behind(name: str) -> str | None:
    """The next name accepted by obstore after one it refuses; None if there is none."""
    found = _ILLEGAL.search(name)
    if found is None:
        return None
    is_control = found[0] not in {"", ".", ".."}
    before, illegal = (name[: found.start()], found[0]) if is_control else (name[: found.end()], "/")
    while before:
        after = next((each for each in _LEGAL if each > illegal), None)
        if after is not None:
            return before + after
        before, illegal = before[:-1], before[-1]
    return None
