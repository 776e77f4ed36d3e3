"""Codecs of the blocks in container files (Avro specification, "Required Codecs" and "Optional Codecs"), bounded.

A block may claim any size, so no function makes more bytes than it is given as a limit, nor reserves them at once.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.codecs import CHUNK, CODECS, DEFLATE, Output
from serde_chain.errors import DecodeError

# Snappy's largest copy makes 64 bytes of 3.
_SNAPPY_RATIO: Final = 22
_CHECKSUM_BYTES: Final = 4
# Of LZMA's dictionary; that of the highest preset takes 65 MiB.
_LZMA_BYTES: Final = 128 << 20


def _null(data: memoryview, most: int) -> bytes:
    return bytes(data[: most + 1])


def _deflate(data: memoryview, most: int) -> bytes:
    # fastavro and others leave a part of zlib's checksum after the end, so trailing bytes are ignored.
    return DEFLATE.decompress_first(data, most)[0]


def _bzip2(data: memoryview, most: int) -> bytes:
    return _streamed(bz2.BZ2Decompressor(), data, most)


def _xz(data: memoryview, most: int) -> bytes:
    return _streamed(lzma.LZMADecompressor(memlimit=_LZMA_BYTES), data, most)


def _streamed(stream: Any, data: memoryview, most: int) -> bytes:
    output = Output(most)
    piece = stream.decompress(data, CHUNK)
    while True:
        if not output.add(piece):
            raise _TooLargeError
        if stream.eof:
            return output.value()
        if stream.needs_input:
            raise ValueError("it is truncated")
        piece = stream.decompress(b"", CHUNK)


def _snappy(data: memoryview, most: int) -> bytes:
    """A raw block, and the checksum of its content."""
    library: Any = require("cramjam", "compression")
    body, checksum = data[:-_CHECKSUM_BYTES], int.from_bytes(data[-_CHECKSUM_BYTES:], "big")
    try:
        size = library.snappy.decompress_raw_len(body)
        if size > most:
            raise _TooLargeError
        if size > _SNAPPY_RATIO * len(body):
            raise ValueError("it claims more bytes than it can hold")
        block = bytes(library.snappy.decompress_raw(body))
    except library.DecompressionError as error:
        raise ValueError(str(error)) from error
    if zlib.crc32(block) != checksum:
        raise ValueError("its checksum is another")
    return block


def _zstandard(data: memoryview, most: int) -> bytes:
    codec = CODECS["zstd"]
    codec.load()
    block, rest = codec.decompress_first(data, most)
    if rest:
        raise ValueError("bytes follow it")
    return block


_FUNCTIONS: Final[Mapping[str, Callable[[memoryview, int], bytes]]] = {
    "null": _null,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": _bzip2,
    "xz": _xz,
    "zstandard": _zstandard,
}


class _TooLargeError(Exception):
    """A block holds more bytes than it may."""


_FAILURES: Final = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, DecodeError)


def _bounded(name: str) -> Callable[[memoryview, int], bytes]:
    decompress = _FUNCTIONS[name]

    def of_block(data: memoryview, most: int) -> bytes:
        try:
            block = decompress(data, most)
        except _TooLargeError:
            block = None
        except _FAILURES as error:
            why = error.message if isinstance(error, DecodeError) else error
            raise ValueError(f"a block is truncated or corrupt: {why}") from error
        if block is None or len(block) > most:
            raise ValueError(f"a block is larger than the {most} bytes that are left of the file's limit")
        return block

    return of_block


BLOCK_CODECS: Final[Mapping[str, Callable[[memoryview, int], bytes]]] = {name: _bounded(name) for name in _FUNCTIONS}
"""For each codec, a function of a block and the most bytes that it may hold.

They raise ValueError for a block that is corrupt or larger, and MissingDependencyError without the codec's library.
"""
