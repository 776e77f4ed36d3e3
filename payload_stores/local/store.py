"""A payload store in a folder, on a local disk or a shared file system.

The layout is ``<local.path>/<topic>/<id>``, one file per payload. A payload is written to a temporary file in
``<local.path>/.payload-store``, forced to disk and renamed, so that readers never see a partial payload, even after a
crash. Temporary names begin with a dot; references never end with such a segment.

That folder also marks the store as present. Without it, a missing file does not mean a lost payload: the file system
may not be mounted, leaving an empty mount point.

References come from the wire. Everything below the root is therefore opened without following symbolic links
(:mod:`payload_stores.local.folders`); the root itself may be one.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, cast

from payload_stores import references
from payload_stores.base import Buffer, PayloadInfo, PublishContext
from payload_stores.buffers import checked_range
from payload_stores.errors import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
)
from payload_stores.ids import DIGEST_PREFIX
from payload_stores.local import folders
from payload_stores.options import Option, boolean, text

_log = logging.getLogger(__name__)

_STREAM_BLOCK: Final = 1 << 20
_DAY_MS: Final = 86_400_000

# Possibly transient errors: a full or busy disk, an unreachable network file system, too many open files.
_TRANSIENT: Final = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR, errno.EIO,
        errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ENOMEM, errno.ENOSPC, errno.ENOTCONN, errno.ESTALE,
        errno.ETIMEDOUT,
    }
)  # fmt: skip
_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
# Errors for names that no payload can have.
_NO_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})
_NOT_THERE: Final = (
    "Mount its file system, or correct local.path; a store has a folder .payload-store, which its first payload creates"
)
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class LocalStore(references.RootedStore):
    """Stores payloads as files. References are ``file:///<local.path>/<topic>/<id>``.

    Any number of threads and processes may share a folder. The first publish creates it; until then, and while its file
    system is not mounted, every operation raises the transient :class:`~payload_stores.PayloadStoreUnavailableError`.
    Trusted references may be read, but are never deleted: they belong to another program.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from payload_stores import open_store
        >>> with TemporaryDirectory() as folder:
        ...     store = open_store("local", {"local.path": folder})
        ...     store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    scheme = "file"

    PATH: ClassVar[Option[str]] = Option("local.path", text, "", required=True, doc="folder for the payloads")
    FSYNC: ClassVar[Option[bool]] = Option(
        "local.fsync", boolean, True, doc="force payloads to disk before their references are sent"
    )
    options = (PATH, FSYNC)

    path: Path
    fsync: bool

    def configure(self, config: Mapping[str, object]) -> None:
        """Read ``local.path`` and ``local.fsync``. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        name = self.PATH.read(config)
        if "\0" in name or not _is_utf8(name):
            raise ConfigError(f"{self.PATH.name} = {name!r} cannot be part of a URL", key=self.PATH.name)
        # Absolute, but links are not resolved: references contain the folder as configured.
        self.path = Path(os.path.abspath(name))  # noqa: PTH100  Path.absolute keeps "..", Path.resolve follows links
        self.fsync = self.FSYNC.read(config)
        self.roots = references.Roots(self, segments=tuple(part for part in self.path.parts if part.strip("/")))
        self._wrote = False
        self._check_path()
        # A failure here must not stop readers and writers: the folder may be read-only or unavailable.
        with suppress(OSError), folders.entered(self.path, folders.MARKER) as parts:
            folders.remove_temporary(parts, _DAY_MS, below=False)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload directly from the caller's buffer. See :meth:`PayloadStore.publish`."""
        view = memoryview(data).cast("B")
        path = references.object_path(self, topic, view, context)
        reference = self.roots.url(path)
        deterministic = context is not None and context.deterministic
        with (
            self._errors(topic=topic, reference=reference),
            self._writing() as (root, parts),
            folders.made(root, *path[:-1], durable=self.fsync) as folder,
        ):
            if not (deterministic and self._keeps(path[-1], folder, view.nbytes)):
                with folders.temporary_file(parts) as (file, name):
                    folders.write_all(file, view)
                    self._publish_file(file, name, parts, path[-1], folder)
            self._sync(folder)
        return reference

    def download(self, reference: str) -> bytes:
        """Fetch a payload into one ``bytes`` object. See :meth:`PayloadStore.download`."""
        with self.open(reference) as file, self._errors(reference=reference):
            size = os.fstat(file.fileno()).st_size
            data = file.read()
        if len(data) != size:
            raise PayloadIntegrityError(
                f"the file had {size} bytes when it was opened, and {len(data)} could be read",
                hint=f"Nothing but a payload store may write below {self.PATH.name}",
                store=self.scheme,
                reference=reference,
            )
        return data

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Store the contents of a reader, in blocks of 1 MiB. See :class:`~payload_stores.SupportsStreaming`.

        For a deterministic id with an unknown digest, the content is hashed while it is written; ``id`` is then called
        with the digest and no data.
        """
        self.check_topic(topic)
        with (
            self._errors(topic=topic),
            self._writing() as (root, parts),
            folders.temporary_file(parts) as (file, name),
        ):
            digest = None
            if context is not None and context.deterministic and context.digest is None:
                digest = hashlib.sha256()
            while block := reader.read(_STREAM_BLOCK):
                if digest is not None:
                    digest.update(block)
                folders.write_all(file, memoryview(block))
            if context is not None and digest is not None:
                context = replace(context, digest=DIGEST_PREFIX + digest.hexdigest())
            path = references.object_path(self, topic, b"", context)
            with folders.made(root, *path[:-1], durable=self.fsync) as folder:
                self._publish_file(file, name, parts, path[-1], folder)
                self._sync(folder)
        return self.roots.url(path)

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading, unbuffered. See :class:`~payload_stores.SupportsStreaming`."""
        root, path = self._locate(reference)
        with self._errors(reference=reference, place=(root, path)), folders.entered(root, *path[:-1]) as folder:
            file = os.fdopen(folders.open_file(path[-1], folder), "rb", buffering=0)
        try:
            self.check_size(os.fstat(file.fileno()).st_size, reference)
        except PayloadStoreError:
            file.close()
            raise
        return cast("BinaryIO", file)  # typeshed has no common type for raw and buffered files

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch a part of a payload. See :class:`~payload_stores.SupportsRanges`."""
        wanted = checked_range(start, length)
        with self.open(reference) as file, self._errors(reference=reference):
            file.seek(wanted.start)
            return file.read(min(length, max(0, os.fstat(file.fileno()).st_size - start)))

    def delete(self, reference: str) -> None:
        """Delete a payload in the store's own folder. See :class:`~payload_stores.SupportsDelete`."""
        root, path = self._locate(reference, own_only=True)
        with (
            suppress(PayloadNotFoundError),
            self._errors(reference=reference, place=(root, path)),
            folders.entered(root, *path[:-1]) as folder,
        ):
            os.close(folders.open_file(path[-1], folder))  # refuses anything but a regular file
            os.unlink(path[-1], dir_fd=folder)
            self._sync(folder)

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload's file. See :class:`~payload_stores.SupportsInfo`."""
        root, path = self._locate(reference)
        with (
            self._errors(reference=reference, place=(root, path)),
            folders.entered(root, *path[:-1]) as folder,
            os.fdopen(folders.open_file(path[-1], folder), "rb") as file,
        ):
            status = os.fstat(file.fileno())
        return PayloadInfo(reference, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """List the payloads of a topic, in the order of the file system. See :class:`~payload_stores.SupportsList`."""
        self.check_topic(topic)
        with (
            suppress(PayloadNotFoundError),  # nothing was ever stored for the topic
            self._errors(topic=topic, place=(self.path, (topic, ""))),
            folders.entered(self.path, topic) as folder,
        ):
            for info in self._walk(folder, (topic,), prefix):
                if before is None or info.modified < before:
                    yield info

    def topic_of(self, reference: str) -> str:
        """The topic in a reference. See :class:`~payload_stores.SupportsTopics`."""
        _root, path = self._locate(reference)
        return path[0]

    def unprepared(self, topic: str) -> str | None:
        """The marker folder, if it is missing. See :class:`~payload_stores.SupportsPreparation`.

        Checking creates nothing, so an empty mount point does not become a store.
        """
        self.check_topic(topic)
        marker = self.path / folders.MARKER
        with self._errors(topic=topic):
            if marker.exists():
                return None
        try:
            folders.check_can_be_made(self.path)
        except OSError as error:
            raise PayloadAccessDeniedError(
                f"no folder can be created at {self.path}: {error.strerror}",
                hint="Check local.path, and the permissions of this user",
                store=self.scheme,
                topic=topic,
            ) from error
        return f"the folder {marker}"

    def now(self) -> datetime:
        """The file system's time, of a temporary file. See :class:`~payload_stores.SupportsClock`."""
        with (
            self._errors(),
            folders.entered(self.path, folders.MARKER) as parts,
            folders.temporary_file(parts) as (file, _),
        ):
            return datetime.fromtimestamp(os.fstat(file).st_mtime, UTC)

    def remove_leftovers(self, older_than_ms: int = _DAY_MS) -> int:
        """Remove leftovers of killed writers in the whole folder. See :class:`~payload_stores.SupportsLeftovers`.

        Opening the store with write permission already removes those older than a day; this also searches among the
        payloads, where earlier versions wrote them, and so takes as long as listing all payloads.
        """
        with self._errors(), folders.entered(self.path) as root:
            return folders.remove_temporary(root, older_than_ms, below=True)

    def count_leftovers(self, older_than_ms: int = _DAY_MS) -> int:
        """Count leftovers in the whole folder. See :class:`~payload_stores.SupportsLeftoverCount`."""
        with self._errors(), folders.entered(self.path) as root:
            return sum(1 for _ in folders.temporary_files(root, older_than_ms, below=True))

    def _walk(self, folder: int, path: tuple[str, ...], prefix: str) -> Iterator[PayloadInfo]:
        """Yield files in a folder whose slash-joined names begin with a prefix."""
        name, slash, rest = prefix.partition("/")
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or not (entry.name == name if slash else entry.name.startswith(name)):
                    continue  # temporary, or outside the prefix
                # Deleted by another program since it was listed, or another user's folder; skip it.
                with suppress(FileNotFoundError, PermissionError):
                    if entry.is_dir(follow_symlinks=False):
                        if len(path) < folders.MOST_FOLDERS:
                            with folders.entered(folder, entry.name) as below:
                                yield from self._walk(below, (*path, entry.name), rest)
                    elif entry.is_file(follow_symlinks=False) and not slash:
                        status = entry.stat(follow_symlinks=False)
                        modified = datetime.fromtimestamp(status.st_mtime, UTC)
                        if (reference := self.roots.listed((*path, entry.name))) is not None:
                            yield PayloadInfo(reference, status.st_size, modified)

    def _check_path(self) -> None:
        """Report on opening the store what would otherwise fail with the first large message."""
        try:
            if not stat.S_ISDIR(self.path.stat().st_mode):
                raise ConfigError(f"{self.PATH.name} = {str(self.path)!r} is not a folder", key=self.PATH.name)
        except (FileNotFoundError, NotADirectoryError):
            above = next(folder for folder in self.path.parents if folder.exists())
            if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
                raise ConfigError(
                    f"{self.PATH.name} = {str(self.path)!r} does not exist, and cannot be created in {above}",
                    hint="Create the folder, mount its file system, or correct the path",
                    key=self.PATH.name,
                ) from None
        except OSError as error:  # perhaps an unavailable file system; logged for the user
            _log.warning("%s = %s: %s", self.PATH.name, self.path, error.strerror)

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, int]]:
        """Open the root and the folder for temporary files; the first publish creates both.

        Only once: if they are missing later, the file system was unmounted, and payloads written now would be hidden by
        the next mount.
        """
        if not self._wrote:
            folders.make_root(self.path, durable=self.fsync)
        with folders.entered(self.path) as root:
            marker = (
                folders.entered(root, folders.MARKER)
                if self._wrote
                else folders.made(root, folders.MARKER, durable=self.fsync)
            )
            with marker as parts:
                self._wrote = True
                yield root, parts

    def _keeps(self, name: str, folder: int, size: int) -> bool:
        """Whether a payload exists and will stay: touches one that a sweep may be about to delete.

        A payload deleted before it was touched is written again.
        """
        status = folders.status_of(name, folder)
        if status is None or status.st_size != size:
            return False
        return not self.is_stale(datetime.fromtimestamp(status.st_mtime, UTC)) or folders.touch(name, folder)

    def _publish_file(self, file: int, name: str, folder: int, final_name: str, final_folder: int) -> None:
        if self.fsync:
            os.fsync(file)
        try:
            os.replace(name, final_name, src_dir_fd=folder, dst_dir_fd=final_folder)
        except OSError as error:
            # A topic's folder may be a separate mount, or have its own quota (rename(2), EXDEV).
            if error.errno != errno.EXDEV or folder == final_folder:
                raise
            with folders.temporary_file(final_folder) as (copy, copy_name):
                folders.copy_all(file, copy)
                self._publish_file(copy, copy_name, final_folder, final_name, final_folder)

    def _sync(self, folder: int) -> None:
        # Even if the file exists: the process that renamed it may not have synced it yet.
        if self.fsync:
            folders.sync_folder(folder)

    def _locate(self, reference: str, *, own_only: bool = False) -> tuple[Path, tuple[str, ...]]:
        root, path = self.roots.locate(reference, own_only=own_only)
        if root.host:
            raise self.untrusted(reference, "it names a host")
        if path[-1].startswith("."):
            raise self.untrusted(reference, "it names a temporary file")
        return Path("/", *root.segments), path

    @contextmanager
    def _errors(
        self,
        *,
        topic: str | None = None,
        reference: str | None = None,
        place: tuple[Path, tuple[str, ...]] | None = None,
    ) -> Iterator[None]:
        """Convert errors of the operating system to those of payload stores.

        Args:
            topic: For the error.
            reference: For the error.
            place: Root and path of the requested payload.
        """
        try:
            yield
        except folders.NotAFileError as error:
            raise self.untrusted(reference or str(self.path), f"its path leads through {error.strerror}") from error
        except OSError as error:
            message = f"the file system reports: {error.strerror or error}"
            if error.errno in _NO_NAME and place is not None:
                raise self.untrusted(
                    reference or str(self.path), "the file system does not allow such a name"
                ) from error
            if error.errno in _MISSING and place is not None and folders.leads_into_a_store(place[0], *place[1][:-1]):
                kind: type[PayloadStoreError] = PayloadNotFoundError
                hint: str | None = "It was deleted from local.path before its record was read"
            elif error.errno in _MISSING:
                kind, hint = PayloadStoreUnavailableError, _NOT_THERE
                message = f"there is no payload store in {place[0] if place else self.path}"
            else:
                kind, hint = _meaning(error)
            raise kind(message, hint=hint, store=self.scheme, topic=topic, reference=reference) from error


def _meaning(error: OSError) -> tuple[type[PayloadStoreError], str | None]:
    number = error.errno
    if number in _DENIED:
        return PayloadAccessDeniedError, "Check the permissions of local.path for this user"
    if number in {errno.ENOSPC, errno.EDQUOT}:
        return PayloadStoreUnavailableError, "Free some space under local.path"
    if number in _TRANSIENT:
        return PayloadStoreUnavailableError, None
    if number == errno.EFBIG:
        return PayloadTooLargeError, "The file system or this process's limits allow no larger files"
    return PayloadStoreError, None


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
