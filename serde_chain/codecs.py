"""Compression codecs: thin, bounded wrappers of their libraries, recognized by the magic numbers of their formats.

Every format frames itself and detects truncation. Decompression never returns more than a limit, regardless of the
declared or actual size of a frame; trailing bytes are refused.

========  ====================  ===============================================================================
codec     magic number          format
========  ====================  ===============================================================================
zstd      28 B5 2F FD           RFC 8878, content size in the frame
lz4       04 22 4D 18           LZ4 frame format, independent blocks, content size and checksum
gzip      1F 8B                 RFC 1952, timestamp 0, so that equal payloads give equal bytes
snappy    FF 06 00 00 sNaPpY    Snappy framing format; a skippable chunk 0x80 contains the length (see below)
zlib      none                  RFC 1950, checksum at the end; read only where it is configured (see below)
========  ====================  ===============================================================================

The two bytes of a zlib header are no magic number: the text ``x^2`` begins like one. So :func:`codec_of` never finds
it, and records of topics with uncompressed payloads keep their meaning.

Snappy's framing has no end mark, so a stream cut between two chunks would read as a shorter payload. We write the
payload's length (8 bytes, little-endian) into a skippable chunk of type 0x80 after the stream identifier, and check it
if it is present. Other readers skip it.
"""

from __future__ import annotations

import gzip
import io
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Final

from payload_stores.options import Option, integer
from payload_stores.plugins import require
from serde_chain.base import Buffer
from serde_chain.errors import ConfigError, DecodeError
from serde_chain.wire import varint

MAX_OUTPUT: Final = Option(
    "compression.max.output.bytes", integer(1), 256 << 20, doc="maximum size of a decompressed payload"
)

# Bytes of a payload that are decompressed at once.
CHUNK: Final = 1 << 20
# Of at most 128 KiB each, and the bytes of the checksum that may follow the last one (RFC 8878, 3.1.1).
_ZSTD_BLOCKS: Final = CHUNK >> 17
_ZSTD_CHECKSUM: Final = 4
# Bytes of compressed data: zlib copies its unread input at each call.
_STEP: Final = 64 << 10


class Codec(ABC):
    """One compression format.

    Attributes:
        name: Its value of ``compression.type``.
        magic: The first bytes of every frame; empty if the format has no magic number.
        levels: Lowest and highest level; None if the format has none.
        default_level: The library's default.
    """

    name: ClassVar[str]
    magic: ClassVar[bytes]
    levels: ClassVar[tuple[int, int] | None] = None
    default_level: ClassVar[int] = 0

    def begins(self, data: Buffer) -> bool:
        """Whether the data begins like a frame of the format."""
        return bytes(memoryview(data)[: len(self.magic)]) == self.magic

    @abstractmethod
    def load(self) -> None:
        """Import the library; raises MissingDependencyError if it is not installed."""

    @abstractmethod
    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        """Make a thread-safe function that compresses a payload into one frame."""

    @abstractmethod
    def decompressor(self, limit: int) -> Callable[[Buffer], bytes]:
        """Make a thread-safe function that decompresses one frame.

        It raises DecodeError unless the data is one complete frame of at most ``limit`` decompressed bytes.
        """

    def decompress_first(self, data: Buffer, limit: int) -> tuple[bytes, memoryview]:
        """Decompress the first frame of the data.

        Args:
            data: The frame, and any bytes after it.
            limit: Most decompressed bytes.

        Returns:
            The payload, and the bytes after the frame; none for a format without an end mark.

        Raises:
            DecodeError: The frame is incomplete or corrupt, or exceeds the limit.
        """
        return self.decompressor(limit)(data), memoryview(b"")

    def check_level(self, level: int | None) -> int:
        """The level to use; raises ConfigError if the codec has no such level."""
        if level is None:
            return self.default_level
        if self.levels is None:
            raise ConfigError(f"{self.name} has no levels", hint="Leave compression.level out", key="compression.level")
        lowest, highest = self.levels
        if not lowest <= level <= highest:
            raise ConfigError(f"{self.name} has levels {lowest} to {highest}, not {level}", key="compression.level")
        return level

    def _whole(self, first: tuple[bytes, memoryview]) -> bytes:
        """The payload of a frame without bytes after it."""
        payload, rest = first
        if rest:
            raise self.corrupt("it does not end where the data ends")
        return payload

    def too_large(self, limit: int) -> DecodeError:
        """The error for a frame above the limit."""
        return DecodeError(
            f"the {self.name} frame decompresses to more than {limit} bytes",
            hint="Raise compression.max.output.bytes if this is expected",
        )

    def corrupt(self, why: object) -> DecodeError:
        """The error for an incomplete or corrupt frame."""
        return DecodeError(f"the {self.name} frame is truncated or corrupt: {why}")


