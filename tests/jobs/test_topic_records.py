"""How much of a topic the local jobs hold at a time."""

import time
import tracemalloc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.jobs.local.topic_records import read_records
from serde_chain.jobs.topic_bounds import READ_COMMITTED
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.conftest import NewTopic

# What the client keeps ready, and one more fetch, of a record.
RECORD = 8_000_000
BATCH = (16 << 20) + RECORD
RECORDS = 20


@pytest.mark.full
def test_large_records_are_held_as_far_as_the_clients_queue_reaches(
    broker: KafkaBroker, new_topic: "NewTopic", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is up to a hundred records; of these there are 160 MB."""
    topic = new_topic(1, {"max.message.bytes": "10000000"})
    config = broker.client_config()
    with confluent_kafka.Producer({**config, "message.max.bytes": 10_000_000}) as producer:
        for _ in range(RECORDS):
            producer.produce(topic, bytes(RECORD))
        assert producer.flush(60) == 0

    def take(self: PartitionReader, *arguments: Any) -> Any:
        time.sleep(0.3)  # the client fetches meanwhile: an unlimited queue would have all records
        return original(self, *arguments)

    original: Callable[..., Any] = PartitionReader.take
    monkeypatch.setattr(PartitionReader, "take", take)
    tracemalloc.start()
    try:
        records = read_records(config, {(topic, 0): 0}, {(topic, 0): RECORDS}, READ_COMMITTED)
        assert [len(record.value or b"") for record in records] == [RECORD] * RECORDS
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * BATCH  # the one before is held until its successor is there
