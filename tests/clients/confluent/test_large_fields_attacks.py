"""``large-fields`` in clients: reused objects, failing rows, interrupts, stores that go away."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from payload_stores import PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import Consumer, Producer
from serde_chain.testing.services import KafkaBroker, S3Server
from serde_chain.wire.large_fields import HEADER

LARGE = "x" * 9000
SECONDS = 60


class Gate(MemoryStore):
    """Uploads and downloads wait until it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.is_open.set()
        self.asked = threading.Event()

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        self.asked.set()
        assert self.is_open.wait(SECONDS)
        return super().publish(topic, data, context)

    def download(self, reference: str) -> Any:
        self.asked.set()
        assert self.is_open.wait(SECONDS)
        return super().download(reference)


@pytest.fixture
def store() -> Iterator[Gate]:
    MemoryStore.clear()
    store = Gate()
    yield store
    store.is_open.set()
    MemoryStore.clear()


@pytest.fixture
def config(broker: KafkaBroker, store: Gate) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "log_level": 0,
        "linger.ms": 0,
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "body*",
        "large.message.payload.store.class": store,
    }


def consumer(config: dict[str, Any], topic: str, **settings: Any) -> Any:
    found = Consumer({**config, "group.id": topic, "enable.auto.commit": False, **settings})
    found.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    return found


def stored(topic: str) -> int:
    return sum(1 for _ in MemoryStore().list(topic))


def test_one_object_for_many_records(config: dict[str, Any], store: Gate, topic: str) -> None:
    store.is_open.clear()
    value: dict[str, Any] = {"body": LARGE, "tags": []}
    with Producer(config) as producer:
        for at in range(5):
            value["id"] = at
            value["tags"].append(at)
            producer.produce(topic, value)
        store.is_open.set()
        assert producer.flush(SECONDS) == 0
    with consumer(config, topic) as reader:
        found = [message.value() for message in reader.consume(5, SECONDS)]
    assert found == [{"body": LARGE, "id": at, "tags": list(range(at + 1))} for at in range(5)]


