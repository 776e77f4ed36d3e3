"""The kafka store, on a real broker."""

import tracemalloc
import uuid
from collections.abc import Mapping

import confluent_kafka
import pytest

from payload_stores import PayloadIntegrityError, PublishContext, ids
from payload_stores.buffers import Buffer
from payload_stores.kafka import KafkaStore
from payload_stores.kafka.chunks import Publication
from payload_stores.testing import PayloadStoreTests
from serde_chain.testing.services import KafkaBroker
from tests.hypothesis_profiles import examples
from tests.payload_stores.kafka.conftest import NewStore


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


def test_a_download_takes_the_memory_of_its_payload_once(new_store: NewStore) -> None:
    store = new_store()
    size = 45_900_000  # a growing buffer has room for 51 MB then
    reference = store.publish("t", bytes(size))
    tracemalloc.start()
    try:
        assert len(store.download(reference)) == size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size + 3_000_000, "more than the payload and two chunks"


def test_chunks_are_hashed_as_they_arrive(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()
    data = bytes(range(250)) * 10_000
    reference, digest = store.publish("t", data), ids.sha256_digest(data)
    with monkeypatch.context() as patched:
        patched.delattr(ids, "sha256_digest")  # of a whole payload
        assert store.download_verified(reference, size=len(data), digest=digest) == data
        with pytest.raises(PayloadIntegrityError, match="digest"):
            store.download_verified(reference, digest=f"sha256:{0:064}")


class Reversed(KafkaStore):
    """Keeps payloads in another form."""

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return super().publish(topic, bytes(data)[::-1], context)

    def download(self, reference: str) -> bytes:
        return super().download(reference)[::-1]


def test_what_a_subclass_downloads_is_verified(config: Mapping[str, object]) -> None:
    store = Reversed()
    store.configure(config)
    try:
        reference = store.publish("t", b"payload")
        assert store.download_verified(reference, digest=ids.sha256_digest(b"payload")) == b"payload"
    finally:
        store.close()
