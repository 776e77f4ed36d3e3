"""Compression: mixed codecs, bombs, small payloads."""

import bz2
import gzip
import json
import lzma
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.block
import lz4.frame
import pytest
import zstandard

from serde_chain import ConfigError, DecodeError, DeserializerChain, SerializerChain
from serde_chain.codecs import CODECS
from serde_chain.config import resolve

LIMIT = 1_000_000
BOMB = bytes(200 * LIMIT)


def writer(stage: str = "compress", **config: object) -> SerializerChain:
    return SerializerChain.from_config({"value.serializer": stage, **_dotted(config)})


def reader(stage: str = "compress", **config: object) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializer": stage, **_dotted(config)})


def _dotted(config: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "."): value for key, value in config.items()}


@pytest.mark.parametrize("written", CODECS)
@pytest.mark.parametrize("read", ["compress", *CODECS])
def test_codecs_mix_in_one_topic(written: str, read: str) -> None:
    if written != "zlib" or read == "zlib":
        assert reader(read)(writer(written)(b"payload")) == b"payload"
    assert reader(compression_type=written)(writer(compression_type=written)(b"payload")) == b"payload"


@pytest.mark.parametrize("codec", CODECS)
def test_equal_payloads_give_equal_bytes(codec: str) -> None:
    payload = bytes(range(256)) * 100
    assert writer(codec)(payload) == writer(codec)(bytearray(payload))


@pytest.mark.parametrize(
    ("codec", "levels"),
    [("zstd", (-5, 1, 19)), ("lz4", (-3, 0, 12)), ("gzip", (0, 1, 9)), ("zlib", (0, 1, 9)), ("snappy", ())],
)
def test_levels(codec: str, levels: tuple[int, ...]) -> None:
    payload = bytes(range(256)) * 1000
    for level in levels:
        assert reader(codec)(writer(codec, compression_level=level)(payload)) == payload


# Bombs


def streamed_zstd(payload: bytes) -> bytes:
    stream = zstandard.ZstdCompressor().compressobj()
    return stream.compress(payload) + stream.flush()


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "zstd with content size": zstandard.ZstdCompressor().compress,
    "zstd without": streamed_zstd,
    "lz4 with content size": lambda payload: lz4.frame.compress(payload, store_size=True),
    "lz4 without": lambda payload: lz4.frame.compress(payload, store_size=False),
    "gzip": lambda payload: gzip.compress(payload, 9),
    "zlib": lambda payload: zlib.compress(payload, 9),
    "snappy": lambda payload: bytes(cramjam.snappy.compress(payload)),
}


@pytest.mark.parametrize("how", BOMBS)
def test_a_bomb_is_refused_before_it_takes_memory(how: str) -> None:
    bomb = BOMBS[how](BOMB)
    read = reader("zlib" if how == "zlib" else "compress", compression_max_output_bytes=LIMIT)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=r"more than 1000000 bytes.*compression\.max\.output\.bytes"):
            read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 40 * LIMIT
    finally:
        tracemalloc.stop()


REFUSING = """
import sys
from serde_chain import DecodeError, DeserializerChain, RecordContext
from tests.memory import peak_bytes, reset_peak

limit, name, bomb = int(sys.argv[1]), sys.argv[2], sys.stdin.buffer.read()
chain = DeserializerChain.from_config({"value.deserializers": f"{name}, bytes", "compression.max.output.bytes": limit})
def refuse():
    try:
        chain(bomb, RecordContext("alerts", "value", []))
    except DecodeError:
        return
    raise SystemExit("the bomb was not refused")
before = reset_peak()
for _ in range(3):
    refuse()
print(peak_bytes() - before)
"""


@pytest.mark.full
@pytest.mark.parametrize("how", BOMBS)
def test_a_refused_bomb_takes_its_limit_once(how: str) -> None:
    """In a chain, whose fast path and loop both try it; the first attempt is gone before the second."""
    limit = 64 << 20
    name = "zlib" if how == "zlib" else "compress"
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, str(limit), name],
        input=BOMBS[how](bytes(limit + (8 << 20))),
        stdout=subprocess.PIPE,
        timeout=120,
        check=True,
    )
    assert int(done.stdout) <= limit * 1.1


@pytest.mark.parametrize("how", BOMBS)
def test_the_limit_is_exact(how: str) -> None:
    read = reader("zlib" if how == "zlib" else "compress", compression_max_output_bytes=LIMIT)
    assert read(BOMBS[how](BOMB[:LIMIT])) == BOMB[:LIMIT]
    with pytest.raises(DecodeError, match="more than 1000000 bytes"):
        read(BOMBS[how](BOMB[: LIMIT + 1]))


@pytest.mark.parametrize("size", [2**40, 2**63, 2**64 - 2])
def test_a_frame_that_lies_about_its_size_is_refused(size: int) -> None:
    # A single-segment zstd frame with an 8-byte content size, and an LZ4 frame with a content size.
    zstd = b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"
    honest = bytearray(lz4.frame.compress(b"x" * 100, store_size=True))
    honest[6:14] = size.to_bytes(8, "little")
    snappy = CODECS["snappy"].magic + b"\x80\x08\x00\x00" + size.to_bytes(8, "little")
    for frame in (zstd, bytes(honest), snappy, snappy + b"\x01\x05\x00\x00" + bytes(4) + b"x"):
        with pytest.raises(DecodeError):
            reader()(frame)


