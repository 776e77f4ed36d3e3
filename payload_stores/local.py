"""A payload store in a folder of the local disk, or of a file system that several machines share.

The layout is ``<local.path>/<topic>/<id>``, one file per payload. A payload is written to a temporary file beside its
final place, forced to disk and renamed, so that no reader ever sees half of one, whatever dies in between. Temporary
names begin with a dot; topics and ids that a reference may name do not end in such a segment.

References come from the wire. Everything below the root is therefore opened without following symbolic links
(:mod:`payload_stores.folders`); the root itself may be one.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, cast

from payload_stores import folders, references
from payload_stores.base import Buffer, PayloadInfo, PayloadStore, PublishContext
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
from payload_stores.options import Option, boolean, text

__all__ = ["LocalStore"]

_STREAM_BLOCK: Final = 1 << 20

# What may be better in a moment: a full or busy disk, a network file system that is away, too many open files.
_TRANSIENT: Final = frozenset(
    {
        errno.EAGAIN, errno.EBUSY, errno.EDQUOT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR, errno.EIO,
        errno.EMFILE, errno.ENFILE, errno.ENODEV, errno.ENOMEM, errno.ENOSPC, errno.ENOTCONN, errno.ESTALE,
        errno.ETIMEDOUT,
    }
)  # fmt: skip
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class LocalStore(PayloadStore):
    """Keeps payloads as files. References are ``file:///<local.path>/<topic>/<id>``.

    Any number of threads and processes may use one folder at once. The folder is made when the first payload is
    published. Trusted references may be read, but are not deleted: they belong to somebody else.
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
        """Take ``local.path`` and ``local.fsync``. See :meth:`PayloadStore.configure`."""
        super().configure(config)
        name = self.PATH.read(config)
        if "\0" in name or not _is_utf8(name):
            raise ConfigError(f"{self.PATH.name} = {name!r} cannot be part of a URL", key=self.PATH.name)
        # Made absolute, but links are not resolved: references name the folder as it was configured.
        self.path = Path(os.path.abspath(name))  # noqa: PTH100  Path.absolute keeps "..", Path.resolve follows links
        self.fsync = self.FSYNC.read(config)
        self._own = tuple(part for part in self.path.parts if part.strip("/"))
        self._trusted = tuple(
            references.parse_prefix(self, prefix).segments
            for prefix in self.trusted_references
            if prefix.startswith("file:")
        )

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload, written straight from the caller's buffer. See :meth:`PayloadStore.publish`."""
        view = memoryview(data).cast("B")
        path = references.object_path(self, topic, view, context)
        reference = self._reference(path)
        deterministic = context is not None and context.deterministic
        with self._errors(topic=topic, reference=reference), self._made(path[:-1]) as folder:
            if not deterministic or folders.size_of(path[-1], folder) != view.nbytes:
                with folders.temporary_file(folder) as (file, name):
                    folders.write_all(file, view)
                    self._publish_file(file, name, folder, path[-1], folder)
            self._sync(folder)
        return reference

    def download(self, reference: str) -> bytes:
        """Fetch a payload into one ``bytes`` object. See :meth:`PayloadStore.download`."""
        with self.open(reference) as file, self._errors(reference=reference):
            size = os.fstat(file.fileno()).st_size
            data = file.read()
        if len(data) != size:
            raise PayloadIntegrityError(
                f"the file had {size} bytes when it was opened and gave {len(data)}",
                hint=f"Nothing but a payload store may write below {self.PATH.name}",
                store=self.scheme,
                reference=reference,
            )
        return data

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Store what a reader gives, in blocks of 1 MiB. See :class:`~payload_stores.SupportsStreaming`.

        For a deterministic id the content is hashed as it passes; ``id`` is then called with the digest and no data.
        """
        self.check_topic(topic)
        with (
            self._errors(topic=topic),
            self._made((topic,)) as folder,
            folders.temporary_file(folder) as (file, name),
        ):
            digest = hashlib.sha256()
            while block := reader.read(_STREAM_BLOCK):
                digest.update(block)
                folders.write_all(file, memoryview(block))
            if context is not None and context.deterministic and context.digest is None:
                context = replace(context, digest=DIGEST_PREFIX + digest.hexdigest())
            path = references.object_path(self, topic, b"", context)
            with self._made(path[:-1]) as target:
                self._publish_file(file, name, folder, path[-1], target)
                self._sync(target)
        return self._reference(path)

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading, unbuffered. See :class:`~payload_stores.SupportsStreaming`."""
        root, path = self._locate(reference, (self._own, *self._trusted))
        with self._errors(reference=reference), folders.entered(root, *path[:-1]) as folder:
            file = os.fdopen(folders.open_file(path[-1], folder), "rb", buffering=0)
        try:
            self.check_size(os.fstat(file.fileno()).st_size, reference)
        except PayloadTooLargeError:
            file.close()
            raise
        return cast("BinaryIO", file)  # a raw file reads like any other, but typeshed keeps it apart

    def delete(self, reference: str) -> None:
        """Delete a payload of the store's own folder. See :class:`~payload_stores.SupportsDelete`."""
        root, path = self._locate(reference, (self._own,))
        with (
            self._errors(reference=reference),
            suppress(FileNotFoundError, NotADirectoryError),
            folders.entered(root, *path[:-1]) as folder,
        ):
            os.close(folders.open_file(path[-1], folder))  # refuses what is no regular file
            os.unlink(path[-1], dir_fd=folder)
            self._sync(folder)

    def list(self, topic: str) -> Iterator[PayloadInfo]:
        """List the payloads of a topic, as they are found. See :class:`~payload_stores.SupportsList`."""
        self.check_topic(topic)
        with self._errors(topic=topic), suppress(FileNotFoundError), folders.entered(self.path, topic) as folder:
            yield from self._walk(folder, (topic,))

    def topic_of(self, reference: str) -> str:
        """The topic in a reference. See :class:`~payload_stores.SupportsTopics`."""
        _root, path = self._locate(reference, (self._own, *self._trusted))
        return path[0]

    def _walk(self, folder: int, path: tuple[str, ...]) -> Iterator[PayloadInfo]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue  # a temporary file
                with suppress(FileNotFoundError):  # deleted by somebody else since it was listed
                    if entry.is_dir(follow_symlinks=False):
                        with folders.entered(folder, entry.name) as below:
                            yield from self._walk(below, (*path, entry.name))
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        modified = datetime.fromtimestamp(status.st_mtime, UTC)
                        yield PayloadInfo(self._reference((*path, entry.name)), status.st_size, modified)

    def _made(self, path: tuple[str, ...]) -> folders.Folder:
        return folders.made(self.path, *path, durable=self.fsync)

    def _publish_file(self, file: int, name: str, folder: int, final_name: str, final_folder: int) -> None:
        if self.fsync:
            os.fsync(file)
        os.replace(name, final_name, src_dir_fd=folder, dst_dir_fd=final_folder)

    def _sync(self, folder: int) -> None:
        # Also for a file that was there already: whoever renamed it may not have got this far.
        if self.fsync:
            folders.sync_folder(folder)

    def _reference(self, path: tuple[str, ...]) -> str:
        return references.to_url(self.scheme, "", (*self._own, *path))

    def _locate(self, reference: str, roots: tuple[tuple[str, ...], ...]) -> tuple[Path, tuple[str, ...]]:
        location = references.parse(self, reference)
        if location.host:
            raise self.untrusted(reference, "it names a host")
        for root in roots:
            if references.starts_with(location.segments, root):
                path = location.segments[len(root) :]
                if path[-1].startswith("."):
                    raise self.untrusted(reference, "it names a temporary file")
                return Path("/", *root), path
        raise self.untrusted(reference, f"it lies outside {self.PATH.name} = {self.path}")

    @contextmanager
    def _errors(self, *, topic: str | None = None, reference: str | None = None) -> Iterator[None]:
        """Turn the errors of the operating system into those of payload stores."""
        try:
            yield
        except folders.NotAFileError as error:
            raise self.untrusted(reference or str(self.path), f"on its way lies {error.strerror}") from error
        except OSError as error:
            kind, hint = _meaning(error)
            message = f"the file system says: {error.strerror or error}"
            raise kind(message, hint=hint, store=self.scheme, topic=topic, reference=reference) from error


def _meaning(error: OSError) -> tuple[type[PayloadStoreError], str | None]:
    number = error.errno
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return PayloadNotFoundError, "It was deleted, or local.path is not the folder, or not the disk, that it was"
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
