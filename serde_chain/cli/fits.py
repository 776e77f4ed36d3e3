"""Pictures of FITS images, as surveys put them into alerts: the first image of a file, as PNG, in shades of grey.

The header is a list of 80-byte cards in blocks of 2880 bytes; pixels are big-endian, the bottom row first (FITS
standard 4.0, sections 3 and 4). The stretch is linear between two percentiles: images are mostly noise around zero,
and a few bright pixels would leave the rest black.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["is_gzipped_fits", "picture"]

_START: Final = b"SIMPLE  ="
_BLOCK: Final = 2880
_CARD: Final = 80
_MOST_BLOCKS: Final = 100
_MOST_PIXELS: Final = 1_000_000
_TYPES: Final = {8: "B", 16: "h", 32: "i", 64: "q", -32: "f", -64: "d"}
# A gzip member may expand a thousandfold: no more is decompressed than the largest picture takes.
_MOST_BYTES: Final = _MOST_BLOCKS * _BLOCK + 8 * _MOST_PIXELS
_HEAD: Final = 1024
_PERCENTILES: Final = (0.01, 0.995)
_SAMPLE: Final = 50_000
# Cut-outs have 60 pixels a side; a screen has more.
_LEAST_SIDE: Final = 240


def is_gzipped_fits(data: bytes) -> bool:
    """Whether the data is a FITS file within gzip, by its first bytes."""
    if data[:2] != b"\x1f\x8b":
        return False
    try:
        return zlib.decompressobj(31).decompress(data[:_HEAD], len(_START)) == _START
    except zlib.error:
        return False


def picture(data: bytes) -> bytes | None:
    """Draw the image of a FITS file.

    Args:
        data: The file, gzipped or not.

    Returns:
        A PNG; None if the file's first header has no image of two or more dimensions, or more than a million pixels.
    """
    try:
        if data[:2] == b"\x1f\x8b":
            data = zlib.decompressobj(31).decompress(data, _MOST_BYTES)
        header, start = _header(data)
        bits, axes = int(header["BITPIX"]), int(header["NAXIS"])
        width, height = (int(header[f"NAXIS{axis}"]) if axis <= axes else 0 for axis in (1, 2))
        if not (width > 0 < height and width * height <= _MOST_PIXELS):
            return None
        # Of more than two axes, the first plane comes first. BSCALE and BZERO only move the scale.
        pixels = struct.unpack_from(f">{width * height}{_TYPES[bits]}", data, start)
        sign = -1 if float(header.get("BSCALE", 1)) < 0 else 1
    except (zlib.error, struct.error, ValueError, KeyError):
        return None
    return _png(_grey(pixels, sign), width, height)


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
