"""Compression of offloaded payloads as in bakdata's Java library, with Kafka's own codecs.

Java writes its whole buffer, so zero bytes follow the end of a frame. They are skipped; any other trailing byte is an
error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.base import Buffer
from serde_chain.codecs import CODECS
from serde_chain.errors import DecodeError
from serde_chain.wire import varint

NAMES: Final = ("gzip", "snappy", "lz4", "zstd")

# xerial's framing: magic, version and oldest compatible version, then blocks, each preceded by its size.
_XERIAL: Final = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK: Final = 32 << 10


def compressor(name: str) -> Callable[[Buffer], bytes]:
    """Make a thread-safe function that compresses a payload for Java readers.

    Raises:
        MissingDependencyError: The library is not installed.
    """
    if name == "gzip":
        return CODECS[name].compressor(6)
    if name == "snappy":
        return partial(_compress_xerial, require("cramjam", "compression").snappy.compress_raw)
    if name == "lz4":
        # Kafka's reader does not accept linked blocks.
        return partial(require("lz4.frame", "compression").compress, block_linked=False, store_size=False)
    library: Any = require("zstandard", "compression")
    return lambda data: library.ZstdCompressor(write_content_size=False).compress(data)


def decompress(name: str, data: Buffer, limit: int) -> bytes:
    """Decompress a frame written by Java or :func:`compressor`.

    Args:
        name: The codec.
        data: A frame, and trailing zero bytes.
        limit: Maximum decompressed size in bytes.

    Raises:
        DecodeError: The codec is unknown, or the frame is malformed, truncated, followed by other bytes, or exceeds
            the limit.
        MissingDependencyError: The library is not installed.
    """
    decompressor = _DECOMPRESSORS.get(name)
    if decompressor is None:
        raise DecodeError(f"the payload's compression {name!r} is none of {', '.join(NAMES)}")
    try:
        return decompressor(memoryview(data), limit)
    except (ValueError, IndexError) as error:
        raise DecodeError(f"the payload is not a {name} frame: {error}") from error


def _framed(name: str, data: memoryview, limit: int) -> bytes:
    codec = CODECS[name]
    codec.load()
    try:
        payload, rest = codec.decompress_first(data, limit)
    except DecodeError as error:
        raise ValueError(error.message) from error  # its hint is about the compress stage
    _check_padding(rest)
    return payload


def _compress_xerial(compress: Callable[[Buffer], Any], data: Buffer) -> bytes:
    view = memoryview(data).cast("B")
    pieces: list[bytes] = [_XERIAL]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(compress(view[start : start + _XERIAL_BLOCK]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _xerial(data: memoryview, limit: int) -> bytes:
    library: Any = require("cramjam", "compression")
    if data[:8] != _XERIAL[:8] or len(data) < len(_XERIAL):
        raise ValueError("it does not begin with xerial's magic number")
    pieces: list[bytes] = []
    at, total = len(_XERIAL), 0
    while at + 4 <= len(data) and (size := int.from_bytes(data[at : at + 4], "big")):
        block = data[at + 4 : at + 4 + size]
        if len(block) < size:
            raise ValueError("it is truncated")
        # A block begins with its decompressed size.
        total += varint.read(block, 0, 5)[0]
        if total > limit:
            raise ValueError(f"it decompresses to more than {limit} bytes")
        try:
            pieces.append(bytes(library.snappy.decompress_raw(block)))
        except library.DecompressionError as error:
            raise ValueError(str(error)) from error
        at += 4 + size
    _check_padding(data[at:])
    return b"".join(pieces)


def _check_padding(rest: memoryview) -> None:
    if bytes(rest).strip(b"\x00"):
        raise ValueError("its end is followed by bytes other than zero")


_DECOMPRESSORS: Final[dict[str, Callable[[memoryview, int], bytes]]] = {
    "gzip": partial(_framed, "gzip"),
    "snappy": _xerial,
    "lz4": partial(_framed, "lz4"),
    "zstd": partial(_framed, "zstd"),
}
