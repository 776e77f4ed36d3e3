"""Avro object container files, one per record, as hop's ``avro`` messages are."""

import bz2
import io
import json
import lzma
import tracemalloc
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam
import fastavro
import pytest
import zstandard
from hop.models import AvroBlob
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import DecodeError, DeserializerChain, SerializerChain
from serde_chain.stages.avro import container
from serde_chain.stages.avro.container import encode_long
from serde_chain.testing import SerializerTests

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "pixels", "type": "bytes", "default": ""},
    ],
}
WRITE = {"value.serializers": "avro", "avro.schema": SCHEMA, "avro.framing": "container"}
READ = {"value.deserializers": "avro", "avro.framing": "container"}
ALERT = {"id": 1, "note": "a", "pixels": b"\0\1"}


def file(records: list[Any], schema: Any = SCHEMA, **more: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, **more)
    return buffer.getvalue()


def read(data: bytes, **more: Any) -> Any:
    with DeserializerChain.from_config({**READ, **more}) as chain:
        return chain(data)


class TestAvroFile(SerializerTests):
    stage = "avro"
    values = st.fixed_dictionaries(
        {"id": st.integers(-(2**63), 2**63 - 1), "note": st.none() | st.text(), "pixels": st.binary(max_size=200)}
    )
    foreign = (b"", b"Obj", b"Obj\x01", b"something else", b"Obj\x01\x02")

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"avro.schema": SCHEMA, "avro.framing": "container"}


def test_hop_client_reads_what_we_write() -> None:
    chain = SerializerChain.from_config(WRITE)
    for alert in (ALERT, {"id": 2, "note": None, "pixels": bytes(100_000)}):
        found = AvroBlob.deserialize(chain(alert))
        assert found.content == alert
        assert found.schema["name"] == "Alert"


def test_we_read_what_hop_client_writes() -> None:
    for content in ({"a": 1, "b": [1.5, None], "c": {"d": "e"}}, [1, 2, 3], "text", ALERT):
        assert read(bytes(AvroBlob(content))) == content
    assert read(bytes(AvroBlob([ALERT, ALERT], SCHEMA, single_record=False))) == [ALERT, ALERT]
    assert read(bytes(AvroBlob([ALERT], SCHEMA, single_record=False))) == ALERT


def test_compressed_files_and_several_blocks() -> None:
    assert read(file([ALERT] * 50, codec="deflate", sync_interval=100)) == [ALERT] * 50


def test_reader_schema() -> None:
    schema = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "double"}]}
    assert read(file([ALERT]), **{"avro.reader.schema": json.dumps(schema)}) == {"id": 1.0}


def test_what_follows_a_file_is_refused() -> None:
    with pytest.raises(DecodeError):
        read(file([ALERT]) + b"\0")


def doubling(levels: int) -> dict[str, Any]:
    """A record of no bytes that has two to the power of so many parts."""
    schema: Any = "null"
    for level in range(levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"r{level - 1}" if level else "null"}]
        schema = {"type": "record", "name": f"r{level}", "fields": fields}
    return dict(schema)


def nested(levels: int) -> Any:
    schema: Any = "null"
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def header(schema: str, codec: bytes = b"null") -> bytes:
    def text(data: bytes) -> bytes:
        size, encoded = len(data) << 1, bytearray()
        while size > 0x7F:
            encoded.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([*encoded, size]) + data

    return (
        b"Obj\x01\x04"
        + b"".join(map(text, (b"avro.schema", schema.encode(), b"avro.codec", codec)))
        + b"\0"
        + bytes(16)
    )


@pytest.mark.parametrize(
    "data",
    [
        header(json.dumps(doubling(40))) + b"\x02\x00" + bytes(16),
        header(json.dumps(nested(180))) + b"\x02\x02\x00" + bytes(16),
        header("[" * 5000) + b"\x02\x00" + bytes(16),
        header('"null"') + b"\xfe\xff\xff\xff\xff\xff\x7f\x00" + bytes(16),
        header('{"type": "array", "items": "null"}') + b"\x02\x14\xfe" + b"\xff" * 6 + b"\x7f\0\0" + bytes(16),
        header('{"type": "record", "name": "r", "fields": [{"name": "n", "type": ["null", "r"]}]}')
        + b"\x02\xa0\x8d\x06" + b"\x02" * 50_000 + bytes(16),
        header('"bytes"', b"deflate") + b"\x02\x04\xff\xff" + bytes(16),
        header('{"type": "nothing"}') + b"\x02\x00" + bytes(16),
        header("1") + b"\x02\x00" + bytes(16),
    ],
)  # fmt: skip
def test_files_that_mean_harm(data: bytes) -> None:
    try:
        read(data)
    except DecodeError:
        return
    assert b'"items": {' in data, "only nesting that is no deeper than allowed may be read"


def test_parts_count_for_every_record_and_block() -> None:
    # 1,100 bytes of which 6 million parts were built: each bound alone was kept.
    schema = json.dumps(doubling(11)).replace(" ", "")
    data = header(schema) + b"\xf0\x2e\x00" + bytes(16)  # 3,000 records of no bytes
    assert len(data) < 1200
    for attack in (data, header(schema) + (b"\xc8\x01\x00" + bytes(16)) * 30):
        tracemalloc.start()
        with pytest.raises(DecodeError, match="parts"):
            read(attack)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
        tracemalloc.stop()