class Output:
    """A payload collected piece by piece in one buffer: joining pieces at the end would need twice the memory.

    Args:
        limit: Most bytes of the payload.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._only: bytes = b""
        self._buffer: io.BytesIO | None = None
        self._size = 0

    def add(self, piece: bytes) -> bool:
        """Add a piece; False if that would exceed the limit."""
        self._size += len(piece)
        if self._size > self._limit:
            return False
        if self._buffer is not None:
            self._buffer.write(piece)
        elif self._only and piece:
            self._buffer = io.BytesIO()
            self._buffer.write(self._only)
            self._buffer.write(piece)
            self._only = b""
        else:
            self._only = self._only or piece
        return True

    def value(self) -> bytes:
        """The whole payload, without a copy."""
        return self._only if self._buffer is None else self._buffer.getvalue()


class _PerThread(threading.local):
    """Per-thread attributes: contexts are expensive to make and not thread-safe."""

    def __init__(self, **factories: Callable[[], Any]) -> None:
        for name, factory in factories.items():
            setattr(self, name, factory())


class _Zstd(Codec):
    """Zstandard through ``zstandard``."""

    name, magic, levels, default_level = "zstd", b"\x28\xb5\x2f\xfd", (-131072, 22), 3

    def load(self) -> None:
        self._library: Any = require("zstandard", "compression")

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        local = _PerThread(compress=lambda: self._library.ZstdCompressor(level).compress)
        # Looked up per call, in the calling thread.
        return lambda data: local.compress(data)  # noqa: PLW0108

    def decompressor(self, limit: int) -> Callable[[Buffer], bytes]:
        local = _PerThread(decompress=lambda: self._library.ZstdDecompressor().decompress)
        content_size, failure = self._library.frame_content_size, self._library.ZstdError

        def decompress(data: Buffer) -> bytes:
            try:
                size = content_size(data)
                if 0 < size <= limit:
                    # Positional, since keywords double the cost of a small record: no limit by the library, one frame,
                    # no bytes after it.
                    return local.decompress(data, 0, False, False)  # type: ignore[no-any-return]
                if size > limit:
                    raise self.too_large(limit)
                # Unknown; or empty, in which case the library ignores the rest.
                return self._whole(self.decompress_first(data, limit))
            except failure as error:
                raise self.corrupt(error) from error

        return decompress

    def decompress_first(self, data: Buffer, limit: int) -> tuple[bytes, memoryview]:
        """A few blocks at a time, also for frames of streaming writers, which do not declare their size."""
        view = memoryview(data)
        if view[: len(self.magic)] != self.magic:  # the library reads skippable frames as an empty payload
            raise self.corrupt("it does not begin with a frame")
        stream, output = self._library.ZstdDecompressor().decompressobj(), Output(limit)
        at = 0
        try:
            for end in _zstd_ends(view, self._library.frame_header_size(view)):
                if not output.add(stream.decompress(view[at:end])):
                    raise self.too_large(limit)
                at = end
        except self._library.ZstdError as error:
            raise self.corrupt(error) from error
        if not stream.eof:
            raise self.corrupt("it ends too early")
        return output.value(), view[at - len(stream.unused_data) :]


class _Lz4(Codec):
    """LZ4 frames through ``lz4``."""

    name, magic, levels, default_level = "lz4", b"\x04\x22\x4d\x18", (-(1 << 16), 16), 0

    def load(self) -> None:
        self._library: Any = require("lz4.frame", "compression")

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        # Independent blocks: Java's LZ4 frame reader accepts no others.
        settings = {"compression_level": level, "block_linked": False, "content_checksum": True, "store_size": True}
        return partial(self._library.compress, **settings)

    def decompressor(self, limit: int) -> Callable[[Buffer], bytes]:
        return lambda data: self._whole(self.decompress_first(data, limit))

    def decompress_first(self, data: Buffer, limit: int) -> tuple[bytes, memoryview]:
        if memoryview(data)[: len(self.magic)] != self.magic:  # the library reads skippable frames as an empty payload
            raise self.corrupt("it does not begin with a frame")
        try:
            size = self._library.get_frame_info(data)["content_size"]
            if size > limit:
                raise self.too_large(limit)
            stream = self._library.LZ4FrameDecompressor()
            output = Output(limit)
            piece = stream.decompress(data, max_length=size or CHUNK)
            while True:
                if not output.add(piece):
                    raise self.too_large(limit)
                if stream.eof:
                    break
                piece = stream.decompress(b"", max_length=CHUNK)
                if not piece and stream.needs_input:
                    raise self.corrupt("it ends too early")
        except (RuntimeError, ValueError, EOFError) as error:
            raise self.corrupt(error) from error
        return output.value(), memoryview(stream.unused_data or b"")


class _Gzip(Codec):
    """gzip through the standard library."""

    name, magic, levels, default_level = "gzip", b"\x1f\x8b", (0, 9), 6
    _wbits: ClassVar[int] = 31

    def load(self) -> None:
        pass

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        return partial(gzip.compress, compresslevel=level, mtime=0)

    def decompressor(self, limit: int) -> Callable[[Buffer], bytes]:
        return lambda data: self._whole(self.decompress_first(data, limit))

    def decompress_first(self, data: Buffer, limit: int) -> tuple[bytes, memoryview]:
        view = memoryview(data).cast("B")
        stream = zlib.decompressobj(wbits=self._wbits)
        output = Output(limit)
        fed: Buffer = b""
        at = 0
        while not stream.eof:
            if not fed:
                if at >= len(view):
                    raise self.corrupt("it ends too early")
                fed = view[at : at + _STEP]
                at += len(fed)
            try:
                piece = stream.decompress(fed, CHUNK)
            except zlib.error as error:
                raise self.corrupt(error) from error
            if not output.add(piece):
                raise self.too_large(limit)
            fed = stream.unconsumed_tail
        return output.value(), view[at - len(stream.unused_data) :]


class _Zlib(_Gzip):
    """zlib streams (RFC 1950) through the standard library."""

    name, magic = "zlib", b""
    _wbits = zlib.MAX_WBITS

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        return partial(zlib.compress, level=level, wbits=self._wbits)

    def begins(self, data: Buffer) -> bool:
        # RFC 1950, section 2.2: the method is deflate, the window at most 32 KiB, and the two bytes a multiple of 31.
        head = bytes(memoryview(data)[:2])
        return len(head) == 2 and head[0] & 15 == 8 and head[0] >> 4 <= 7 and int.from_bytes(head, "big") % 31 == 0


class _Deflate(_Zlib):
    """zlib streams without header and checksum (RFC 1951)."""

    name = "deflate"
    _wbits = -zlib.MAX_WBITS


class _Snappy(Codec):
    """The Snappy framing format through ``cramjam``."""

    name, magic = "snappy", b"\xff\x06\x00\x00sNaPpY"
    _length_chunk: ClassVar[bytes] = b"\x80\x08\x00\x00"

    def load(self) -> None:
        self._library: Any = require("cramjam", "compression").snappy
        self._failure: type[Exception] = require("cramjam", "compression").DecompressionError

    def compressor(self, level: int) -> Callable[[Buffer], bytes]:
        return self._compress

    def _compress(self, data: Buffer) -> bytes:
        stream = memoryview(self._library.compress(data))
        head = self.magic + self._length_chunk + len(data).to_bytes(8, "little")
        return b"".join((head, stream[len(self.magic) :]))

    def decompressor(self, limit: int) -> Callable[[Buffer], bytes]:
        return partial(self._decompress, limit)

    def _decompress(self, limit: int, data: Buffer) -> bytes:
        view = memoryview(data)
        if view[:10] != self.magic:  # the library reads no bytes at all as an empty payload
            raise self.corrupt("it does not begin with a stream identifier")
        declared = None
        if view[10:14] == self._length_chunk:
            declared = int.from_bytes(view[14:22], "little")
        try:
            ends = list(_snappy_ends(view))
            if sum(size for _, size in ends) > limit or (declared or 0) > limit:
                raise self.too_large(limit)
            payload = self._decompress_pieces(view, ends, limit)
        except (self._failure, ValueError) as error:
            raise self.corrupt(error) from error
        if declared is not None and declared != len(payload):
            raise self.corrupt(f"it holds {len(payload)} bytes and declares {declared}")
        return payload

    def _decompress_pieces(self, stream: memoryview, ends: list[tuple[int, int]], limit: int) -> bytes:
        """A few chunks at a time, because the library's result is copied."""
        output = Output(limit)
        start = size = 0
        for end, given in ends:
            size += given
            if size >= CHUNK or end == len(stream):
                head = self.magic if start else b""
                output.add(bytes(self._library.decompress(head + stream[start:end])))
                start, size = end, 0
        return output.value()


