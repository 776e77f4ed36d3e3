"""MurmurHash3 against values of the reference implementation and of bakdata's library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain.wire.murmur3 import murmur3_hex


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "029bbd41b3a7d8cb191dae486a901e5b"),
        (b"A" * 5000, "7546a5a807a92f5e73806d5f0c755565"),  # bakdata's jar 3.1.1
    ],
)
def test_hashes_are_those_of_others(data: bytes, expected: str) -> None:
    for kind in (bytes, bytearray, memoryview):
        assert murmur3_hex(kind(data)) == expected


@given(st.binary(max_size=70), st.integers(0, 69))
def test_every_byte_counts(data: bytes, at: int) -> None:
    if at < len(data):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert murmur3_hex(changed) != murmur3_hex(data)
    assert murmur3_hex(data + b"\0") != murmur3_hex(data)
