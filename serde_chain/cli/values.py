"""Values of records as JSON, as text, and as files."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final

from serde_chain.cli.arrays import as_file, summary
from serde_chain.cli.fits import is_gzipped_fits, most_pixels, picture, pixels_in
from serde_chain.cli.output import printable
from serde_chain.handles import PayloadHandle
from serde_chain.models import model_of

__all__ = [
    "Saved",
    "as_json",
    "as_line",
    "as_size",
    "as_text",
    "field_json",
    "file_name",
    "from_json",
    "images_in",
    "save",
    "suffix_of",
]

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


def as_json(value: Any, of_bytes: Callable[[bytes], Any] | None = None) -> Any:
    r"""A value in JSON's types.

    Args:
        value: A chain's result.
        of_bytes: Converts bytes; by default to ``{"base64": "…"}``, which :func:`from_json` reads back.

    Example:
        >>> as_json({"name": "M 51", "pixels": b"\xff\xd8", "magnitude": float("nan")})
        {'name': 'M 51', 'pixels': {'base64': '/9g='}, 'magnitude': None}
    """
    of_bytes = of_bytes or _base64
    if isinstance(value, PayloadHandle):
        value = value.read()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return of_bytes(bytes(value))
    if isinstance(value, Mapping):
        return {str(name): as_json(item, of_bytes) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item, of_bytes) for item in value]
    if isinstance(value, Enum):
        return as_json(value.value, of_bytes)
    model = model_of(type(value))
    if model is not None:
        return {field.name: as_json(getattr(value, field.attribute), of_bytes) for field in model.fields}
    return _scalar(value)


def field_json(value: Any) -> Any:
    r"""A key, a value or a header as JSON: like :func:`as_json`, but bytes that are text become text.

    Example:
        >>> field_json(b"M 51"), field_json(b"\xff\xd8")
        ('M 51', {'base64': '/9g='})
    """
    if isinstance(value, PayloadHandle):
        value = value.read()
    text = as_text(bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else None
    return as_json(value) if text is None else text


def from_json(value: Any) -> Any:
    r"""Undo :func:`as_json` for bytes.

    Example:
        >>> from_json({"name": "M 51", "pixels": {"base64": "/9g="}})
        {'name': 'M 51', 'pixels': b'\xff\xd8'}
    """
    if isinstance(value, dict):
        if value.keys() == {"base64"} and isinstance(value["base64"], str):
            return base64.b64decode(value["base64"], validate=True)
        return {name: from_json(item) for name, item in value.items()}
    return [from_json(item) for item in value] if isinstance(value, list) else value


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


def as_size(data: bytes) -> str:
    """The representation of bytes that are not shown.

    Example:
        >>> as_size(bytes(2000))
        '<2,000 bytes>'
    """
    return f"<{len(data):,} bytes>"


def _scalar(value: Any) -> Any:
    """A value of JSON's types; a Protobuf message as its JSON; anything else, such as a Decimal or UUID, as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if (found := summary(value)) is not None:
        return found
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import Message
    except ImportError:
        return str(value)
    return MessageToDict(value, preserving_proto_field_name=True) if isinstance(value, Message) else str(value)


def as_text(data: bytes) -> str | None:
    r"""Bytes as text; None if they are not text.

    Example:
        >>> as_text(b"M 51"), as_text(b"\xff\xd8")
        ('M 51', None)
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # Far faster than checking each character.
    return text if text.replace("\n", "").replace("\r", "").replace("\t", "").isprintable() else None


def as_line(value: Any) -> str:
    """A value for people: text unchanged except for control characters; objects as JSON; other bytes by their size.

    Example:
        >>> as_line(b"M 51"), as_line(bytes(2000)), as_line({"pixels": bytes(2000)})
        ('M 51', '<2,000 bytes>', '{"pixels": "<2,000 bytes>"}')
    """
    if isinstance(value, PayloadHandle):
        value = value.read()
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = as_text(bytes(value))
        return as_size(bytes(value)) if text is None else printable(text)
    return printable(value if isinstance(value, str) else json.dumps(as_json(value, as_size), ensure_ascii=False))


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
    if isinstance(value, (bytes, bytearray, memoryview)):
        path = _path(target, message, suffix_of(bytes(value[:_HEAD])))
        return Saved(path, _write(path, bytes(value)))
    if isinstance(value, str):
        path = _path(target, message, ".txt")
        return Saved(path, _write(path, value.encode()))
    if (file := as_file(value)) is not None:
        content, suffix = file
        path = _path(target, message, suffix)
        return Saved(path, _write(path, content))
    path = _path(target, message, ".json")
    images: dict[str, Path] = {}
    files = (*images_in(value), *_arrays_in(value))
    room = most_pixels(sum(len(data) for _, data, _ in files))
    for name, data, suffix in files:
        stem = f"{path.stem}{_safe(name)}"
        if f"{stem}{suffix}".lower() in images:  # of another field: names lose characters, and on some disks their case
            stem += f"-{len(images)}"
        image = images[f"{stem}{suffix}".lower()] = path.with_name(stem + suffix)
        _write(image, data)
        pixels = pixels_in(data) if suffix in {_FITS, _GZIPPED_FITS} else 0
        drawn = picture(data) if pixels <= room else None
        room -= pixels
        if drawn is not None:
            image = images[f"{stem}{suffix}.png".lower()] = path.with_name(f"{stem}{suffix}.png")
            _write(image, drawn)
    return Saved(path, _write(path, json.dumps(as_json(value)).encode()), tuple(images.values()))


def images_in(value: Any, name: str = "") -> Iterator[tuple[str, bytes, str]]:
    r"""The images in a value, recognized by their first bytes.

    Args:
        value: A chain's result.
        name: Prefix of its fields' names.

    Yields:
        The field's name, the image, and the suffix of a file name.

    Example:
        >>> [(name, suffix) for name, _, suffix in images_in({"cutout": b"GIF89a", "more": [b"M 51", b"\xff\xd8\xff"]})]
        [('.cutout', '.gif'), ('.more.1', '.jpg')]
    """
    if isinstance(value, bytes):
        suffix = _GZIPPED_FITS if is_gzipped_fits(value) else _suffix(value, _IMAGES)
        if suffix is not None:
            yield name, value, suffix
    elif isinstance(value, Mapping):
        for field, item in value.items():
            yield from images_in(item, f"{name}.{field}")
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from images_in(item, f"{name}.{at}")


def _arrays_in(value: Any, name: str = "") -> Iterator[tuple[str, bytes, str]]:
    """The arrays and tables among the fields of an object, as files."""
    if isinstance(value, Mapping):
        for field, item in value.items():
            yield from _arrays_in(item, f"{name}.{field}")
    elif (file := as_file(value)) is not None:
        yield name, *file


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