def test_malformed_headers_are_dead_lettered_as_they_were(
    config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    broker.create_topic(f"{topic}-dead")
    headers: list[Any] = [(HEADER, b'[{"path":"' + b"a." * 1000 + b'b","size":1,"digest":"sha256:%s"}]' % (64 * b"0"))]
    with Producer(config) as producer:
        producer.produce(topic, {"id": 0, "body": LARGE})
        assert producer.flush(SECONDS) == 0
    plain = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    plain.produce(topic, b'{"id":1}', headers=headers)
    assert plain.flush(SECONDS) == 0
    policy = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": f"{topic}-dead"}
    with Producer(config) as producer:
        producer.produce(topic, {"id": 2, "body": LARGE})
        assert producer.flush(SECONDS) == 0
    with consumer({**config, **policy}, topic) as reader:
        assert [reader.poll(SECONDS).value()["id"] for _ in range(2)] == [0, 2]
    with consumer({**config, "value.deserializers": "bytes"}, f"{topic}-dead") as reader:
        dead = reader.poll(SECONDS)
    assert dead.value() == b'{"id":1}'
    assert headers[0] in dead.headers()


def test_failing_rows_beside_columns(config: dict[str, Any], topic: str) -> None:
    config |= {"value.serializers": "large-fields, avro", "value.deserializers": "avro, large-fields"}
    fields = [{"name": "id", "type": "long"}, {"name": "body", "type": "string"}, {"name": "body2", "type": "string"}]
    config["avro.schema"] = json.dumps({"type": "record", "name": "R", "fields": fields})
    with Producer(config) as producer:
        for at in range(4):
            producer.produce(topic, {"id": at, "body": LARGE, "body2": f"{at}{LARGE}"})
        assert producer.flush(SECONDS) == 0
    with consumer({**config, "large.fields.fetch": "lazy"}, topic) as reader:
        second = reader.consume(2, SECONDS)[1].value()
    MemoryStore().delete(second["body2"].reference)
    policy = {"serde.error.policy": "skip"}
    with consumer({**config, **policy}, topic) as reader:
        rows = reader.consume_arrow(4, SECONDS, columns=["id", "body"])["value"].to_pylist()
        assert rows == [{"id": at, "body": LARGE} for at in range(4)]
        reader.seek(confluent_kafka.TopicPartition(topic, 0, 0))
        found: list[Any] = []
        while len(found) < 3:
            found += reader.consume_arrow(3 - len(found), SECONDS, columns=["body2", "id"])["value"].to_pylist()
        assert found == [{"body2": f"{at}{LARGE}", "id": at} for at in (0, 2, 3)]


def test_a_store_that_comes_back(config: dict[str, Any], store: Gate, topic: str) -> None:
    faulty = FaultyStore(store)
    faulty.fail(PayloadStoreUnavailableError("down"))
    reports: list[Any] = []
    with Producer({**config, "large.message.payload.store.class": faulty}) as producer:
        for at in range(3):
            value = {"id": at, "body": LARGE, "body2": LARGE}
            producer.produce(topic, value, on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(SECONDS) == 0
    delivered = [error is None for error in reports]
    assert sorted(delivered) == [False, True, True]
    assert stored(topic) == 4
    with consumer(config, topic) as reader:
        assert [message.value()["body2"] for message in reader.consume(2, SECONDS)] == [LARGE] * 2


def test_an_interrupted_reader_loses_nothing(config: dict[str, Any], store: Gate, topic: str) -> None:
    with Producer(config) as producer:
        for at in range(3):
            producer.produce(topic, {"id": at, "body": LARGE, "body2": LARGE})
        assert producer.flush(SECONDS) == 0
    store.is_open.clear()
    store.asked.clear()

    def interrupt() -> None:
        assert store.asked.wait(SECONDS)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with consumer(config, topic) as reader:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            reader.consume(3, SECONDS)
        thread.join(SECONDS)
        store.is_open.set()
        found: list[Any] = []
        while len(found) < 3:
            found += reader.consume(3 - len(found), SECONDS)
    assert [message.value() for message in found] == [{"id": at, "body": LARGE, "body2": LARGE} for at in range(3)]


def test_pause_and_seek_with_fetches_in_flight(config: dict[str, Any], store: Gate, topic: str) -> None:
    with Producer(config) as producer:
        for at in range(4):
            producer.produce(topic, {"id": at, "body": LARGE})
        assert producer.flush(SECONDS) == 0
    store.is_open.clear()
    store.asked.clear()
    place = confluent_kafka.TopicPartition(topic, 0, 1)
    with consumer(config, topic) as reader:
        while not store.asked.is_set():
            assert reader.poll(0.1) is None
        reader.pause([place])
        store.is_open.set()
        assert reader.poll(1) is None
        reader.seek(place)
        reader.resume([place])
        assert [reader.poll(SECONDS).value()["id"] for _ in range(3)] == [1, 2, 3]


def test_a_mirror_whose_primary_lost_the_fields(
    config: dict[str, Any], s3_server: S3Server, bucket: str, tmp_path: Path, topic: str
) -> None:
    mirrored = {
        **config,
        "large.message.payload.store.class": "mirror",
        "mirror.primary": "local",
        "mirror.secondary": "s3",
        "local.path": str(tmp_path),
        **s3_server.store_config(bucket),
    }
    value = {"body": LARGE, "body2": LARGE[::-1] + "y"}
    with Producer(mirrored) as producer:
        producer.produce(topic, value)
        assert producer.flush(SECONDS) == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        path.unlink()
    with consumer(mirrored, topic) as reader:
        assert reader.poll(SECONDS).value() == value


def test_a_cache_serves_fields_of_several_records(config: dict[str, Any], store: Gate, topic: str) -> None:
    faulty = FaultyStore(store)
    config |= {"large.message.id": "content", "large.message.payload.store.class": faulty}
    with Producer(config) as producer:
        for at in range(3):
            producer.produce(topic, {"id": at, "body": LARGE})
        assert producer.flush(SECONDS) == 0
    faulty.calls.clear()
    cached = {"large.message.store.cache.bytes": 1_000_000, "large.message.downloads.in.flight": 1}
    with consumer(config | cached, topic) as reader:
        assert [reader.poll(SECONDS).value()["body"] for _ in range(3)] == [LARGE] * 3
    assert len(faulty.calls) == 1


def test_keyed_ids_by_route(config: dict[str, Any], tmp_path: Path, topic: str) -> None:
    config |= {
        "large.message.id": "keyed",
        "large.message.route.own.topics": topic,
        "large.message.route.own.payload.store.class": "local",
        "large.message.route.own.local.path": str(tmp_path),
    }
    values = [{"body": LARGE, "body2": LARGE + "2"}, {"body": LARGE, "body2": LARGE + "3"}]
    reports: list[Any] = []
    with Producer(config) as producer:
        for value in values:
            producer.produce(topic, value, "key", on_delivery=lambda error, _: reports.append(error))
        producer.produce(topic, values[0], on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(SECONDS) == 0
    assert sum(error is None for error in reports) == 2
    assert "keyed payload ids need the record's key" in str(next(error for error in reports if error))
    # All payloads of a key are in one folder; equal ones are one.
    (folder,) = {path.parent for path in tmp_path.rglob("*") if path.is_file()}
    assert len(list(folder.iterdir())) == 3
    assert stored(topic) == 0
    with consumer(config, topic) as reader:
        assert [reader.poll(SECONDS).value() for _ in range(2)] == values
