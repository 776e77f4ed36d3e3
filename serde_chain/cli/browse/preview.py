"""Decoded values, cut to fit on a page."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import Any, Final, NamedTuple

import imagesize

from payload_stores.base import PayloadStore
from serde_chain.cli.browse.looks import Look
from serde_chain.cli.browse.sizes import stored_bytes
from serde_chain.cli.browse.topic import ListedRecord, Patience
from serde_chain.cli.decoding import Decoding
from serde_chain.cli.files import files_in
from serde_chain.cli.fits import picture, pixels_in, size_in
from serde_chain.cli.outline import as_size, json_text
from serde_chain.cli.routed import large_fields_config
from serde_chain.codecs import MAX_OUTPUT
from serde_chain.config import resolve, with_settings
from serde_chain.errors import ConfigError
from serde_chain.handles import PayloadHandle
from serde_chain.schemas.part_budget import MAX_PARTS
from serde_chain.stages.large_fields.paths import MISSING, look_up
from serde_chain.stages.large_message.options import CACHE
from serde_chain.wire.large_fields import Path

MOST_BYTES: Final = 16 << 20
"""Maximum size of a payload, or value within a record, that is fetched and decoded for a page."""
_MOST_PARTS_SEEN: Final = 100_000
# Limits the parts of a value, of which a page shows the beginning: a few hundred bytes may decompress to millions.
_MOST_PARTS: Final = 1_000_000
_MOST_IMAGES: Final = 20
# Limit per image: a browser allocates all pixels, and a few KB can claim any number.
_MOST_PIXELS: Final = 64_000_000
_HEAD: Final = 1 << 20
_SHOWN: Final = 1024
# In lists, larger values and images are not decoded, and larger payloads not fetched.
_MOST_LISTED: Final = 256 << 10
_MOST_FETCHED: Final = 1 << 20
_TICK_S: Final = 0.5

# Only these are displayed: unlike SVG and HTML, they do not run programs.
_MEDIA_TYPES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}


@dataclass(frozen=True)
class Image:
    """An image in a value.

    Attributes:
        name: Its field's name; empty if it is the value.
        data: Its bytes.
        suffix: The file name's suffix.
    """

    name: str
    data: bytes
    suffix: str

    @property
    def is_thumbnail(self) -> bool:
        """Whether it can be shown in a list."""
        return len(self.data) <= _MOST_LISTED and self.media_type is not None

    @cached_property
    def shown(self) -> bytes | None:
        """The bytes to display: a picture of an image in FITS, which browsers do not know. Drawn when first read.

        None if it cannot be drawn, as a truncated one.
        """
        return picture(self.data) if self._is_fits else self.data

    @cached_property
    def media_type(self) -> str | None:
        """The media type to display it as; None if it can only be saved. Nothing is drawn for it."""
        if self._is_fits:
            return _MEDIA_TYPES[".png"] if pixels_in(self.data) else None
        return _MEDIA_TYPES.get(self.suffix) if _pixels(self.data) <= _MOST_PIXELS else None

    @property
    def label(self) -> str:
        """Its type, and its size in pixels if they are drawn."""
        size = size_in(self.data) if self._is_fits else None
        pixels = "" if size is None else f", {size[0]:,} \N{MULTIPLICATION SIGN} {size[1]:,}"
        return f"{self.suffix[1:].upper()}{pixels}"

    @property
    def _is_fits(self) -> bool:
        return self.suffix.startswith(".fits")


@dataclass(frozen=True)
class Preview:
    """A decoded value.

    Attributes:
        value: The chain's result.
        key_value: The key chain's result.
        key: The same as text.
        text: The value as text, cut if long; None for bytes that are not text.
        is_cut: Whether it was cut.
        size: Size of bytes or text, in bytes.
        images: Its images.
    """

    value: Any
    key_value: Any
    key: str
    text: str | None
    is_cut: bool
    size: int | None
    images: list[Image]

    @property
    def thumbnail(self) -> Image | None:
        """The image for a list: the first that can be shown there."""
        return next((image for image in self.images if image.is_thumbnail), None)


class Shown(NamedTuple):
    """A record in a list.

    Attributes:
        row: The record.
        preview: Its value; None if it is not decoded.
        problem: The reason if it is undecodable.
        look: What it looks like then; None if its surroundings are at fault.
    """

    row: ListedRecord
    preview: Preview | None = None
    problem: str | None = None
    look: Look | None = None


class Previews:
    """Decodes values, one at a time, up to :data:`MOST_BYTES`.

    Args:
        config: Flat configuration.

    Raises:
        ConfigError: The configuration is wrong.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        bounded = {
            option.name: min(option.read(config), MOST_BYTES) for option in (PayloadStore.MAX_PAYLOAD, MAX_OUTPUT)
        }
        bounded[MAX_PARTS.name] = min(MAX_PARTS.read(config) or _MOST_PARTS, _MOST_PARTS)
        # The page and each of its images read the record.
        cached = {CACHE.name: max(CACHE.read(config), 2 * MOST_BYTES)}
        settings = with_settings(config, {**bounded, **cached})
        self._decoding = Decoding(settings)
        self._lazy = self._decoding
        if large_fields_config(resolve(settings)) is not None:
            # A page fetches no field before it is opened. Protobuf messages hold no handles.
            with suppress(ConfigError):
                self._lazy = Decoding(settings, lazy_fields=True)
        self._lock = threading.Lock()

    def read(self, message: Any, patience: Patience, *, fields: bool = False) -> Preview:
        """Read a record.

        Args:
            message: The raw record; it is modified.
            patience: Ends the wait for earlier records.
            fields: Fetch the fields that are in the store, instead of handles where a value can hold them.

        Raises:
            RecordUnavailableError: The earlier records take too long.
            SerializationError: The record is undecodable, or too large to show.
            RecursionError: The value nests too deeply to show.
        """
        with self._turn(patience):
            [read] = (self._decoding if fields else self._lazy).read([message])
            if read.error is not None:
                raise read.error
            value = read.message.value()
            if isinstance(value, PayloadHandle):
                value = value.read()
            key, _ = json_text(read.message.key())
            text, is_cut = json_text(value)
            size = len(value) if isinstance(value, (bytes, bytearray, memoryview, str)) else None
            return Preview(
                value,
                read.message.key(),
                key or as_size(read.message.key()),
                text,
                is_cut,
                size,
                [*images_in(value)],
            )

    def is_listed(self, key: Mapping[str, Any], value: Mapping[str, Any], *, fetch: bool) -> bool:
        """Whether a record may be decoded for a list: it is small.

        Args:
            key: The key, as described by :func:`~serde_chain.cli.inspect_topic.describe`.
            value: The value, likewise.
            fetch: Whether its payload may be fetched, if it is small too.
        """
        if max(key.get("bytes", 0), value.get("bytes", 0)) > _MOST_LISTED:
            return False
        if "reference" in key or "reference" in value or ("fields" in value and self._lazy is self._decoding):
            return fetch and fetched_bytes(value) > 0
        return True

    def field(self, message: Any, path: Path, patience: Patience) -> bytes | None:
        """Fetch a field.

        Args:
            message: The raw record; it is modified.
            path: Where the field is.
            patience: As in :meth:`read`.

        Returns:
            Its content; None if there is no such field of bytes or text.

        Raises:
            ContextualError: The record is undecodable, or the payload is unavailable.
        """
        value = self.read(message, patience).value
        content = look_up(value, path)
        if content is MISSING:
            return None
        if isinstance(content, PayloadHandle):
            with self._turn(patience):
                return content.read()
        if isinstance(content, str):
            return content.encode()
        return bytes(content) if isinstance(content, (bytes, bytearray, memoryview)) else None

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
        if self._lazy is not self._decoding:
            self._lazy.close()


def fetched_bytes(described: Mapping[str, Any]) -> int:
    """The bytes that a list fetches for a value on request: none of those with more than 1 MiB in the store.

    Args:
        described: The value, as described by :func:`~serde_chain.cli.inspect_topic.describe`.
    """
    stored = stored_bytes(described) or 0
    return stored if stored <= _MOST_FETCHED else 0


def images_in(value: Any) -> Iterator[Image]:
    """The first images in a value."""
    found = files_in(value, room=iter(range(_MOST_PARTS_SEEN)), arrays=False)
    return (Image(*image) for image in islice(found, _MOST_IMAGES))


def _pixels(image: bytes) -> float:
    """The number of pixels that an image claims; infinite if unreadable."""
    width, height = imagesize.get(BytesIO(image[:_HEAD]), exif_rotation=False)  # -1 and -1 if unreadable
    return width * height if width >= 0 else math.inf


def hex_dump(data: bytes) -> str:
    r"""The beginning of some bytes, as printed by ``hexdump -C``.

    Args:
        data: The bytes; the first 1024 are shown.

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