def _zstd_ends(frame: memoryview, at: int) -> Iterator[int]:
    """Positions in a Zstandard frame, behind blocks of together at most 1 MiB once decompressed (RFC 8878, 3.1.1.2).

    Args:
        frame: The frame; other data may follow it.
        at: Where its first block begins.
    """
    count = 0
    is_last = False
    while not is_last and at + 3 <= len(frame):
        header = int.from_bytes(frame[at : at + 3], "little")
        is_last, is_repeated, size = bool(header & 1), header >> 1 & 3 == 1, header >> 3
        at += 3 + (1 if is_repeated else size)
        count += 1
        if count % _ZSTD_BLOCKS == 0 and not is_last and at < len(frame):
            yield at
    yield min(at + _ZSTD_CHECKSUM, len(frame))


def _snappy_ends(stream: memoryview) -> Iterator[tuple[int, int]]:
    """The ends of the chunks of a Snappy stream, and their declared sizes; ValueError if a chunk is cut off."""
    at = 0
    while at < len(stream):
        kind, length = stream[at], int.from_bytes(stream[at + 1 : at + 4], "little")
        body = stream[at + 4 : at + 4 + length]
        if at + 4 + length > len(stream):
            raise ValueError("a chunk is cut off")
        at += 4 + length
        # Compressed: checksum, then a varint with the size, at most 65536. Uncompressed: checksum, then the data.
        yield at, varint.read(body, 4, 3)[0] if kind == 0 else max(length - 4, 0) if kind == 1 else 0
    if at == len(_Snappy.magic):
        raise ValueError("no chunk follows the stream identifier")


