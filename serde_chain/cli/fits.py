"""Pictures of FITS images, as surveys put them into alerts: the first image of a file, as PNG, in shades of grey.

The header is a list of 80-byte cards in blocks of 2880 bytes; pixels are big-endian, the bottom row first (FITS
standard 4.0, sections 3 and 4). The stretch is linear between two percentiles: images are mostly noise around zero,
and a few bright pixels would leave the rest black.

A KB of gzip may claim a million pixels, which take a second to draw. So the pixels of a picture, and those of all
pictures of a record, are limited by the length of what they are in.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_START: Final = b"SIMPLE  ="
_BLOCK: Final = 2880
_CARD: Final = 80
_MOST_BLOCKS: Final = 40
_MOST_PIXELS: Final = 1_000_000
_TYPES: Final = {8: "B", 16: "h", 32: "i", 64: "q", -32: "f", -64: "d"}
_FREE_PIXELS: Final = 1 << 18
# Without compression, a pixel has at least a byte; noise compresses to a half.
_PIXELS_PER_BYTE: Final = 4
_HEAD: Final = 1024
_PERCENTILES: Final = (0.01, 0.995)
_SAMPLE: Final = 50_000
# Cut-outs have 60 pixels a side; a screen has more.
_LEAST_SIDE: Final = 240


def is_fits(data: bytes) -> bool:
    """Whether the data is a FITS file, gzipped or not, by its first bytes."""
    return data.startswith(_START) or is_gzipped_fits(data)


def is_gzipped_fits(data: bytes) -> bool:
    """Whether the data is a FITS file within gzip, by its first bytes."""
    if data[:2] != b"\x1f\x8b":
        return False
    try:
        return zlib.decompressobj(31).decompress(data[:_HEAD], len(_START)) == _START
    except zlib.error:
        return False


class _Head(NamedTuple):
    """The header of a file's first image, with the bytes it was read from."""

    cards: Mapping[str, str]
    start: int
    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height


def most_pixels(size: int) -> int:
    """The most pixels that are drawn for some bytes.

    Args:
        size: Their number: of a file, or of a record with several.

    Example:
        >>> most_pixels(0), most_pixels(1_000_000)
        (262144, 1000000)
    """
    return min(_FREE_PIXELS + _PIXELS_PER_BYTE * size, _MOST_PIXELS)


def pixels_in(data: bytes) -> int:
    """The number of pixels that :func:`picture` would draw, by the header alone; 0 if there is no picture.

    Args:
        data: The file, gzipped or not.
    """
    width, height = size_in(data) or (0, 0)
    return width * height


def size_in(data: bytes) -> tuple[int, int] | None:
    """The width and height of the image that :func:`picture` would draw; None if there is no picture.

    Args:
        data: The file, gzipped or not.
    """
    try:
        head = _head(data) if is_fits(data) else None
    except (zlib.error, ValueError, KeyError):
        return None
    return None if head is None else (head.width, head.height)


def picture(data: bytes) -> bytes | None:
    """Draw the image of a FITS file.

    Args:
        data: The file, gzipped or not.

    Returns:
        A PNG; None if the file's first header has no image of two or more dimensions, or one with more pixels than
        :func:`most_pixels` of its size.
    """
    try:
        head = _head(data)
        kind = _TYPES[int(head.cards["BITPIX"])]
        data = _inflated(data, head.start + head.pixels * struct.calcsize(f">{kind}"))
        # Of more than two axes, the first plane comes first. BSCALE and BZERO only move the scale.
        pixels = struct.unpack_from(f">{head.pixels}{kind}", data, head.start)
        sign = -1 if float(head.cards.get("BSCALE", 1)) < 0 else 1
    except (zlib.error, struct.error, ValueError, KeyError):
        return None
    return _png(_grey(pixels, sign), head.width, head.height)


def _inflated(data: bytes, size: int) -> bytes:
    """The first bytes of a file; a gzip member may expand a thousandfold, and no more of it is decompressed."""
    return zlib.decompressobj(31).decompress(data, size) if data[:2] == b"\x1f\x8b" else data


def _head(data: bytes) -> _Head:
    cards, start = _header(_inflated(data, _MOST_BLOCKS * _BLOCK))
    axes = int(cards["NAXIS"])
    width, height = (int(cards[f"NAXIS{axis}"]) if axis <= axes else 0 for axis in (1, 2))
    if not (width > 0 < height and width * height <= most_pixels(len(data)) and int(cards["BITPIX"]) in _TYPES):
        raise ValueError("no picture is drawn of it")
    return _Head(cards, start, width, height)


def _header(data: bytes) -> tuple[Mapping[str, str], int]:
    """The first header's values as text, and its end."""
    cards: dict[str, str] = {}
    for at in range(0, min(len(data), _MOST_BLOCKS * _BLOCK), _CARD):
        card = data[at : at + _CARD].decode("ascii")
        name = card[:8].rstrip()
        if name == "END":
            return cards, -(-(at + _CARD) // _BLOCK) * _BLOCK
        if card[8:10] == "= ":
            cards.setdefault(name, card[10:].partition("/")[0].strip())
    raise ValueError("the header does not end")


def _grey(pixels: Sequence[float], sign: int) -> bytes:
    """The pixels from 0 to 255; those that are no number are black."""
    finite = sorted(filter(math.isfinite, pixels[:: max(1, len(pixels) // _SAMPLE)]))
    if not finite:
        return bytes(len(pixels))
    low, high = (finite[int(share * (len(finite) - 1))] for share in _PERCENTILES)
    # Halves, since the difference of two large numbers may be infinite.
    span = high / 2 - low / 2 or 1.0

    def shade(value: float) -> int:
        if not math.isfinite(value):
            return 0
        level = int(255 * min(max((value / 2 - low / 2) / span, 0.0), 1.0))
        return level if sign > 0 else 255 - level

    return bytes(map(shade, pixels))


def _png(grey: bytes, width: int, height: int) -> bytes:
    """A PNG (RFC 2083) with square pixels, the last row on top."""
    scale = max(1, -(-_LEAST_SIDE // max(width, height)))
    rows = []
    for at in range((height - 1) * width, -1, -width):
        row = grey[at : at + width]
        wide = row if scale == 1 else b"".join(bytes((level,)) * scale for level in row)
        rows.append((b"\0" + wide) * scale)
    size = struct.pack(">2I5B", width * scale, height * scale, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
