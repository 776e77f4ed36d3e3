"""The kafka store, on a real broker."""

import uuid
from collections.abc import Mapping

import confluent_kafka
import pytest

from payload_stores.kafka.chunks import Publication
from payload_stores.testing import PayloadStoreTests
from serde_chain.testing.services import KafkaBroker
from tests.hypothesis_profiles import examples


def chunks_of(broker: KafkaBroker, reference: str) -> list[confluent_kafka.Message]:
    """The chunks of a payload, by a plain consumer that knows nothing of the store's code."""
    _, topic, partition, offsets, path = reference.removeprefix("kafka://").split("/", 4)
    first, last = map(int, offsets.split("-"))
    # A fetch at the end of the partition says so after its wait.
    reading = {"group.id": str(uuid.uuid4()), "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    consumer = confluent_kafka.Consumer({**broker.client_config(), **reading})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, int(partition), first)])
        chunks = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None or (message.offset() or 0) > last:
                break
            if (message.key() or b"").startswith(f"{path}/".encode()):
                chunks.append(message)
            if message.offset() == last:
                break
        return chunks
    finally:
        consumer.close()


class TestKafkaStore(PayloadStoreTests):
    store_class = "kafka"
    deletes_later = True
    machine_examples = examples(10)  # each opens clients anew

    @pytest.fixture
    def config(self, config: Mapping[str, object]) -> Mapping[str, object]:
        return config

    @pytest.fixture(autouse=True)
    def _reader(self, broker: KafkaBroker) -> None:
        self.broker = broker

    def raw_read(self, reference: str) -> bytes:
        chunks = chunks_of(self.broker, reference)
        assert chunks
        assert all(chunk.value() is not None for chunk in chunks)
        return b"".join(chunk.value() or b"" for chunk in chunks)

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        payload_topic = reference.split("/")[3]
        path = f"{self.topic}/{name}"
        if "\udcff" in name:
            raise ValueError("is no text")
        producer = confluent_kafka.Producer(self.broker.client_config())
        for key, value, headers in Publication(path, 1000).records([data], len(data)):
            producer.produce(payload_topic, bytes(value or b""), key, headers=list(headers))
        assert producer.flush(30) == 0
