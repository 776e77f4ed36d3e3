"""Every stage passes the exported conformance suite."""

import json
import math
import string
import struct
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from serde_chain.testing import SerializerTests
from serde_chain.testing.services import SchemaRegistry

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "magnitude", "type": ["null", "double"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "scores", "type": {"type": "map", "values": "double"}},
            {"name": "band", "type": {"type": "enum", "name": "Band", "symbols": ["u", "g", "r"]}},
            {
                "name": "cutout",
                "type": {"type": "record", "name": "Cutout", "fields": [{"name": "pixels", "type": "bytes"}]},
            },
        ],
    }
)
REAL = st.floats(allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8"))
ALERTS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "magnitude": st.none() | REAL,
        "tags": st.lists(TEXT, max_size=4),
        "scores": st.dictionaries(TEXT, REAL, max_size=3),
        "band": st.sampled_from("ugr"),
        "cutout": st.fixed_dictionaries({"pixels": st.binary(max_size=200)}),
    }
)
ALERT: dict[str, Any] = {"id": 1, "magnitude": None, "tags": [], "scores": {}, "band": "u", "cutout": {"pixels": b""}}
PAYLOADS = st.binary(max_size=3000) | st.integers(0, 100_000).map(bytes)
JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | REAL.filter(math.isfinite) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


class TestString(SerializerTests):
    stage = "string"
    values = TEXT
    misfits = (b"bytes", 1, "half a pair \ud800")
    foreign = (b"\xff", b"\xc3", b"\xed\xa0\x80")
    detects_truncation = False  # a shorter text is a text
    expects_type = str


class TestBytes(SerializerTests):
    stage = "bytes"
    values = st.binary()
    misfits = ("text", 1)
    detects_truncation = False  # all bytes are bytes
    expects_type = bytes


class TestInteger(SerializerTests):
    stage = "integer"
    values = st.integers(-(2**31), 2**31 - 1)
    misfits = (2**31, -(2**31) - 1, 1.0, "1", True)
    foreign = (b"", b"123", b"12345")


class TestLong(SerializerTests):
    stage = "long"
    values = st.integers(-(2**63), 2**63 - 1)
    misfits = (2**63, 1.5, "1", False)
    foreign = (b"", b"1234", b"123456789")


class TestFloat(SerializerTests):
    stage = "float"
    values = st.floats(width=32)
    misfits = (1e39, "1", True, 10**400)
    foreign = (b"", b"123", b"12345678")

    def equal(self, given_: float, got: float) -> bool:
        return struct.pack(">f", given_) == struct.pack(">f", got)


class TestDouble(SerializerTests):
    stage = "double"
    values = st.floats()
    misfits = ("1", None.__class__, 10**400)
    foreign = (b"", b"1234", b"123456789")

    def equal(self, given_: float, got: float) -> bool:
        return given_ == got or (math.isnan(given_) and math.isnan(got))


class TestUuid(SerializerTests):
    stage = "uuid"
    values = st.uuids()
    misfits = ("f47ac10b-58cc-4372-a567-0e02b2c3d479", b"")
    foreign = (b"", b"not a uuid", b"{f47ac10b-58cc-4372-a567-0e02b2c3d479}", b"f47ac10b58cc4372a5670e02b2c3d479")


class Json(SerializerTests):
    def from_column(self, value: str) -> Any:
        return json.loads(value)


class TestJson(Json):
    stage = "json"
    values = JSON
    misfits = (object(), {1: 2}, b"bytes", {"deep": object()}, 2**70)
    foreign = (b"", b"{", b'{"a": 1} and more', b"nan", b"\xff", b"[" * 5000)
    detects_truncation = False  # a shorter number is a number


class TestJsonWithSchema(Json):
    stage = "json"
    values = st.fixed_dictionaries({"id": st.integers(0, 10**6)})
    misfits: ClassVar[tuple[object, ...]] = ({}, {"id": -1}, {"id": "1"}, [])
    foreign = (b"{}", b'{"id": -1}', b"[]")

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        minimum = {"type": "integer", "minimum": 0}
        return {
            "json.schema": json.dumps({"type": "object", "properties": {"id": minimum}, "required": ["id"]}),
            "json.validate": "true",
        }


