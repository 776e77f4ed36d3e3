"""The primitive types of Kafka's own serializers, byte for byte as in ``org.apache.kafka.common.serialization``.

``string`` is UTF-8; ``integer`` and ``long`` are big-endian int32 and int64; ``float`` and ``double`` are big-endian
IEEE 754; ``uuid`` is its 36 characters; ``bytes`` is untouched.
"""

from __future__ import annotations

import copy
import struct
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.base import Buffer, PlainDeserializer, PlainSerializer, Serializer, ShortBytes, is_stream
from serde_chain.errors import DecodeError, EncodeError, shape_of
from serde_chain.handles import PayloadHandle

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

Out = TypeVar("Out", covariant=True)


def _encode_text(data: Any) -> bytes:
    if not isinstance(data, str):
        is_binary = isinstance(data, (bytes, bytearray, memoryview))
        first = "bytes" if is_binary else "a stage for such values, such as json or long"
        raise _wrong_type("string", "str", data, hint=f"Begin the chain with {first}")
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        message = str(error)
        drop_data(error)
        raise EncodeError(f"the text is not valid Unicode: {message}") from error


def _decode_text(data: Buffer) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        drop_data(error)
        raise DecodeError(f"the bytes are not UTF-8: {error.reason} at position {error.start}") from error


def _check_bytes(data: Any) -> Buffer:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return data
    hint = None  # of files, the chain's
    if isinstance(data, str):
        hint = "Begin the chain with string for text, and pass a file as a pathlib.Path"
    elif not is_stream(data):
        hint = "Begin the chain with a stage that accepts objects, such as json or avro"
    raise _wrong_type("bytes", "bytes", data, hint=hint)


def _check_payload(data: Any) -> Any:
    # For a small record, a protocol check costs more than everything else.
    return data if isinstance(data, bytes) or is_stream(data) else _check_bytes(data)


def as_bytes(data: Any) -> Any:
    """The ``plain`` of ``bytes``; it leaves exact ``bytes`` unchanged, so that a consumer skips it."""
    return data if type(data) is bytes or isinstance(data, PayloadHandle) else bytes(data)


def _number_encoder(stage: str, layout: str, *accepts: type) -> Callable[[Any], bytes]:
    fixed = struct.Struct(layout)
    pack = fixed.pack

    def encode(data: Any) -> bytes:
        if isinstance(data, bool) or not isinstance(data, accepts):
            raise _wrong_type(stage, " or ".join(kind.__name__ for kind in accepts), data)
        try:
            return pack(data)
        except (struct.error, OverflowError) as error:
            raise EncodeError(f"{shape_of(data)} does not fit in {fixed.size} bytes, the size of {stage}") from error

    return encode


def _number_decoder(stage: str, layout: str) -> Callable[[Buffer], Any]:
    fixed = struct.Struct(layout)
    size, unpack = fixed.size, fixed.unpack

    def decode(data: Buffer) -> Any:
        if len(data) != size:
            raise DecodeError(f"a {stage} has {size} bytes, not {len(data)}")
        return unpack(data)[0]

    return decode


def _encode_uuid(data: Any) -> bytes:
    if not isinstance(data, uuid.UUID):
        raise _wrong_type("uuid", "uuid.UUID", data)
    return str(data).encode()


def _decode_uuid(data: Buffer) -> uuid.UUID:
    text = _decode_text(data)
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        raise DecodeError(f"{shape_of(text)} is not a UUID") from None
    if str(parsed) != text.lower():  # uuid.UUID also accepts braces, URNs and missing hyphens
        raise DecodeError(f"{shape_of(text)} is not a UUID of 36 characters")
    return parsed


def _wrong_type(stage: str, expected: str, data: object, *, hint: str | None = None) -> EncodeError:
    return EncodeError(f"{stage} takes {expected}, not {type(data).__name__}", hint=hint)


class _PrimitiveDeserializer(PlainDeserializer[Out]):
    arrow_factory: ClassVar[str]

    def arrow_type(self) -> Any:
        return getattr(require("pyarrow", "arrow"), self.arrow_factory)()


class StringSerializer(PlainSerializer[str]):
    """Text as UTF-8; anything else is refused rather than converted."""

    plain = staticmethod(_encode_text)


class StringDeserializer(_PrimitiveDeserializer[str]):
    """UTF-8 as text."""

    arrow_factory = "string"
    plain = staticmethod(_decode_text)


class BytesSerializer(PlainSerializer[Buffer]):
    """Bytes, untouched; paths and open binary files too, if the next stage accepts streams."""

    plain: Callable[[Any], Buffer] = ShortBytes(_check_bytes, sys.maxsize)

    def bind(self, before: object | None, after: object | None) -> Self:
        """Note whether the next stage accepts streams."""
        takes_streams = isinstance(after, Serializer) and after.takes_streams
        if not takes_streams or type(self) is not BytesSerializer:
            return self
        bound = copy.copy(self)
        bound.plain = ShortBytes(_check_payload, sys.maxsize)
        return bound


class BytesDeserializer(_PrimitiveDeserializer[bytes]):
    """Bytes, untouched; payload handles too."""

    takes_handles = True
    arrow_factory = "binary"
    plain = staticmethod(as_bytes)

    def batch_form(self) -> BatchForm:
        """Returns the column unchanged."""
        from serde_chain.arrow import Untouched

        return Untouched()


class IntegerSerializer(PlainSerializer[int]):
    """``int`` as big-endian int32."""

    plain = staticmethod(_number_encoder("integer", ">i", int))


class IntegerDeserializer(_PrimitiveDeserializer[int]):
    """Big-endian int32 as ``int``."""

    arrow_factory = "int32"
    plain = staticmethod(_number_decoder("integer", ">i"))


class LongSerializer(PlainSerializer[int]):
    """``int`` as big-endian int64."""

    plain = staticmethod(_number_encoder("long", ">q", int))


class LongDeserializer(_PrimitiveDeserializer[int]):
    """Big-endian int64 as ``int``."""

    arrow_factory = "int64"
    plain = staticmethod(_number_decoder("long", ">q"))


class FloatSerializer(PlainSerializer[float]):
    """``float`` as big-endian IEEE 754 binary32."""

    plain = staticmethod(_number_encoder("float", ">f", float, int))


class FloatDeserializer(_PrimitiveDeserializer[float]):
    """Big-endian IEEE 754 binary32 as ``float``."""

    arrow_factory = "float32"
    plain = staticmethod(_number_decoder("float", ">f"))


class DoubleSerializer(PlainSerializer[float]):
    """``float`` as big-endian IEEE 754 binary64."""

    plain = staticmethod(_number_encoder("double", ">d", float, int))


class DoubleDeserializer(_PrimitiveDeserializer[float]):
    """Big-endian IEEE 754 binary64 as ``float``."""

    arrow_factory = "float64"
    plain = staticmethod(_number_decoder("double", ">d"))


class UuidSerializer(PlainSerializer[uuid.UUID]):
    """A UUID as its 36 characters, as Kafka's ``UUIDSerializer`` writes it."""

    plain = staticmethod(_encode_uuid)


class UuidDeserializer(_PrimitiveDeserializer[uuid.UUID]):
    """36 characters as a UUID."""

    arrow_factory = "string"
    plain = staticmethod(_decode_uuid)
