"""The primitive types of Kafka's own serializers, byte for byte as in ``org.apache.kafka.common.serialization``.

``string`` is UTF-8; ``integer`` and ``long`` are big-endian int32 and int64; ``float`` and ``double`` are big-endian
IEEE 754; ``uuid`` is its 36 characters; ``bytes`` is untouched.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, ClassVar

from payload_stores.errors import drop_data
from serde_chain.base import Buffer, Deserializer, Serializer
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.record import Context

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

__all__ = [
    "BytesDeserializer",
    "BytesSerializer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "FloatDeserializer",
    "FloatSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "LongDeserializer",
    "LongSerializer",
    "StringDeserializer",
    "StringSerializer",
    "UuidDeserializer",
    "UuidSerializer",
]


class StringSerializer(Serializer[str]):
    """Text as UTF-8."""

    def __call__(self, data: str | None, ctx: Context | None = None, /) -> bytes | None:
        """Encode text; anything else is refused rather than converted."""
        if data is None:
            return None
        if not isinstance(data, str):
            raise _wrong_type("string", "str", data)
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            told = str(error)
            drop_data(error)
            raise EncodeError(f"the text is not valid Unicode: {told}") from error


class StringDeserializer(Deserializer[str]):
    """UTF-8 as text."""

    arrow_type_name = "string"

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> str | None:
        """Decode text."""
        return None if data is None else _decode_text(data)


class BytesSerializer(Serializer[Buffer]):
    """Bytes, untouched."""

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Return the data as it is."""
        if data is None or isinstance(data, (bytes, bytearray, memoryview)):
            return data
        raise _wrong_type("bytes", "bytes", data)


class BytesDeserializer(Deserializer[bytes]):
    """Bytes, untouched."""

    arrow_type_name = "binary"

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> bytes | None:
        """Return the data as bytes."""
        return data if data is None or type(data) is bytes else bytes(data)

    def batch_form(self) -> BatchForm:
        """The column as it came."""
        from serde_chain.arrow import Untouched

        return Untouched()


class _NumberSerializer(Serializer[float]):
    """A number in a fixed number of big-endian bytes."""

    name: ClassVar[str]
    accepts: ClassVar[tuple[type, ...]]
    layout: ClassVar[struct.Struct]

    def __call__(self, data: float | None, ctx: Context | None = None, /) -> bytes | None:
        """Encode a number that fits."""
        if data is None:
            return None
        if isinstance(data, bool) or not isinstance(data, self.accepts):
            raise _wrong_type(self.name, " or ".join(kind.__name__ for kind in self.accepts), data)
        try:
            return self.layout.pack(data)
        except (struct.error, OverflowError) as error:
            raise EncodeError(f"{data!r} does not fit in a {self.name} of {self.layout.size} bytes") from error


class _NumberDeserializer(Deserializer[float]):
    """The number in a fixed number of big-endian bytes."""

    name: ClassVar[str]
    layout: ClassVar[struct.Struct]

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> float | None:
        """Decode a number."""
        if data is None:
            return None
        if len(data) != self.layout.size:
            raise DecodeError(f"a {self.name} has {self.layout.size} bytes, not {len(data)}")
        (number,) = self.layout.unpack(data)
        return number  # type: ignore[no-any-return]


class IntegerSerializer(_NumberSerializer):
    """``int`` as big-endian int32."""

    name, accepts, layout = "integer", (int,), struct.Struct(">i")


class IntegerDeserializer(_NumberDeserializer):
    """Big-endian int32 as ``int``."""

    name, layout = "integer", struct.Struct(">i")
    arrow_type_name = "int32"


class LongSerializer(_NumberSerializer):
    """``int`` as big-endian int64."""

    name, accepts, layout = "long", (int,), struct.Struct(">q")


class LongDeserializer(_NumberDeserializer):
    """Big-endian int64 as ``int``."""

    name, layout = "long", struct.Struct(">q")
    arrow_type_name = "int64"


class FloatSerializer(_NumberSerializer):
    """``float`` as big-endian IEEE 754 binary32."""

    name, accepts, layout = "float", (float, int), struct.Struct(">f")


class FloatDeserializer(_NumberDeserializer):
    """Big-endian IEEE 754 binary32 as ``float``."""

    name, layout = "float", struct.Struct(">f")
    arrow_type_name = "float32"


class DoubleSerializer(_NumberSerializer):
    """``float`` as big-endian IEEE 754 binary64."""

    name, accepts, layout = "double", (float, int), struct.Struct(">d")


class DoubleDeserializer(_NumberDeserializer):
    """Big-endian IEEE 754 binary64 as ``float``."""

    name, layout = "double", struct.Struct(">d")
    arrow_type_name = "float64"


class UuidSerializer(Serializer[uuid.UUID]):
    """A UUID as its 36 characters, as Kafka's ``UUIDSerializer`` writes it."""

    def __call__(self, data: uuid.UUID | None, ctx: Context | None = None, /) -> bytes | None:
        """Encode a UUID."""
        if data is None:
            return None
        if not isinstance(data, uuid.UUID):
            raise _wrong_type("uuid", "uuid.UUID", data)
        return str(data).encode()


class UuidDeserializer(Deserializer[uuid.UUID]):
    """36 characters as a UUID."""

    arrow_type_name = "string"

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> uuid.UUID | None:
        """Decode a UUID."""
        if data is None:
            return None
        text = _decode_text(data)
        try:
            parsed = uuid.UUID(text)
        except ValueError as error:
            raise DecodeError(f"{text[:50]!r} is not a UUID") from error
        if str(parsed) != text.lower():  # uuid.UUID also takes braces, URNs and missing hyphens
            raise DecodeError(f"{text[:50]!r} is not a UUID of 36 characters")
        return parsed


def _decode_text(data: Buffer) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        drop_data(error)
        raise DecodeError(f"the bytes are not UTF-8: {error.reason} at position {error.start}") from error


def _wrong_type(stage: str, expected: str, data: object) -> EncodeError:
    return EncodeError(f"{stage} takes {expected}, not {type(data).__name__}")
