"""References that are read by a chain without ``large-message``: the error says what they are."""

from typing import Any

import pytest

from serde_chain import DecodeError, DeserializerChain, RecordContext
from serde_chain.arrow import Batch

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
MARKED: list[tuple[str, list[tuple[str, bytes]], bytes]] = [
    ("large-message", [("large-message", b"true")], b"s3://bucket/alerts/1"),
    ("_format", [("_id", bytes(16)), ("_format", b"external")], b'{"url": "https://offload/msg/1"}'),
    ("__large.message.backed.value", [("__large.message.backed.value", b"\x01")], b"s3://bucket/alerts/values/1"),
]
CHAINS: list[dict[str, Any]] = [
    {"value.deserializers": "zstd, avro", "avro.schema": SCHEMA},
    {"value.deserializers": "avro", "avro.schema": SCHEMA},
    {"value.deserializers": "integer"},
]


@pytest.mark.parametrize(("name", "headers", "data"), MARKED)
@pytest.mark.parametrize("config", CHAINS)
def test_the_error_names_the_header_and_the_stage_to_add(
    config: dict[str, Any], name: str, headers: list[Any], data: bytes
) -> None:
    with DeserializerChain.from_config(config) as chain:
        with pytest.raises(DecodeError) as caught:
            chain(data, RecordContext("alerts", "value", headers))
        (in_batch,) = chain.read_batch(Batch([data], [headers], topic="alerts")).errors.values()
    for error in (caught.value, in_batch):
        assert f"its header {name} says" in error.message
        assert "Put large-message first" in str(error)
        assert error.topic == "alerts"
        assert error.stage is not None
        assert isinstance(error.__cause__, DecodeError)
        assert error.about_record


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("large-message", b"false")],
        [("large-message-key", b"true")],
        [("_format", b"blob")],
        [("__large.message.backed.value", b"\x00")],
    ],
)
def test_other_records_have_the_error_of_the_stage(headers: list[Any]) -> None:
    with DeserializerChain.from_config(CHAINS[0]) as chain, pytest.raises(DecodeError, match="not compressed"):
        chain(b"plain", RecordContext("alerts", "value", headers))


def test_keys_have_marks_of_their_own() -> None:
    with DeserializerChain.from_config({"key.deserializers": "zstd, bytes"}, is_key=True) as chain:
        with pytest.raises(DecodeError, match="its header large-message-key says"):
            chain(b"s3://bucket/alerts/1", RecordContext("alerts", "key", [("large-message-key", b"true")]))
        with pytest.raises(DecodeError, match="not compressed"):
            chain(b"s3://bucket/alerts/1", RecordContext("alerts", "key", [("large-message", b"true")]))


def test_a_chain_that_has_the_stage_says_nothing_of_it() -> None:
    config = {
        "value.deserializers": "large-message, zstd, bytes",
        "large.message.payload.store.class": "memory",
        "large.message.accept": "bakdata-headers",
    }
    with DeserializerChain.from_config(config) as chain, pytest.raises(DecodeError, match="not compressed"):
        chain(b"memory:///t/1", RecordContext("alerts", "value", [("large-message", b"true")]))
