"""Values as the chains read them, as far as they fit on a page."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import Any, Final

import imagesize

from payload_stores.base import PayloadStore
from serde_chain.cli.browse.topic import Patience
from serde_chain.cli.decoding import Decoding
from serde_chain.cli.values import as_json, as_size, as_text, images_in
from serde_chain.config import with_settings
from serde_chain.handles import PayloadHandle
from serde_chain.schemas.parts import MAX_PARTS
from serde_chain.stages.compression.stage import MAX_OUTPUT
from serde_chain.stages.large_message.options import CACHE

__all__ = ["MOST_BYTES", "Image", "Preview", "Previews", "hex_dump"]

MOST_BYTES: Final = 16 << 20
"""The largest payload, or value within a record, that is fetched and decoded for a page."""
_MOST_TEXT: Final = 100_000
# Built of a value, of which a page shows the beginning: a few hundred bytes can be compressed ones of many millions.
_MOST_PARTS: Final = 1_000_000
_MOST_IMAGES: Final = 20
# Of one image: a browser makes room for all of them, of which a few KB can promise any number.
_MOST_PIXELS: Final = 64_000_000
_HEAD: Final = 1 << 20
_SHOWN: Final = 1024
_TICK_S: Final = 0.5

# Only these are shown as what they are: neither runs programs, as SVG and HTML do.
_MEDIA_TYPES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


@dataclass(frozen=True)
class Image:
    """An image in a value.

    Attributes:
        name: The name of its field; empty where it is the value.
        data: Its bytes.
        suffix: That of a file's name.
    """

    name: str
    data: bytes
    suffix: str

    @cached_property
    def media_type(self) -> str | None:
        """As what a browser may show it; None for one that is only to be saved."""
        return _MEDIA_TYPES.get(self.suffix) if _pixels(self.data) <= _MOST_PIXELS else None


@dataclass(frozen=True)
class Preview:
    """A value that was read.

    Attributes:
        value: What the chain returned.
        key: The key as its chain returned it, as text.
        text: The value as text, cut where it is long; None for bytes that are none.
        is_cut: Whether it was cut.
        size: Its size in bytes, of bytes and text.
        images: The images in it.
    """

    value: Any
    key: str
    text: str | None
    is_cut: bool
    size: int | None
    images: list[Image]


class Previews:
    """Reads values, one at a time, up to :data:`MOST_BYTES`.

    Args:
        config: Flat configuration.

    Raises:
        ConfigError: It is wrong.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        bounded = {
            option.name: min(option.read(config), MOST_BYTES) for option in (PayloadStore.MAX_PAYLOAD, MAX_OUTPUT)
        }
        bounded[MAX_PARTS.name] = min(MAX_PARTS.read(config) or _MOST_PARTS, _MOST_PARTS)
        # The page and each of its images read the record.
        cached = {CACHE.name: max(CACHE.read(config), 2 * MOST_BYTES)}
        self._decoding = Decoding(with_settings(config, {**bounded, **cached}))
        self._lock = threading.Lock()

    def read(self, message: Any, patience: Patience) -> Preview:
        """Read a record.

        Args:
            message: As it is in the topic; it is changed.
            patience: Ends the wait for the records that are read before it.

        Raises:
            RecordUnavailableError: Those take too long.
            SerializationError: It cannot be read, or is larger than what is shown.
            RecursionError: It nests too deeply to be shown.
        """
        with self._turn(patience):
            [read] = self._decoding.read([message])
            if read.error is not None:
                raise read.error
            value = read.message.value()
            if isinstance(value, PayloadHandle):
                value = value.read()
            key, _ = _as_text(_beginning(read.message.key()))
            shown = _beginning(value)
            text, is_cut = _as_text(shown)
            size = len(value) if isinstance(value, (bytes, bytearray, memoryview, str)) else None
            return Preview(
                value,
                key or as_size(read.message.key()),
                text,
                is_cut,
                size,
                [Image(*image) for image in islice(images_in(shown), _MOST_IMAGES)],
            )

    @contextmanager
    def _turn(self, patience: Patience) -> Iterator[None]:
        while not self._lock.acquire(timeout=_TICK_S):
            patience.check()
        try:
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the chains."""
        self._decoding.close()


def _pixels(image: bytes) -> float:
    """How many an image says that it has; infinite where that cannot be read."""
    width, height = imagesize.get(BytesIO(image[:_HEAD]), exif_rotation=False)  # of those, -1 and -1
    return width * height if width >= 0 else math.inf


def _beginning(value: Any, room: Iterator[int] | None = None) -> Any:
    """A value up to so many items that its text is cut: an object of some MB may have millions."""
    room = iter(range(_MOST_TEXT)) if room is None else room
    if isinstance(value, Mapping):
        return {name: _beginning(item, room) for (name, item), _ in zip(value.items(), room, strict=False)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_beginning(item, room) for item, _ in zip(value, room, strict=False)]
    return value


def _as_text(value: Any) -> tuple[str | None, bool]:
    """A value as text, up to a length, and whether that cuts it: objects as JSON, line by line."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = as_text(bytes(value))
    elif isinstance(value, str):
        text = value
    else:
        # Piece by piece: as text, an object may be far larger than it is.
        pieces, length = [], 0
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(as_json(value, as_size)):
            pieces.append(piece)
            length += len(piece)
            if length > _MOST_TEXT:
                break
        text = "".join(pieces)
    return (None, False) if text is None else (text[:_MOST_TEXT], len(text) > _MOST_TEXT)


def hex_dump(data: bytes) -> str:
    r"""The beginning of some bytes, as ``hexdump -C`` prints it.

    Args:
        data: The bytes, of which the first 1024 are shown.

    Example:
        >>> print(hex_dump(b"SIMPLE  =\x00\xff"))
        00000000  53 49 4d 50 4c 45 20 20  3d 00 ff                 |SIMPLE  =..|
    """
    lines = []
    for at in range(0, min(len(data), _SHOWN), 16):
        part = data[at : at + 16]
        digits = f"{part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}"
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {digits}  |{text}|")
    return "\n".join(lines)
