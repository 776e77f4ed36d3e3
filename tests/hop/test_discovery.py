"""Which announcement counts, here and in hop-client: the last one in the log of ``sys.metadata``."""

import json
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from hop.io import _get_offload_server

from payload_stores import open_store
from payload_stores.hop.endpoint import METADATA_KEY, METADATA_TOPIC, Endpoint, discover
from payload_stores.offload_server.announcement import announce
from serde_chain.testing.services import KafkaBroker
from tests.hop.conftest import Hop

HOUR_MS = 3_600_000


class Announcements:
    """A broker whose ``sys.metadata`` no other test writes to."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        broker.allow("alice", ["READ", "DESCRIBE"], topic=METADATA_TOPIC)
        broker.allow("alice", ["READ"], group="*")

    def add(self, url: str | None, *, hours: float = 0, partition: int = 0) -> None:
        """Announce an endpoint, or nothing, by a clock that is ahead by some hours."""
        value = None if url is None else json.dumps({METADATA_KEY: url}).encode()
        producer = confluent_kafka.Producer(self.broker.client_config())
        at = int(time.time() * 1000 + hours * HOUR_MS)
        producer.produce(METADATA_TOPIC, value, partition=partition, timestamp=at)
        assert producer.flush(30) == 0

    def by_hop_client(self) -> str | None:
        """The endpoint that hop-client finds."""
        user = Hop(self.broker)
        found: str | None = _get_offload_server([self.broker.sasl_bootstrap_servers], user.auth)
        return found

    def here(self) -> str | None:
        """The endpoint that the store finds."""
        found = discover(self.broker.client_config("alice"), 30_000)
        return found.url if isinstance(found, Endpoint) else None


@pytest.fixture
def announcements() -> Iterator[Announcements]:
    with KafkaBroker() as broker:
        yield Announcements(broker)


@pytest.mark.full
def test_the_last_record_counts_whatever_the_clock_of_its_writer(announcements: Announcements) -> None:
    broker = announcements.broker
    broker.create_topic(METADATA_TOPIC)
    announcements.add("https://ahead.example", hours=1)
    assert announcements.here() == announcements.by_hop_client() == "https://ahead.example"
    announcements.add("https://moved.example")
    assert announcements.here() == announcements.by_hop_client() == "https://moved.example"
    # A server that moves finds that the last announcement names another endpoint; and its own, once it is announced.
    assert announce(broker.client_config(), "https://ahead.example")
    assert not announce(broker.client_config(), "https://ahead.example")
    assert announcements.here() == announcements.by_hop_client() == "https://ahead.example"
    announcements.add(None, hours=-1)
    assert announcements.here() is announcements.by_hop_client() is None
    store: Any = open_store("hop", broker.client_config("alice"))
    assert "announces no offload endpoint" in store.why_not()
    store.close()


@pytest.mark.full
def test_of_several_partitions_the_latest_of_their_last_records_counts(announcements: Announcements) -> None:
    broker = announcements.broker
    broker.create_topic(METADATA_TOPIC, 2)
    announcements.add("https://ahead.example", hours=1, partition=0)
    assert announcements.here() == announcements.by_hop_client() == "https://ahead.example"
    announcements.add("https://old.example", hours=-2, partition=0)
    announcements.add("https://new.example", hours=-1, partition=1)
    assert [announcements.here() for _ in range(3)] == ["https://new.example"] * 3
