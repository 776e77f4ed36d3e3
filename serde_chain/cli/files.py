"""Values of records as files."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from serde_chain.cli.fits import is_gzipped_fits, most_pixels, picture, pixels_in
from serde_chain.cli.outline import as_json, as_text, is_array, is_table, parts
from serde_chain.handles import PayloadHandle

_FITS: Final = ".fits"
_GZIPPED_FITS: Final = ".fits.gz"
# The first bytes of file types, as regular expressions, by file name suffix. Images come first.
_IMAGES: Final = (
    (rb"\x89PNG\r\n\x1a\n", ".png"),
    (rb"\xff\xd8\xff", ".jpg"),
    (rb"GIF8", ".gif"),
    (rb"RIFF....WEBP", ".webp"),
    (rb"SIMPLE  =", _FITS),
    (rb"II\*\0", ".tif"),
    (rb"MM\0\*", ".tif"),
)
_MAGIC: Final = (
    *_IMAGES,
    (rb"%PDF", ".pdf"),
    (rb"Obj\x01", ".avro"),
    (rb"PAR1", ".parquet"),
    (rb"PK\x03\x04", ".zip"),
    (rb"\x1f\x8b", ".gz"),
    (rb"\x28\xb5\x2f\xfd", ".zst"),
)
_HEAD: Final = 16
_COPIED: Final = 1 << 20
# Maximum lengths of a file name's parts: topic, key, and field. With the rest, the name stays below 255 bytes.
_LONGEST_TOPIC: Final = 100
_LONGEST_NAME: Final = 50


def suffix_of(head: bytes) -> str:
    r"""The suffix of a file name, by the file's first bytes.

    Example:
        >>> suffix_of(b"SIMPLE  =                    T"), suffix_of(b"M 51"), suffix_of(b"\x00")
        ('.fits', '.txt', '.bin')
    """
    return _suffix(head, _MAGIC) or (".txt" if as_text(head) is not None else ".bin")


def _suffix(data: bytes, known: Iterable[tuple[bytes, str]]) -> str | None:
    return next((suffix for magic, suffix in known if re.match(magic, data, re.DOTALL)), None)


@dataclass(frozen=True)
class Saved:
    """A written file.

    Attributes:
        path: The file.
        size: Its size in bytes.
        images: Images, arrays and tables among the value's fields, as files beside it, and pictures of FITS images.
    """

    path: Path
    size: int
    images: tuple[Path, ...] = ()


def save(message: Any, target: Path) -> Saved:
    """Write a record's value to a file: bytes and text unchanged, arrays as .npy, tables as .arrow, objects as JSON.

    The record never chooses the folder: only letters, digits and ``._-`` of its key go into the name.

    Args:
        message: The record in its final form, with a value.
        target: The file; or a folder, in which the name consists of topic, partition, offset and key, with a suffix
            by the first bytes. Images, arrays and tables among an object's fields become files beside it; of FITS, a
            picture in PNG too.
    """
    value = message.value()
    if isinstance(value, PayloadHandle):
        with value.open() as reader:
            head = reader.read(_HEAD)
            path = _path(target, message, suffix_of(head))
            return Saved(path, _write(path, head, reader))
    content, suffix = as_file(value)
    path = _path(target, message, suffix)
    images: dict[str, Path] = {}
    inner = [*files_in(value)] if suffix == ".json" else []
    room = most_pixels(sum(len(data) for _, data, _ in inner))
    for name, data, end in inner:
        stem = f"{path.stem}{_safe(name)}"
        if f"{stem}{end}".lower() in images:  # of another field: names lose characters, and on some disks their case
            stem += f"-{len(images)}"
        image = images[f"{stem}{end}".lower()] = path.with_name(stem + end)
        _write(image, data)
        pixels = pixels_in(data)
        drawn = picture(data) if pixels <= room else None
        room -= pixels
        if drawn is not None:
            image = images[f"{stem}{end}.png".lower()] = path.with_name(f"{stem}{end}.png")
            _write(image, drawn)
    return Saved(path, _write(path, content), tuple(images.values()))


def as_file(value: Any) -> tuple[bytes, str]:
    r"""A value as a file: its content, and the suffix of its name.

    Bytes and text unchanged; an array as ``.npy`` (NEP 1), a table as ``.arrow`` (Arrow IPC), other objects as JSON.

    Args:
        value: A chain's result, without a handle.

    Raises:
        ValueError: It is an array of Python objects.

    Example:
        >>> as_file(b"GIF89a"), as_file("M 51"), as_file({"id": 51})
        ((b'GIF89a', '.gif'), (b'M 51', '.txt'), (b'{"id": 51}', '.json'))
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value), suffix_of(bytes(value[:_HEAD]))
    if isinstance(value, str):
        return value.encode(), ".txt"
    if is_array(value):
        from numpy.lib import format as npy

        content = io.BytesIO()
        npy.write_array(content, value, allow_pickle=False)
        return content.getvalue(), ".npy"
    if is_table(value):
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, value.schema) as writer:
            writer.write_table(value)
        return sink.getvalue().to_pybytes(), ".arrow"
    return json.dumps(as_json(value)).encode(), ".json"


def files_in(
    value: Any, name: str = "", room: Iterator[object] | None = None, *, arrays: bool = True
) -> Iterator[tuple[str, bytes, str]]:
    r"""The images, arrays and tables in a value; images are recognized by their first bytes.

    Args:
        value: A chain's result.
        name: Prefix of its fields' names.
        room: As in :func:`~serde_chain.cli.outline.parts`.
        arrays: Whether arrays and tables are wanted too.

    Yields:
        The field's name, the file's content, and the suffix of its name.

    Example:
        >>> [(name, suffix) for name, _, suffix in files_in({"cutout": b"GIF89a", "more": [b"M 51", b"\xff\xd8\xff"]})]
        [('.cutout', '.gif'), ('.more.1', '.jpg')]
    """
    if isinstance(value, bytes):
        suffix = _GZIPPED_FITS if is_gzipped_fits(value) else _suffix(value, _IMAGES)
        if suffix is not None:
            yield name, value, suffix
    elif is_array(value) or is_table(value):
        if arrays:
            yield name, *as_file(value)
    else:
        for part, item in parts(value, room):
            yield from files_in(item, f"{name}.{part}", room, arrays=arrays)


def _path(target: Path, message: Any, suffix: str) -> Path:
    return target / file_name(message, suffix) if target.is_dir() else target


def file_name(message: Any, suffix: str) -> str:
    """A file name for a record: topic, partition, offset, and the letters, digits and ``._-`` of the key.

    Args:
        message: The record, raw or in its final form.
        suffix: The end of the name.
    """
    key = message.key()
    name = key if isinstance(key, str) else as_text(key) if isinstance(key, bytes) else None
    safe = _safe(name or "").lstrip(".")
    place = f"{message.topic()[:_LONGEST_TOPIC]}-{message.partition()}-{message.offset()}"
    stem = f"{place}{'-' if safe else ''}{safe}"
    return stem if safe.endswith(suffix) else stem + suffix


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-_LONGEST_NAME:]


def _write(path: Path, head: bytes, reader: BinaryIO | None = None) -> int:
    """Write a file atomically; returns its size."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(head)
            if reader is not None:
                shutil.copyfileobj(reader, file, _COPIED)
            size = file.tell()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return size