class TestAvro(SerializerTests):
    stage = "avro"
    values = ALERTS
    misfits: ClassVar[tuple[object, ...]] = (
        {},
        {**ALERT, "id": "text"},
        {**ALERT, "band": "z"},
        {**ALERT, "cutout": None},
        "text",
        {**ALERT, "id": 2**63},
    )
    foreign: ClassVar[tuple[bytes, ...]] = (b"", b"\x00", b"\x02\x04", b"\xff" * 40)
    expects_type = dict

    def from_column(self, value: Any) -> Any:
        return {**value, "scores": dict(value["scores"])}

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"avro.schema": SCHEMA}


class TestBson(SerializerTests):
    stage = "bson"
    values = st.dictionaries(
        TEXT.filter(lambda name: "\0" not in name and not name.startswith("$")),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False)
            | st.binary()
            | TEXT
            | st.uuids(),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=10,
        ),
        max_size=5,
    )
    foreign: ClassVar[tuple[bytes, ...]] = (b"", bytes(4), b"text", b"\x05\0\0\0\0\0", b"\xff" * 40)
    misfits: ClassVar[tuple[object, ...]] = (1, "text", [1], {1: 2}, {"a": 2**64}, {"a": object()})
    expects_type = dict


class TestAvroSingleObject(TestAvro):
    foreign = (b"", b"\xc3", b"\xc3\x01", b"\xc3\x01" + bytes(20), b"\x00" + bytes(20))

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"avro.schema": SCHEMA, "avro.framing": "single-object"}


class TestAvroWithRegistry(TestAvro):
    foreign = (b"", b"\x00", b"\x00\x00\x00\x00", b"\x01" + bytes(5), b"\x02" + bytes(20))

    @pytest.fixture
    def config(self, registry: SchemaRegistry) -> Mapping[str, object]:
        return {"avro.schema": SCHEMA, "schema.registry.url": registry.url}


@pytest.mark.full
class TestAvroWithTheSchemaInAHeader(TestAvro):
    foreign = ()

    @pytest.fixture
    def config(self, registry: SchemaRegistry) -> Mapping[str, object]:
        return {"avro.schema": SCHEMA, "schema.registry.url": registry.url, "avro.framing": "header"}


class TestAvroPrimitive(SerializerTests):
    stage = "avro"
    values = TEXT
    misfits: ClassVar[tuple[object, ...]] = (1, {})

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"avro.schema": "string"}


SKIPPABLE = bytes.fromhex("502a4d1804000000aabbccdd")  # a frame of zstd and lz4 that stands for no payload


class Compression(SerializerTests):
    values = PAYLOADS
    foreign: ClassVar[tuple[bytes, ...]] = (b"", b"plain text", bytes(100), string.printable.encode())
    expects_type: ClassVar[type | None] = bytes


class TestZstd(Compression):
    stage = "zstd"
    foreign = (*Compression.foreign, SKIPPABLE)


class TestLz4(Compression):
    stage = "lz4"
    foreign = (*Compression.foreign, SKIPPABLE)


class TestGzip(Compression):
    stage = "gzip"


class TestSnappy(Compression):
    stage = "snappy"


class TestZlib(Compression):
    stage = "zlib"


class TestCompressAboveASize(Compression):
    stage = "compress"
    foreign = ()
    detects_truncation = False  # what is cut within the magic number passes as uncompressed
    expects_type = None

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"compression.type": "gzip", "compression.level": "9", "compression.min.bytes": "100"}


class TestLargeMessageInline(SerializerTests):
    stage = "large-message"
    values = st.binary(max_size=100)
    detects_truncation = False  # inline payloads are untouched

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"large.message.payload.store.class": "memory"}


class TestLargeMessageOffloaded(SerializerTests):
    stage = "large-message"
    values = PAYLOADS.filter(len)
    detects_truncation = False  # an empty or shorter reference is another kind of error

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": "0"}
