"""Compression: ``compress`` with ``compression.type``, or a stage named after the codec.

The output is self-framed, so readers need no setting: they recognize the codec by its magic number, also in topics with
mixed codecs; only zlib has no magic number, and its readers name it. With ``compression.min.bytes``, smaller payloads
pass uncompressed, except those that begin with a magic number themselves, so that reading stays unambiguous. The reader
must then have the setting too; without it, uncompressed data is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from payload_stores.options import Option, choice, integer
from serde_chain.base import Buffer, Data, Deserializer, PlainSerializer
from serde_chain.codecs import CODECS, MAX_OUTPUT, Codec, codec_of, unread_format
from serde_chain.errors import DecodeError
from serde_chain.record import Context

TYPE: Final = Option(
    "compression.type", choice(*CODECS), "zstd", of_producer=True, doc="codec: zstd, lz4, gzip, snappy or zlib"
)
LEVEL: Final = Option("compression.level", integer(), None, doc="compression level, in the codec's own range")
MIN_BYTES: Final = Option("compression.min.bytes", integer(0), 0, doc="smaller payloads pass uncompressed")


class _OfCodec:
    options: ClassVar[tuple[Option[Any], ...]]
    codec_name: ClassVar[str | None] = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.codec_name is not None:  # then compression.type is the client's alone
            cls.options = tuple(option for option in cls.options if option is not TYPE)


class CompressionSerializer(_OfCodec, PlainSerializer[Buffer]):
    """Compresses bytes.

    Equal payloads give equal bytes with one version of the codec's library, so content ids stay stable.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (TYPE, LEVEL, MIN_BYTES)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read ``compression.type``, ``compression.level`` and ``compression.min.bytes``."""
        super().configure(config, is_key)
        codec = CODECS[self.codec_name or TYPE.read(config)]
        codec.load()
        compress, min_bytes = codec.compressor(codec.check_level(LEVEL.read(config))), MIN_BYTES.read(config)

        def compress_large(data: Buffer) -> Buffer:
            looks_compressed = codec_of(data) is not None or codec.begins(data)
            return data if len(data) < min_bytes and not looks_compressed else compress(data)

        self.plain = compress_large if min_bytes else compress


class CompressionDeserializer(_OfCodec, Deserializer[Buffer]):
    """Decompresses bytes of any known codec, up to ``compression.max.output.bytes``."""

    takes = Data.BYTES
    gives = Data.BYTES
    options = (TYPE, MAX_OUTPUT, MIN_BYTES)
    removed_headers = ()
    plain: Callable[[Buffer], Buffer]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read ``compression.max.output.bytes`` and ``compression.min.bytes``."""
        super().configure(config, is_key)
        self._limit = MAX_OUTPUT.read(config)
        self._pass_through = MIN_BYTES.read(config) > 0
        self._codec = CODECS[self.codec_name or TYPE.read(config)]
        self._codec.load()  # report a missing library now, not at the first record
        self._decompress = self._codec.decompressor(self._limit)
        # Other codecs are rare, so the stage's call handles them; uncompressed payloads are not rare.
        self.plain = self._read if self._pass_through else self._decompress

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Decompress one payload."""
        return None if data is None else self._read(data)

    def _read(self, data: Buffer) -> Buffer:
        try:
            return self._decompress(data)
        except DecodeError:
            if self._codec.begins(data):
                raise
            codec = codec_of(data)
            return self._decompress_other(codec, data)

    def _decompress_other(self, codec: Codec | None, data: Buffer) -> Buffer:
        """Decompress data of another codec than the configured one."""
        if codec is not None:
            codec.load()
            return codec.decompressor(self._limit)(data)
        if self._pass_through:
            return data
        advice = (f"If the writer sets {MIN_BYTES.name}, set it here too", unread_format(data, self._codec.name))
        raise DecodeError(
            f"the data is not compressed: no codec begins with {bytes(data[:4]).hex() or 'nothing'}",
            hint=". ".join(filter(None, advice)),
        )


class ZstdSerializer(CompressionSerializer):
    """``zstd``."""

    codec_name = "zstd"


class Lz4Serializer(CompressionSerializer):
    """``lz4``."""

    codec_name = "lz4"


class GzipSerializer(CompressionSerializer):
    """``gzip``."""

    codec_name = "gzip"


class SnappySerializer(CompressionSerializer):
    """``snappy``."""

    codec_name = "snappy"


class ZlibSerializer(CompressionSerializer):
    """``zlib``."""

    codec_name = "zlib"


class ZstdDeserializer(CompressionDeserializer):
    """``zstd``; reads the other codecs too."""

    codec_name = "zstd"


class Lz4Deserializer(CompressionDeserializer):
    """``lz4``; reads the other codecs too."""

    codec_name = "lz4"


class GzipDeserializer(CompressionDeserializer):
    """``gzip``; reads the other codecs too."""

    codec_name = "gzip"


class SnappyDeserializer(CompressionDeserializer):
    """``snappy``; reads the other codecs too."""

    codec_name = "snappy"


class ZlibDeserializer(CompressionDeserializer):
    """``zlib``; reads the other codecs too."""

    codec_name = "zlib"