@pytest.mark.parametrize("codec", CODECS)
def test_what_follows_a_frame_is_refused(codec: str) -> None:
    frame = writer(codec)(b"payload")
    for more in (b"x", bytes(10), frame):
        with pytest.raises(DecodeError):
            reader(codec)(frame + more)


def test_a_snappy_stream_cut_between_chunks_is_noticed() -> None:
    frame = writer("snappy")(bytes(200_000))
    first = 10 + 12 + 4 + int.from_bytes(frame[23:26], "little")
    with pytest.raises(DecodeError, match="declares 200000"):
        reader("snappy")(frame[:first])


# Small payloads


@pytest.mark.parametrize("codec", CODECS)
def test_small_payloads_pass_uncompressed_when_so_configured(codec: str) -> None:
    write, read = writer(codec, compression_min_bytes=100), reader(codec, compression_min_bytes=100)
    assert write(bytes(99)) == bytes(99)
    assert write(bytes(100)) != bytes(100)
    for payload in (b"", b"x", bytes(99), bytes(100)):
        assert read(write(payload)) == payload


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("other", CODECS)
def test_small_payloads_that_look_compressed_are_compressed(codec: str, other: str) -> None:
    write, read = writer(codec, compression_min_bytes=1000), reader(codec, compression_min_bytes=1000)
    if other == "zlib" != codec:
        return  # not recognized, so it passes
    begin = CODECS[other].magic or writer(other)(b"")[:2]
    for payload in (begin, begin + b"rest", writer(other)(b"twice")):
        assert write(payload) != payload
        assert read(write(payload)) == payload


def test_text_that_begins_like_a_zlib_header_passes() -> None:
    # What topics with compression.min.bytes contained before there was a codec zlib.
    settings = {"compression_min_bytes": 100}
    for codec in ("zstd", "gzip"):
        assert writer(codec, **settings)(b"x^2 + 1") == b"x^2 + 1"
        assert reader(codec, **settings)(b"x^2 + 1") == b"x^2 + 1"
    for text in (b"x^2 + 1", b"x", b"plain"):
        assert reader("zlib", **settings)(writer("zlib", **settings)(text)) == text
    with pytest.raises(DecodeError, match="zlib frame is truncated"):
        reader("zlib", **settings)(zlib.compress(b"text")[:-1])


def test_a_preset_dictionary_is_refused() -> None:
    stream = zlib.compressobj(zdict=b"payload")
    with pytest.raises(DecodeError, match="zlib frame is truncated or corrupt"):
        reader("zlib")(stream.compress(b"payload") + stream.flush())


def test_without_the_setting_uncompressed_data_is_refused() -> None:
    data = writer(compression_min_bytes=100)(b"small")
    with pytest.raises(DecodeError, match=r"not compressed: no codec begins with 736d616c.*compression\.min\.bytes"):
        reader()(data)


@pytest.mark.parametrize(
    ("codec", "data", "said"),
    [
        ("snappy", bytes(cramjam.snappy.compress_raw(b"payload")), "Raw blocks, as of python-snappy's compress"),
        ("snappy", b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01", "snappy-java's own framing"),
        ("lz4", lz4.block.compress(b"payload"), "Raw blocks, as of lz4.block"),
        ("lz4", b"\x02\x21\x4c\x18\x08\x00\x00\x00payload", "lz4's legacy format"),
        ("zstd", b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + zstandard.compress(b"payload"), "skippable frame, as of pzstd"),
        ("zstd", b"\x5e\x2a\x4d\x18\x00\x00\x00\x00", "skippable frame"),
        ("gzip", zlib.compress(b"payload"), "the stage is zlib"),
        ("gzip", bz2.compress(b"payload"), "begin like bzip2"),
        ("zstd", lzma.compress(b"payload"), "begin like xz"),
    ],
)
def test_other_formats_of_compression_are_named(codec: str, data: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        reader(codec)(data)


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads the process's memory from /proc")
def test_decompression_takes_the_payload_once() -> None:
    size = 100_000_000
    script = Path(__file__).with_name("measure_codecs.py")
    command = [sys.executable, str(script), str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    for name, taken in json.loads(done.stdout).items():
        # Streaming zstd gives up to 32 MB at a step.
        assert taken < size + (36 << 20 if name == "zstd" else 8 << 20), name


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 65_535, 1 << 20, (1 << 20) + 1, 5_000_001])
def test_payloads_of_many_pieces(codec: str, size: int) -> None:
    payload = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    frame = writer(codec)(payload)
    assert reader(codec)(frame) == payload
    assert reader(codec)(BOMBS[{"zstd": "zstd without", "lz4": "lz4 without"}.get(codec, codec)](payload)) == payload
    for cut in (1, 5, len(frame) // 2):
        with pytest.raises(DecodeError):
            reader(codec)(frame[:-cut])


def test_the_kafka_producer_shares_its_codec_with_readers_and_not_with_writers() -> None:
    codec = {"compression.type": "lz4"}
    reads, writes = {"value.deserializers": "compress, json"}, {"value.serializers": "json, compress"}
    assert resolve({**codec, **reads}).client == codec
    assert resolve({**codec, **reads, **writes}).client == {}


def test_a_reader_takes_the_codec_as_an_option_of_its_item() -> None:
    item = {"class": "compress", "compression.type": "lz4"}
    write = SerializerChain.from_config({"value.serializers": [item]})
    read = DeserializerChain.from_config({"value.deserializers": [item]})
    assert read(write(b"abc")) == b"abc"
    with pytest.raises(ConfigError, match=r"zstd has no option 'compression\.type'"):
        DeserializerChain.from_config({"value.deserializers": [{**item, "class": "zstd"}]})
