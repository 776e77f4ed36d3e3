"""hop's rules for the limit of a topic, with aiokafka's producer."""

import asyncio
import logging
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from serde_chain import MessageTooLargeError
from serde_chain.clients.aiokafka import Producer
from serde_chain.testing.services import KafkaBroker
from tests.hop.conftest import NewTopic

LARGE = bytes(3_000_000)


async def send(broker: KafkaBroker, user: str, topic: str, *values: bytes) -> list[Any]:
    """Send records in hop's format; returns their metadata, or errors."""
    login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_plain_username": user, "sasl_plain_password": broker.users[user]}
    servers = {"bootstrap_servers": broker.sasl_bootstrap_servers, "security_protocol": "SASL_PLAINTEXT"}
    config = {
        **broker.client_config(user, mechanism="SCRAM-SHA-256"),
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "hop",
        "large.message.format": "hop",
    }
    async with Producer(AIOKafkaProducer(**servers, **login), config) as producer:
        sent = [await producer.send(topic, value) for value in values]
        return await asyncio.gather(*sent, return_exceptions=True)


@pytest.mark.full
def test_a_user_who_may_not_see_the_limit_does_not_offload(
    broker: KafkaBroker, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(bob="WRITE DESCRIBE")
    with caplog.at_level(logging.WARNING):
        small, *large = asyncio.run(send(broker, "bob", topic, bytes(900_000), LARGE, LARGE))
    assert small.offset == 0
    for error in large:
        assert isinstance(error, MessageTooLargeError)
        assert "DESCRIBE_CONFIGS" in str(error)
    assert len([record for record in caplog.records if "DESCRIBE_CONFIGS" in record.getMessage()]) == 1


def test_the_limit_of_the_topic_is_that_of_the_client(broker: KafkaBroker, new_topic: NewTopic, read: Any) -> None:
    topic = new_topic(5_000_000)
    sent = asyncio.run(send(broker, "alice", topic, LARGE))
    assert sent[0].offset == 0
    (message,) = read(topic, fetch_external=False)
    assert message.value() == LARGE
