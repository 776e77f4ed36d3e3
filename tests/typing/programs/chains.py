"""A user's program: own stages, chains from a configuration, errors."""

from collections.abc import Mapping
from typing import assert_type

from serde_chain import (
    Data,
    DecodeError,
    Deserializer,
    DeserializerChain,
    PayloadNotFoundError,
    RecordContext,
    SerializationError,
    Serializer,
    SerializerChain,
    StagePair,
)
from serde_chain.base import Buffer
from serde_chain.record import Context


class CelsiusSerializer(Serializer[float]):
    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)
        self.digits = int(str(config.get("celsius.digits", 1)))

    def __call__(self, data: float | None, ctx: Context | None = None, /) -> bytes | None:
        return None if data is None else f"{data:.{self.digits}f}".encode()


class CelsiusDeserializer(Deserializer[float]):
    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> float | None:
        if data is None:
            return None
        try:
            return float(bytes(data))
        except ValueError as error:
            raise DecodeError("not a temperature", hint="Was it written in Fahrenheit?") from error


class Reverse(Serializer[Buffer]):
    takes = Data.BYTES

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        return None if data is None else bytes(data)[::-1]


PAIR = StagePair(CelsiusSerializer, CelsiusDeserializer)

with SerializerChain.from_config({"value.serializers": [PAIR, Reverse]}) as chain:
    assert_type(chain, SerializerChain)
    ctx = RecordContext("temperatures", "value", headers=[("unit", b"C")])
    encoded = chain(21.5, ctx)

try:
    DeserializerChain.from_config("client.toml")(b"21.5", ctx)
except PayloadNotFoundError as error:
    assert_type(error.transient, bool)
except SerializationError as error:
    assert_type(error.offset, int | None)
    assert_type(error.hint, str | None)
