"""Numbers of varying length against protobuf's own."""

import pytest
from google.protobuf.internal import decoder, encoder
from hypothesis import given
from hypothesis import strategies as st

from serde_chain.wire import varint


@given(st.integers(0, (1 << 64) - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_numbers_are_protobufs(number: int, before: bytes, behind: bytes) -> None:
    pieces: list[bytes] = []
    encoder._EncodeVarint(pieces.append, number)
    encoded = varint.encode(number)
    assert encoded == b"".join(pieces)
    data = before + encoded + behind
    end = len(before) + len(encoded)
    assert varint.read(data, len(before)) == decoder._DecodeVarint(data, len(before)) == (number, end)


@pytest.mark.parametrize(("number", "unsigned"), [(0, 0), (-1, 1), (1, 2), (-2, 3), ((1 << 63) - 1, (1 << 64) - 2)])
def test_zigzag(number: int, unsigned: int) -> None:
    assert varint.to_zigzag(number) == unsigned
    assert varint.from_zigzag(unsigned) == number


@pytest.mark.parametrize(
    ("data", "most_bytes"),
    [(b"", 10), (b"\x80", 10), (b"\xff" * 11, 10), (b"\x80\x80\x01", 2), (b"\x80" * 10 + b"\x01", 10)],
)
def test_what_is_cut_off_or_too_long(data: bytes, most_bytes: int) -> None:
    with pytest.raises(ValueError, match="truncated, or has more than"):
        varint.read(data, 0, most_bytes)


@pytest.mark.full
def test_no_more_bytes_than_allowed() -> None:
    assert varint.read(b"\x80\x80\x01", 0, 3) == (1 << 14, 3)
    assert varint.read(b"\xff" * 9 + b"\x01") == ((1 << 64) - 1, 10)
