"""Messages that the chains leave unchanged are not decoded."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from serde_chain import DeserializerChain
from serde_chain.clients.confluent.messages import DecodedMessage
from serde_chain.clients.confluent.plain_poll import PlainDecoder

MEMORY = {"large.message.payload.store.class": "memory"}


def decoder(chain: str, noted: dict[int, DecodedMessage] | None = None) -> PlainDecoder:
    config = {"value.deserializers": chain, **(MEMORY if "large" in chain else {})}
    made = PlainDecoder.of(None, DeserializerChain.from_config(config), {} if noted is None else noted)
    assert made is not None
    return made


def message(value: bytes | None = b"value", **facts: Any) -> Any:
    return Message(topic="t", partition=0, offset=0, value=value, **facts)


@pytest.mark.parametrize("chain", ["bytes", "large-message, bytes"])
def test_bytes_without_headers_are_final(chain: str) -> None:
    error = message(b"end", error=KafkaError(KafkaError._PARTITION_EOF))
    assert decoder(chain).leaves([message(), message(None), error])
    assert decoder(chain).decode([message(), error])
    assert not decoder(chain).leaves([message(), message(headers=[("h", b"1")])])


def test_other_chains_decode() -> None:
    record = message()
    assert not decoder("string").leaves([record])
    assert decoder("string").decode([record])
    assert record.value() == "value"


def test_what_an_interrupted_call_has_begun_to_change_is_finished() -> None:
    record = message(headers=None)
    noted = {id(record): DecodedMessage(record, (None, b"value", None), (None, b"decoded", None), None)}
    bytes_only = decoder("bytes", noted)
    assert not bytes_only.leaves([record])
    assert bytes_only.decode([record])
    assert record.value() == b"decoded"
