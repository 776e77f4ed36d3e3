"""Messages whose whole record lies in a store: what of them is the store's, and what stays."""

from typing import Any

import confluent_kafka
import pytest

from payload_stores import PublishContext, StoredRecord
from payload_stores.base import Buffer, PayloadStore
from serde_chain import DecodeError, DeserializerChain
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.codec import Decoder
from serde_chain.transfer import finish


class Shelf(PayloadStore):
    """Has one record."""

    scheme = "shelf"
    record = StoredRecord(b'"value"', (("a", b"1"), ("_format", b"json")), b"stored key", 1_234)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        raise NotImplementedError

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        raise NotImplementedError

    def download_record(self, reference: str) -> StoredRecord:
        return self.record


def message(**more: object) -> Any:
    given: dict[str, Any] = {"value": b'{"url": "shelf://x/msg/1"}', "headers": [("_format", b"external")], **more}
    return confluent_kafka.Message(topic="t", partition=3, offset=7, key=b"key", timestamp=(2, 99), **given)


def decoder(store: PayloadStore, key: str | None = "string") -> Decoder:
    config: dict[str, object] = {
        "value.deserializers": "large-message, json",
        "large.message.payload.store.class": store,
    }
    key_chain = key and DeserializerChain.from_config({"key.deserializer": key}, is_key=True)
    return Decoder(key_chain or None, DeserializerChain.from_config(config))


def test_key_headers_and_timestamp_are_those_that_are_stored() -> None:
    found = finish(decode_message(message(), decoder(Shelf()))).finish()
    assert (found.key(), found.value(), found.headers()) == ("stored key", "value", list(Shelf.record.headers))
    assert found.timestamp() == (2, 1_234)
    assert (found.topic(), found.partition(), found.offset(), found.error()) == ("t", 3, 7, None)


def test_what_is_not_stored_stays() -> None:
    store = Shelf()
    store.record = StoredRecord(b'"value"')
    raw = message()
    found = finish(decode_message(raw, decoder(store))).finish()
    assert found is raw
    assert (found.key(), found.value(), found.headers(), found.timestamp()) == ("key", "value", None, (2, 99))


def test_without_a_chain_of_keys_the_stored_key_is_given_as_bytes() -> None:
    assert finish(decode_message(message(), decoder(Shelf(), None))).finish().key() == b"stored key"


@pytest.mark.parametrize("key", ["integer", "string"])
def test_a_record_that_cannot_be_read_stays_as_it_came(key: str) -> None:
    store = Shelf()
    store.record = StoredRecord(b'"value"' if key == "integer" else b"junk", (("_format", b"json"),), b"no integer")
    raw: Any = message()
    with pytest.raises(DecodeError, match=r"partition=3, offset=7"):
        finish(decode_message(raw, decoder(store, key)))
    assert raw.value() == b'{"url": "shelf://x/msg/1"}'
    assert raw.headers() == [("_format", b"external")]
