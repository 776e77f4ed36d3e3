"""BSON: the bytes of other writers, and hostile documents."""

import datetime as dt
import struct
import uuid
import zlib
from typing import Any

import bson
import pytest

from serde_chain import DecodeError, DeserializerChain, EncodeError, SerializerChain

ALERT = {"alert_id": "ztf_candidate:1", "mjd": 60000.5, "properties": {"ant_mag": None, "n": 2**40}, "tags": ["a"]}


def read(data: bytes, **config: object) -> object:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return DeserializerChain.from_config({"value.deserializer": "bson", **settings})(data)


def nested(levels: int) -> bytes:
    data = b"\x05\0\0\0\0"
    for _ in range(levels):
        data = struct.pack("<i", len(data) + 7) + b"\x03\0" + data + b"\0"
    return data


def test_alerts_as_antares_writes_them() -> None:
    config = {"value.serializers": "bson, zlib", "value.deserializers": "zlib, bson"}
    assert DeserializerChain.from_config(config)(zlib.compress(bson.encode(ALERT))) == ALERT
    assert bson.decode(zlib.decompress(SerializerChain.from_config(config)(ALERT))) == ALERT


def test_every_type_of_a_document_is_walked_over() -> None:
    values = [
        1.5, "text", {"a": []}, [{}], b"bytes", bson.Binary(b"x", 5), bson.ObjectId(), True, None, 7, 2**40,
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC), bson.Regex("a", "i"), bson.Code("f"), bson.Timestamp(1, 2),
        bson.Code("f", {"x": 1}), bson.Decimal128("1.5"), bson.MinKey(), bson.MaxKey(), uuid.UUID(int=7),
    ]  # fmt: skip
    options: Any = bson.CodecOptions(uuid_representation=bson.binary.UuidRepresentation.STANDARD)
    data = bson.encode({"v": values}, codec_options=options)
    parts = 1 + len(values) + 2
    assert read(data, serde_max_parts=parts) == {"v": values}
    with pytest.raises(DecodeError, match=f"more than {parts - 1} parts"):
        read(data, serde_max_parts=parts - 1)


def test_equal_keys_give_equal_bytes() -> None:
    write = SerializerChain.from_config({"key.serializer": "bson"}, is_key=True)
    assert write({"b": 1, "a": [{"d": 1, "c": 2}]}) == write({"a": [{"c": 2, "d": 1}], "b": 1})


def test_a_refused_value_is_named_by_its_type() -> None:
    with pytest.raises(EncodeError, match=r"InvalidDocument: it cannot encode .*'object'") as caught:
        SerializerChain.from_config({"value.serializer": "bson"})({"at": object(), "text": "SECRET"})
    assert "SECRET" not in str(caught.value)


@pytest.mark.full
def test_deep_documents_are_refused() -> None:
    assert read(nested(200))
    for levels in (201, 5000, 100_000):
        with pytest.raises(DecodeError, match="not a BSON document"):
            read(nested(levels))
    loop: dict[str, object] = {}
    loop["loop"] = loop
    with pytest.raises(EncodeError, match="nests deeper than 200"):
        SerializerChain.from_config({"value.serializer": "bson"})(loop)


def test_dates_beyond_pythons() -> None:
    assert read(bson.encode({"at": bson.DatetimeMS(2**62)})) == {"at": bson.DatetimeMS(2**62)}
