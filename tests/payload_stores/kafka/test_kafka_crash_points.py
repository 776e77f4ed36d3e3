"""A writer that is killed at each point of a publish, one after the other: what is readable is whole."""

import uuid
from multiprocessing.connection import Connection

import pytest

from payload_stores import PublishContext, open_store
from payload_stores.kafka import KafkaStore
from serde_chain.testing.services import KafkaBroker
from tests.chaos.cluster import Child
from tests.chaos.points import kill_at
from tests.payload_stores.kafka.test_bad_input import DATA

pytestmark = pytest.mark.full

_STEP = 17  # of some hundred points; each is a process of its own, and a producer that logs in


def _publish(connection: Connection, config: dict[str, object], point: int) -> None:
    store = open_store("kafka", config)
    store.publish("other", b"so that the clients are connected")
    kill_at(point)
    connection.send(store.publish("topic", DATA, PublishContext("content")))


def _delete(connection: Connection, config: dict[str, object], point: int) -> None:
    store = open_store("kafka", config)
    assert isinstance(store, KafkaStore)
    reference = store.publish("topic", DATA)
    connection.send(reference)
    kill_at(point)
    store.delete(reference)
    connection.send("done")


@pytest.fixture
def config(broker: KafkaBroker) -> dict[str, object]:
    name = f"payloads-{uuid.uuid4()}"
    broker.create_topic(name)
    return {**broker.client_config(), "kafka.payload.topic": name}


def test_a_writer_that_is_killed_at_any_point(config: dict[str, object]) -> None:
    """A process for each point at which it is killed."""
    store = open_store("kafka", config)
    assert isinstance(store, KafkaStore)
    killed = told = 0
    listed: dict[str, int] = {}
    for point in range(1, 2_000, _STEP):
        child = Child(_publish, config, point)
        references = child.end()
        listed = {info.reference: info.size for info in store.list("topic")}
        assert set(listed.values()) <= {len(DATA)}
        assert all(store.download(reference) == DATA for reference in listed)
        if not child.was_killed:
            assert child.process.exitcode == 0
            assert set(references) <= set(listed)
            told += 1
            break
        assert references == []
        killed += 1
    assert killed > 5
    assert told
    removed = store.remove_leftovers(0)
    assert 0 < removed < killed, "some were killed between two chunks"
    assert store.remove_leftovers(0) == 0
    assert {info.reference: info.size for info in store.list("topic")} == listed
    store.close()


def test_a_delete_that_is_killed_at_any_point_can_be_done_again(config: dict[str, object]) -> None:
    """A process for each point at which it is killed."""
    store = open_store("kafka", config)
    assert isinstance(store, KafkaStore)
    killed = 0
    for point in range(1, 2_000, _STEP * 2):
        child = Child(_delete, config, point)
        reference, *done = child.end()
        for info in store.list("topic"):
            assert store.download(info.reference) == DATA
        if not done:
            killed += 1
            store.delete(reference)
        assert list(store.list("topic")) == []
        assert store.remove_leftovers(0) == 0
        if not child.was_killed:
            break
    assert killed > 3
    store.close()
