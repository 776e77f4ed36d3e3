"""Models in clients: records that the class refuses are dead letters as they were written."""

import base64
from typing import TYPE_CHECKING, Any

from serde_chain import DeserializerChain, RecordContext
from serde_chain.clients.dead_letters import read_dead_letter
from serde_chain.testing.services import SchemaRegistry
from tests.models.crossed import OfDataclasses, Positive

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

ENCRYPTED = {"encryption.keys": f"k1 = {base64.b64encode(bytes(32)).decode()}", "encryption.key.id": "k1"}


def test_dead_letters(
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
) -> None:
    topic, dead = new_topic(), new_topic()
    written = [OfDataclasses(1), OfDataclasses(-2, note="secret"), OfDataclasses(3)]
    producer = new_producer({**ENCRYPTED, "value.serializers": "avro, encrypt", "avro.type": OfDataclasses})
    for value in written:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    reading: dict[str, Any] = {**ENCRYPTED, "value.deserializers": "encrypt, avro"}
    policy = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead}
    consumer = new_consumer({**reading, **policy, "avro.type": Positive})
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 2)] == [Positive(id=1), Positive(id=3)]
    assert consumer.skipped == 1
    # As it was written; what it says of the error has no part of the value.
    letters = new_consumer({"value.deserializers": "bytes"})
    letters.subscribe([dead])
    (letter,) = fetch(letters, 1)
    said = dict(letter.headers())
    assert said["serde-chain-error-message"].startswith(b"Positive refuses the record: id")
    assert b"secret" not in b"".join(said.values())
    assert b"-2" not in said["serde-chain-error-message"].replace(topic.encode(), b"")
    origin = read_dead_letter(letter.headers()).origin
    assert (origin.topic, origin.offset) == (topic, 1)
    ctx = RecordContext(topic, "value", [])
    with DeserializerChain.from_config({**reading, "avro.type": OfDataclasses}) as read:
        assert read(letter.value(), ctx) == written[1]


def test_large_fields_with_a_registry(
    registry: SchemaRegistry, topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    config: dict[str, Any] = {
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.type": OfDataclasses,
        "schema.registry.url": registry.url,
        "large.fields.paths": "note",
        "large.fields.min.bytes": 100,
        "large.message.payload.store.class": "memory",
    }
    written = [OfDataclasses(1, note="n" * 1000), OfDataclasses(2, note="short"), OfDataclasses(3)]
    producer = new_producer(config)
    for value in written:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = new_consumer(config)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 3)] == written
    # In the record there is a reference.
    plain = new_consumer({"value.deserializers": "avro", "schema.registry.url": registry.url})
    plain.subscribe([topic])
    notes = [message.value()["note"] for message in fetch(plain, 3)]
    assert notes[0].startswith("memory:")
    assert notes[1:] == ["short", None]
