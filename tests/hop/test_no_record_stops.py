"""No record stops a consumer of hop's format; of all other stores and formats: tests/clients."""

import json
import uuid

import confluent_kafka
import pytest

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker
from tests.hop.conftest import USER, Clients, NewTopic
from tests.hostile import PASSING, Record, assert_the_last_is_delivered, mutated, policy_config, urls, write

pytestmark = pytest.mark.filterwarnings("ignore:Large message offload service is bare HTTP")

LARGE = 2_000_000


@pytest.mark.full
@pytest.mark.parametrize("policy", PASSING)
def test_no_placeholder_stops_a_consumer(
    broker: KafkaBroker, new_topic: NewTopic, client: Clients, policy: str
) -> None:
    topic, dead = new_topic(), new_topic()
    secret = new_topic(prefix="secret-", bob="READ WRITE DESCRIBE DESCRIBE_CONFIGS")
    for user, name, value in (("alice", topic, b"1" * LARGE), ("bob", secret, b"2" * LARGE)):
        producer = client(Producer, user=user)
        producer.produce(name, value)
        assert producer.flush(30) == 0
    (good, headers), (others, _) = (read(broker, name) for name in (topic, secret))
    bad: list[Record] = [
        (json.dumps({"url": url}).encode(), headers)
        for url in (*urls(json.loads(good)["url"], topic), "https://h/msg/1")
    ]
    write(broker.client_config(), topic, [(others, headers), *bad, *mutated(good, headers)])
    producer = client(Producer)
    producer.produce(topic, b"last" * LARGE)
    assert producer.flush(30) == 0
    config = {
        **broker.client_config(USER),
        "log_level": 0,
        "group.id": f"{USER}-{uuid.uuid4()}",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "hop",
        **policy_config(policy, dead),
    }
    found = assert_the_last_is_delivered(broker, "Consumer", config, topic, b"last" * LARGE)
    assert b"1" * LARGE in found
    assert b"2" * LARGE not in found


def read(broker: KafkaBroker, topic: str) -> Record:
    """The only record of a topic, as it is."""
    reader = confluent_kafka.Consumer({**broker.client_config(), "group.id": "good"})
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    [message] = reader.consume(1, 30)
    reader.close()
    return message.value() or b"", [*(message.headers() or [])]