@pytest.mark.full
def test_large_schemas_that_come_with_records_are_not_held() -> None:
    """Schemas of 3,000 fields each, parsed while memory is traced."""

    def of(number: int) -> bytes:
        fields = [{"name": f"a{at}", "type": ["null", "int"]} for at in range(3000)]
        record = dict.fromkeys(field["name"] for field in fields)
        return file([record], {"type": "record", "name": f"R{number}", "fields": fields})

    files = [of(number) for number in range(12)]
    with DeserializerChain.from_config(READ) as chain:
        chain(files[0])
        tracemalloc.start()
        try:
            for data in files:
                chain(data)
            assert tracemalloc.get_traced_memory()[0] < 4 << 20
        finally:
            tracemalloc.stop()


def test_schemas_that_name_types_many_times_are_bounded_by_their_own_length() -> None:
    with pytest.raises(DecodeError, match="characters"):
        read(header(json.dumps(doubling(14))) + b"\x02\x00" + bytes(16))


@pytest.mark.full
def test_many_small_records_in_one_file() -> None:
    empty = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
    assert read(file([{"n": None}] * 500, empty)) == [{"n": None}] * 500
    wrapped: Any = "string"
    for level in range(6):
        wrapped = {"type": "record", "name": f"W{level}", "fields": [{"name": "v", "type": wrapped}]}
    value: Any = "twenty bytes of text"
    for _ in range(6):
        value = {"v": value}
    assert read(file([value] * 30_000, wrapped)) == [value] * 30_000


GOOD = file([ALERT, ALERT])


@given(st.data())
def test_changed_bytes_give_records_or_a_decode_error(data: st.DataObject) -> None:
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        read(bytes(changed))


FILES = Path(__file__).parent / "files"


@pytest.mark.parametrize("path", sorted(FILES.glob("*.avro")), ids=lambda path: path.stem)
def test_files_of_apache_avro(path: Path) -> None:
    found = read(path.read_bytes())
    assert found == list(fastavro.reader(io.BytesIO((FILES / "weather.avro").read_bytes())))
    assert len(found) == 5


def compressed(block: bytes, codec: str) -> bytes:
    """A container file of one block, as other clients compress it."""
    data = {
        "null": lambda: block,
        "deflate": lambda: zlib.compress(block)[2:-4],
        "snappy": lambda: bytes(cramjam.snappy.compress_raw(block)) + zlib.crc32(block).to_bytes(4, "big"),
        "bzip2": lambda: bz2.compress(block),
        "xz": lambda: lzma.compress(block),
        "zstandard": lambda: zstandard.ZstdCompressor(write_content_size=False).compress(block),
    }[codec]()
    head = b'Obj\1\4\x16avro.schema\x0e"bytes"\x14avro.codec' + encode_long(len(codec)) + codec.encode() + b"\0"
    return head + bytes(16) + b"\2" + encode_long(len(data)) + data + bytes(16)


CODECS = ["null", "deflate", "snappy", "bzip2", "xz", "zstandard"]


@pytest.mark.parametrize("codec", CODECS)
def test_codecs(codec: str) -> None:
    for content in (b"", b"x", bytes(range(256)) * 1000):
        data = compressed(encode_long(len(content)) + content, codec)
        assert read(data) == content
        assert DeserializerChain.from_config(READ).to_arrow([data], topic="t").to_pylist() == [content]


@pytest.mark.parametrize("codec", CODECS)
def test_blocks_that_are_damaged(codec: str) -> None:
    whole = compressed(encode_long(3000) + bytes(3000), codec)
    start = whole.index(bytes(16)) + 16
    for at in (start + 2, start + 4, (start + len(whole)) // 2, len(whole) - 18):
        for data in (
            whole[:at],
            whole[:at] + whole[at + 1 :],
            whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :],
        ):
            with suppress(DecodeError):  # without a checksum, another value may come out
                assert codec in {"null", "deflate", "zstandard"} or read(data) == bytes(3000)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_bombs_take_no_more_than_the_limit(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_MAX_OUTPUT", 1 << 20)
    data = compressed(encode_long(30 << 20) + bytes(30 << 20), codec)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"(larger|more) than( the)? 1048576 bytes"):
            read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (12 << 20) + len(data)  # LZMA's dictionary alone takes 8 MiB


# Each has its own reader, and all have one limit.
@pytest.mark.parametrize(
    "codec", [codec if codec == "zstandard" else pytest.param(codec, marks=pytest.mark.full) for codec in CODECS[1:]]
)
def test_a_refused_bomb_takes_its_limit_once(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 64 << 20
    monkeypatch.setattr(container, "_MAX_OUTPUT", limit)
    data = compressed(encode_long(limit + 1) + bytes(limit + 1), codec)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"more|larger"):
            read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= limit * 1.1 + 2 * len(data) + (8 << 20)  # LZMA's dictionary


def test_snappy_that_claims_much_reserves_nothing() -> None:
    claim = b"\x80\x80\x80\x40"  # 128 MiB
    data = compressed(b"", "snappy").replace(b"\0" + bytes(4), claim + bytes(4))
    whole = data[: -16 - 6] + encode_long(8) + claim + bytes(4) + bytes(16)
    with pytest.raises(DecodeError):
        read(whole)


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(DecodeError, match="its codec is 'brotli', and only null, deflate, snappy"):
        read(file([ALERT]).replace(b"\x08null", b"\x0cbrotli"))


def test_a_file_without_records_is_a_list_of_none() -> None:
    assert read(file([])) == []
    assert read(file([], codec="deflate")) == []
    empty = file([])
    assert read(empty + b"\0\0" + empty[-16:]) == []
    for cut in range(len(empty)):
        with pytest.raises(DecodeError):
            read(empty[:cut])
