"""Compression as Kafka's Java codecs do it, with the zero bytes that bakdata's library leaves behind a frame."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import DecodeError
from serde_chain.stages.large_message.offload_codecs import NAMES, compressor, decompress

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "golden" / "bakdata_compression.json").read_text())
PAYLOADS = {
    "empty": b"",
    "hello": b"hello",
    "5000 A": b"A" * 5000,
    "70000 bytes": bytes((31 * at + 7) & 0xFF for at in range(70_000)),
}
LIMIT = 1 << 20


@pytest.mark.parametrize("record", GOLDEN["records"], ids=lambda record: f"{record['codec']} {record['payload']}")
def test_frames_of_java_are_read(record: dict[str, Any]) -> None:
    frame = bytes.fromhex(record["hex"]).ljust(record["size"], b"\0")
    payload = PAYLOADS[record["payload"]]
    assert decompress(record["codec"], frame, LIMIT) == payload
    assert decompress(record["codec"], memoryview(frame), len(payload)) == payload


@pytest.mark.parametrize("name", NAMES)
class TestEveryCodec:
    @given(payload=st.binary(max_size=300) | st.integers(0, 100_000).map(bytes), padding=st.integers(0, 20))
    def test_what_is_compressed_comes_back(self, name: str, payload: bytes, padding: int) -> None:
        frame = compressor(name)(payload)
        assert decompress(name, frame + bytes(padding), LIMIT) == payload

    def test_only_zero_bytes_may_follow(self, name: str) -> None:
        frame = compressor(name)(b"payload" * 100)
        for rest in (b"\x01", bytes(10) + b"\x01", frame):
            with pytest.raises(DecodeError):
                decompress(name, frame + rest, LIMIT)

    def test_the_limit_holds(self, name: str) -> None:
        frame = compressor(name)(bytes(200_000))
        assert len(decompress(name, frame, 200_000)) == 200_000
        with pytest.raises(DecodeError, match="more than 199999 bytes"):
            decompress(name, frame, 199_999)

    def test_what_is_cut_off_is_refused(self, name: str) -> None:
        frame = compressor(name)(b"a payload of some length" * 9)
        # xerial's framing has no end: without its last block it is a shorter payload.
        for end in range(20 if name == "snappy" else 0, len(frame)):
            cut = frame[:end]
            if name == "snappy" and end < 20 + 3 and not cut[16:].strip(b"\0"):
                continue
            with pytest.raises(DecodeError):
                decompress(name, cut, LIMIT)

    @given(payload=st.binary(max_size=100), at=st.integers(0, 200), noise=st.binary(max_size=20))
    def test_damaged_frames_give_bytes_or_a_decode_error(
        self, name: str, payload: bytes, at: int, noise: bytes
    ) -> None:
        frame = compressor(name)(payload)
        for damaged in (noise, frame[:at] + noise + frame[at:], frame[:at] + noise + frame[at + len(noise) :]):
            try:
                decompress(name, damaged, 10_000)
            except DecodeError:
                continue

    @pytest.mark.parametrize("other", NAMES)
    def test_frames_of_other_codecs_are_refused(self, name: str, other: str) -> None:
        if name != other:
            with pytest.raises(DecodeError):
                decompress(name, compressor(other)(b"payload"), LIMIT)


def test_claims_of_snappy_are_checked_before_anything_is_given() -> None:
    bomb = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"\x00\x00\x00\x05\xff\xff\xff\xff\x0f"
    with pytest.raises(DecodeError, match="more than"):
        decompress("snappy", bomb, LIMIT)


def test_a_codec_that_is_none() -> None:
    with pytest.raises(DecodeError, match="compression 'rar' is none of gzip, snappy, lz4, zstd"):
        decompress("rar", b"Rar!", LIMIT)
