"""The envelope of encrypted payloads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain.stages.encryption import envelope
from serde_chain.stages.encryption.envelope import GCM, KEY_ID, SIV

KEY_IDS = st.from_regex(KEY_ID, fullmatch=True)


@given(KEY_IDS, st.binary(min_size=16, max_size=16), st.binary(min_size=12, max_size=12), st.binary(min_size=16))
def test_what_is_put_together_is_taken_apart(key_id: str, salt: bytes, nonce: bytes, sealed: bytes) -> None:
    head = envelope.head(GCM, key_id, salt)
    for kind in (bytes, bytearray, memoryview):
        found = envelope.split(kind(head + nonce + sealed))
        assert found == (GCM, head, nonce, len(head) + 12)
    assert envelope.key_of(head) == (key_id, salt)
    head = envelope.head(SIV, key_id)
    assert envelope.split(head + sealed) == (SIV, head, b"", len(head))
    assert envelope.key_of(head) == (key_id, b"")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "begins with nothing"),
        ("ce", "begins with ce"),
        ("0e02", "begins with 0e02"),
        ("ce02" + 60 * "00", "unknown version 2"),
        ("ce01", "truncated after 2"),
        ("ce0103016b" + 60 * "00", "unknown mode 3"),
        ("ce0102016b" + 15 * "00", "truncated after 20"),
        ("ce0101016b" + 43 * "00", "truncated after 48"),
        ("ce010200" + 60 * "00", "key id is empty"),
        ("ce0102ff" + 300 * "6b", "longer than 128"),
        ("ce0102020a6b" + 60 * "00", "characters"),
    ],
)
def test_other_bytes_are_refused(data: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        envelope.key_of(envelope.split(bytes.fromhex(data)).head)


@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda rest: b"\xce\x01" + rest))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = envelope.split(data)
        envelope.key_of(found.head)
    except ValueError:
        return
    assert data.startswith(found.head)
    assert found.start + 16 <= len(data)


def test_associated_data_differ_by_topic_field_and_head() -> None:
    heads = [envelope.head(GCM, "k", bytes(16)), envelope.head(GCM, "k2", bytes(16)), envelope.head(SIV, "k")]
    found = {
        envelope.associated_data(head, topic, is_key=is_key)
        for head in heads
        for topic in ("t", "t2")
        for is_key in (True, False)
    }
    assert len(found) == 12
