"""One record, key and value, through the chains of a configuration."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, Deserializer, EncodeError, RecordContext, Serializer, SerializerChain
from serde_chain.base import Data
from serde_chain.codec import Decoded, Encoded, Encoder, Record, RecordCodec, frozen
from serde_chain.transfer import Transfer, finish

OFFLOADING = {
    "key.serializers": "string, large-message",
    "key.deserializers": "large-message, string",
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.threshold.bytes": 10,
    "large.message.payload.store.class": "memory",
}


class Noting(Serializer[Any]):
    """Notes the contexts in which it is called."""

    takes = None

    def __init__(self) -> None:
        self.contexts: list[RecordContext] = []
        self.is_closed = False

    def __call__(self, data: Any, ctx: Any = None, /) -> bytes:
        self.contexts.append(ctx)
        return bytes(data)

    def close(self) -> None:
        self.is_closed = True


class Failing(Deserializer[Any]):
    """Cannot be configured."""

    gives = Data.BYTES

    def configure(self, config: Any, is_key: bool) -> None:
        raise ConfigError("not this one")

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        raise NotImplementedError


@given(
    key=st.none() | st.text(max_size=30),
    value=st.none() | st.binary(max_size=30),
    headers=st.lists(st.tuples(st.text(max_size=5).map("own-".__add__), st.binary(max_size=5))),
)
def test_what_was_encoded_comes_back(key: str | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
    MemoryStore.clear()
    with RecordCodec(OFFLOADING) as codec:
        kept = list(headers)
        encoded = finish(codec.encode(Record("t", value, key, headers)))
        assert isinstance(encoded, Encoded)
        assert headers == kept
        assert encoded.headers[: len(kept)] == kept
        given_headers = list(encoded.headers)
        decoded = finish(codec.decode(Record("t", encoded.value, encoded.key, given_headers, 3, 1_000, 7)))
        assert given_headers == encoded.headers
    assert decoded == Decoded(key, value, kept, 1_000)


def test_payloads_of_key_and_value_are_transfers_one_after_the_other() -> None:
    with RecordCodec(OFFLOADING) as codec:
        step = codec.encode(Record("t", bytes(100), "k" * 100))
        uploads = 0
        while isinstance(step, Transfer):
            uploads += 1
            step = step.resume(step.run())
        assert uploads == 2
        step = codec.decode(Record("t", step.value, step.key, step.headers))
        assert isinstance(step, Transfer)
        assert finish(step)[:2] == ("k" * 100, bytes(100))


def test_a_client_may_have_the_key_before_the_upload_of_the_value() -> None:
    with SerializerChain.from_config(OFFLOADING) as value:
        encoded = Encoder(None, value).encode_in_call(Record("t", bytes(100), "M 51", {"a": b"1"}))
        assert (encoded.key, encoded.headers) == (b"M 51", [("a", b"1")])
        assert isinstance(encoded.value, Transfer)
        assert finish(encoded.value).startswith(b"memory:")
        assert len(encoded.headers) > 1


def test_stages_get_the_record_around_their_data() -> None:
    of_key, of_value = Noting(), Noting()
    Encoder(SerializerChain([of_key]), SerializerChain([of_value])).encode(
        Record("t", b"value", b"key", [("a", b"1")], 3, 1_000)
    )
    assert of_key.contexts == [RecordContext("t", "key", [("a", b"1")], None, 3, 1_000)]
    assert of_value.contexts == [RecordContext("t", "value", [("a", b"1")], b"key", 3, 1_000)]
    assert of_key.contexts[0].headers is of_value.contexts[0].headers


@pytest.mark.parametrize("kind", [bytearray, lambda data: memoryview(bytearray(data))])
def test_buffers_that_may_change_are_copied(kind: Any) -> None:
    value, key = kind(b"x" * 100), kind(b"key")
    with SerializerChain.from_config(OFFLOADING) as chain:
        encoded = Encoder(None, chain).encode_in_call(Record("t", value, key))
        value[:1], key[:1] = b"y", b"y"
        reference = bytes(finish(encoded.value)).decode()
        assert encoded.key == b"key"
    assert bytes(MemoryStore().download(reference)) == b"x" * 100


def test_buffers_that_cannot_change_are_not_copied() -> None:
    view = memoryview(b"data")
    assert frozen(view) is view
    assert frozen("text") == "text"


def test_chains_are_built_when_a_record_of_their_direction_comes() -> None:
    with RecordCodec({"value.serializers": "string", "value.deserializers": [Failing]}) as codec:
        assert codec.encode(Record("t", "text", "key")) == Encoded(b"key", b"text", [])
        for _ in range(2):
            with pytest.raises(ConfigError, match="not this one"):
                codec.decode(Record("t", b"text"))


def test_a_codec_closes_its_chains() -> None:
    stage = Noting()
    with RecordCodec({"value.serializers": [stage]}) as codec:
        codec.encode(Record("t", b"value"))
        assert not stage.is_closed
    assert stage.is_closed


def test_a_codec_without_chains_passes_records_on() -> None:
    with RecordCodec({}) as codec:
        assert codec.encode(Record("t", b"value", None)) == Encoded(None, b"value", [])
        assert codec.decode(Record("t", b"value", b"key", None, 0, 5, 1)) == Decoded(b"key", b"value", [], 5)


def test_a_misspelt_key_is_refused_at_once(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("value.serializers = large-message\nlarge.message.treshold.bytes = 5\n")
    with pytest.raises(ConfigError, match=r"large\.message\.threshold\.bytes"):
        RecordCodec(config)


def test_an_error_names_field_and_topic() -> None:
    with RecordCodec({"key.serializers": "integer"}) as codec, pytest.raises(EncodeError, match="topic=t, field=key"):
        codec.encode(Record("t", b"value", "no number"))