CODECS: Final[dict[str, Codec]] = {codec.name: codec for codec in (_Zstd(), _Lz4(), _Gzip(), _Snappy(), _Zlib())}
DEFLATE: Final[Codec] = _Deflate()
"""Of Avro's container files; no stage writes it."""


def codec_of(data: Buffer) -> Codec | None:
    """The codec whose magic number begins the data, or None."""
    return next((codec for codec in CODECS.values() if codec.magic and codec.begins(data)), None)


# Magic numbers of formats that no codec here reads.
_UNREAD: Final = {
    b"\x82SNAPPY\x00": "snappy-java's own framing (SnappyOutputStream): write Snappy's framing format",
    b"\x02\x21\x4c\x18": "lz4's legacy format: write the LZ4 frame format",
    **{bytes([0x50 + kind]) + b"\x2a\x4d\x18": "a skippable frame, as of pzstd: write one frame" for kind in range(16)},
    b"BZh": "bzip2: use zstd, lz4, gzip, snappy or zlib",
    b"\xfd7zXZ\x00": "xz: use zstd, lz4, gzip, snappy or zlib",
}
_RAW: Final = {
    "snappy": "Raw blocks, as of python-snappy's compress, have no magic number: write Snappy's framing format",
    "lz4": "Raw blocks, as of lz4.block, have no magic number: write the LZ4 frame format",
    "gzip": "zlib's and raw deflate streams are not gzip: for the former, the stage is zlib",
}


def unread_format(data: Buffer, codec: str) -> str | None:
    r"""Advice for data that a codec's stage cannot read, because they have another format of compression.

    Args:
        data: The data, which begin like no codec.
        codec: The name of the configured codec.

    Example:
        >>> unread_format(b"BZh91AY", "zstd")
        'The bytes begin like bzip2: use zstd, lz4, gzip, snappy or zlib'
    """
    head = bytes(memoryview(data)[:8])
    found = next((name for magic, name in _UNREAD.items() if head.startswith(magic)), None)
    return f"The bytes begin like {found}" if found is not None else _RAW.get(codec)


def missing_stage(data: object) -> str | None:
    r"""Advice for data that a stage cannot read, if they are compressed.

    Args:
        data: The data.

    Returns:
        A hint for the error; None if no magic number begins the data.

    Example:
        >>> missing_stage(b"\x28\xb5\x2f\xfd")
        'The bytes begin like zstd: is that stage missing before this one?'
    """
    codec = codec_of(data) if isinstance(data, (bytes, bytearray, memoryview)) else None
    return None if codec is None else f"The bytes begin like {codec.name}: is that stage missing before this one?"
