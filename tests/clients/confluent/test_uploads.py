"""Uploads beside each other, on a real broker: order, reports, and what is deleted when a record is never sent."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from payload_stores import PayloadStoreUnavailableError, open_store
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import Producer, RecordContext, SerializationError, SerializerChain
from serde_chain.base import SupportsOffload
from serde_chain.clients.confluent.outbox import Outbox
from serde_chain.clients.journal import Journal
from serde_chain.clients.outgoing import Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import ROOT

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

CONFIG: dict[str, Any] = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": 100,
}
SECONDS = 30.0


class Gated(MemoryStore):
    """A store whose uploads wait until they are let through."""

    def configure(self, config: Any) -> None:
        super().configure(config)
        self.may_go = threading.Event()
        self.begun = threading.Semaphore(0)

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        self.begun.release()
        assert self.may_go.wait(SECONDS)
        return super().publish(topic, data, context)


def gated() -> Gated:
    store = Gated()
    store.configure({})
    return store


def stored(topic: str) -> int:
    return len(list(MemoryStore().list(topic)))


def large(number: int) -> bytes:
    return number.to_bytes(2, "big") * 500


def until_idle(producer: Producer) -> None:
    """Poll until the client has no records left, or until one of the calls raises."""
    until = time.monotonic() + SECONDS
    while len(producer):
        assert time.monotonic() < until
        producer.poll(0.1)


class Reports(list[Any]):
    def __call__(self, error: Any, message: Any) -> None:
        self.append((error, message))

    @property
    def errors(self) -> list[Any]:
        return [error for error, _ in self]


def test_uploads_run_side_by_side_and_the_records_keep_their_order(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    store = gated()
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    reports = Reports()
    for number in range(20):
        value = number.to_bytes(2, "big") if number % 4 == 3 else large(number)
        producer.produce(topic, value, headers=[("n", b"%d" % number)], on_delivery=reports)
    for _ in range(8):
        assert store.begun.acquire(timeout=SECONDS)
    assert not store.begun.acquire(timeout=0.05)
    assert len(producer) == 20
    assert producer.flush(0.1) == 20
    assert reports == []
    store.may_go.set()
    assert producer.flush(SECONDS) == 0
    assert reports.errors == [None] * 20
    assert [message.offset() for _, message in reports] == list(range(20))
    assert not producer._outbox._sent, "what is delivered is not kept"
    consumer = new_consumer(CONFIG)
    consumer.subscribe([topic])
    messages = fetch(consumer, 20)
    assert [int.from_bytes(message.value()[:2], "big") for message in messages] == list(range(20))
    assert [message.headers() for message in messages] == [[("n", b"%d" % number)] for number in range(20)]


def test_records_of_other_topics_do_not_wait(new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    slow, quick = new_topic(), new_topic()
    store = gated()
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    reports = Reports()
    producer.produce(slow, large(1))
    producer.produce(slow, b"behind it", on_delivery=reports)
    producer.produce(quick, b"small", on_delivery=reports)
    until = time.monotonic() + SECONDS
    while not reports:
        assert time.monotonic() < until
        producer.poll(0.1)
    assert [message.topic() for _, message in reports] == [quick]
    store.may_go.set()
    assert producer.flush(SECONDS) == 0
    assert len(reports) == 2


def test_an_upload_that_fails_is_reported_with_its_cause(
    topic: str, new_producer: "NewProducer", caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(MemoryStore())
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    reports = Reports()
    store.fail(PayloadStoreUnavailableError("the bucket is away"), 1)
    producer.produce(topic, large(1), b"key", on_delivery=reports, headers=[("a", b"b")])
    assert producer.flush(SECONDS) == 0
    producer.produce(topic, large(2), on_delivery=reports)
    assert producer.flush(SECONDS) == 0
    (error, message), (success, _) = reports
    assert success is None
    assert error.code() == KafkaError._FAIL, "nothing is wrong with the value"
    assert error.retriable()
    assert "the bucket is away" in error.str()
    assert isinstance(error.__cause__, SerializationError)
    assert error.__cause__.about_record is False
    assert (message.topic(), message.key(), message.value(), message.headers()) == (topic, b"key", None, [("a", b"b")])
    assert message.error() is error
    # Without a callback it is in the log.
    store.fail(PayloadStoreUnavailableError("the bucket is away"), 1)
    producer.produce(topic, large(3))
    assert producer.flush(SECONDS) == 0
    assert f"a record of {topic} was not sent: PayloadStoreUnavailable" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        ({"topic": 5}, TypeError, "a topic is a str, not int"),
        ({"key": {"id": 1}}, TypeError, r"a key is bytes or str, not dict.*key\.serializer"),
        ({"key": 5}, TypeError, "a key is bytes or str, not int"),
        ({"partition": "0"}, TypeError, "'str' object cannot be interpreted as an integer"),
        ({"partition": 1 << 40}, OverflowError, "the partition is too large"),
        ({"timestamp": "now"}, TypeError, "'str' object cannot be interpreted as an integer"),
        ({"timestamp": 1 << 70}, OverflowError, "the timestamp is too large"),
        ({"headers": "band"}, TypeError, "headers are a dict, or a list"),
        ({"headers": [("band", 5)]}, TypeError, "the header 'band' is int"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_raised_before_an_upload(
    topic: str, new_producer: "NewProducer", wrong: dict[str, Any], kind: type[Exception], told: str
) -> None:
    producer = new_producer(CONFIG)
    reports = Reports()
    with pytest.raises(kind, match=told):
        producer.produce(**{"topic": topic, "value": large(1), "on_delivery": reports, **wrong})
    assert (len(producer), producer.flush(SECONDS), reports, stored(topic)) == (0, 0, [], 0)


def test_the_configurations_callback_is_called_as_well(topic: str, new_producer: "NewProducer") -> None:
    store = FaultyStore(MemoryStore())
    reports = Reports()
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store, "on_delivery": reports})
    store.fail(PayloadStoreUnavailableError("down"), 1)
    for number in range(2):
        producer.produce(topic, large(number))
    assert producer.flush(SECONDS) == 0
    assert sorted(error is None for error in reports.errors) == [False, True]


def test_poll_waits_for_an_upload(topic: str, new_producer: "NewProducer") -> None:
    store = gated()
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    reports = Reports()
    producer.produce(topic, large(1), on_delivery=reports)
    assert producer.poll(0) == producer.poll(0.05) == 0
    store.may_go.set()
    assert producer.poll(SECONDS) == 1
    assert reports.errors == [None]


def test_the_buffer_bounds_what_waits(topic: str, new_producer: "NewProducer") -> None:
    store = gated()
    # One after the other, each may take as long as produce may block: two of them take longer.
    producer = new_producer(
        {**CONFIG, "large.message.payload.store.class": store},
        **{"large.message.buffer.bytes": 2500, "max.block.ms": 200, "large.message.uploads.in.flight": 1},
    )
    reports = Reports()
    producer.produce(topic, large(1))
    producer.produce(topic, large(2))
    with pytest.raises(BufferError, match="2500"):
        producer.produce(topic, large(3) * 2)
    store.may_go.set()
    producer.produce(topic, large(3) * 2, on_delivery=reports)
    assert producer.flush(SECONDS) == 0
    assert reports.errors == [None]


def test_the_caller_may_use_a_buffer_again(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    store = gated()
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    buffer = bytearray(b"a" * 1000)
    producer.produce(topic, buffer)
    buffer[:] = b"b" * 1000
    producer.produce(topic, memoryview(buffer))
    buffer[:] = b"c" * 1000
    store.may_go.set()
    assert producer.flush(SECONDS) == 0
    consumer = new_consumer(CONFIG)
    consumer.subscribe([topic])
    assert [message.value()[:1] for message in fetch(consumer, 2)] == [b"a", b"b"]


def test_a_closed_producer_takes_nothing(broker: KafkaBroker, topic: str) -> None:
    producer = Producer({**broker.client_config(), **CONFIG})
    producer.produce(topic, large(1))
    assert producer.close()
    for value in (b"small", large(2)):
        with pytest.raises(RuntimeError, match="closed"):
            producer.produce(topic, value)


# What is deleted when.


def test_a_record_that_is_refused_for_good_takes_its_payload_along(
    new_topic: "NewTopic", new_producer: "NewProducer"
) -> None:
    topic = new_topic(1, {"max.message.bytes": "100"})  # less than a reference with its headers
    producer = new_producer(CONFIG, **{"large.message.threshold.bytes": 10})
    reports = Reports()
    producer.produce(topic, large(1), on_delivery=reports)
    assert producer.flush(SECONDS) == 0
    assert [error.code() for error in reports.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert producer.close()
    assert stored(topic) == 0


def test_shared_payloads_stay(new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    topic = new_topic(1, {"max.message.bytes": "100"})
    producer = new_producer(CONFIG, **{"large.message.id": "content"})
    producer.produce(topic, large(1))
    assert producer.flush(SECONDS) == 0
    assert producer.close()
    assert stored(topic) == 1


def test_purge_deletes_what_was_never_sent(topic: str, new_producer: "NewProducer") -> None:
    store = gated()
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    reports = Reports()
    for number in range(3):
        producer.produce(topic, large(number), on_delivery=reports)
    assert store.begun.acquire(timeout=SECONDS)
    producer.purge()
    store.may_go.set()
    assert producer.flush(SECONDS) == 0
    assert [error.code() for error in reports.errors] == [KafkaError._PURGE_QUEUE] * 3
    assert producer.close()
    assert stored(topic) == 0


@pytest.mark.full
def test_purge_deletes_what_waits_in_the_client(new_producer: "NewProducer") -> None:
    """librdkafka takes seconds to purge while no broker answers."""
    topic = f"purged-{uuid.uuid4()}"
    producer = new_producer(CONFIG, **{"bootstrap.servers": "127.0.0.1:1"})
    reports = Reports()
    producer.produce(topic, large(1), on_delivery=reports)
    until = time.monotonic() + SECONDS
    while stored(topic) == 0 or len(producer) == 0:
        assert time.monotonic() < until
        producer.poll(0.01)
    producer.purge()
    assert producer.flush(SECONDS) == 0
    assert [error.code() for error in reports.errors] == [KafkaError._PURGE_QUEUE]
    assert producer.close()
    assert stored(topic) == 0


def test_purge_leaves_what_may_have_been_written_before_its_connection_was_lost() -> None:
    """librdkafka calls a record queued as well that waits to be sent again."""

    class Client:
        callback: Any = None

        def produce(self, *_record: Any, callback: Any, **_more: Any) -> None:
            self.callback = callback

        def __len__(self) -> int:
            return 1

    stage = SerializerChain.from_config(CONFIG).stages[-1]
    assert isinstance(stage, SupportsOffload)
    client: Any = Client()
    outbox = Outbox(client, [stage], None, None)
    sender = Sender(outbox)
    outbox.attach(sender)
    for partition, left in ((-1, 0), (0, 1)):
        topic = f"purged-{uuid.uuid4()}"
        sender.put(Outgoing(topic, None, stage.offload(large(1), RecordContext(topic, "value", []))))
        until = time.monotonic() + SECONDS
        while client.callback is None or not sender.is_idle:
            assert time.monotonic() < until
            sender.wait(0.1)
        message: Any = confluent_kafka.Message(topic=topic, partition=partition)
        client.callback(KafkaError(KafkaError._PURGE_QUEUE), message)
        client.callback = None
        while sender.is_cleaning:
            assert time.monotonic() < until
            sender.wait(0.1)
        assert stored(topic) == left


@pytest.fixture
def transactional() -> dict[str, Any]:
    return {**CONFIG, "transactional.id": f"id-{uuid.uuid4()}"}


def read(consumer: Any) -> list[bytes]:
    values: list[bytes] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for message in consumer.consume(10, 0.5):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return values
            values.append(message.value())
    raise AssertionError("the end of the topic did not come")


def test_payloads_of_an_aborted_transaction_go_and_those_of_a_committed_one_stay(
    topic: str, transactional: dict[str, Any], new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    producer = new_producer(transactional)
    producer.init_transactions(SECONDS)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, large(number))
        producer.produce(topic, large(10 + number))
        if number == 1:  # also where they are in the log already
            assert producer.flush(SECONDS) == 0
        (producer.abort_transaction if number < 2 else producer.commit_transaction)(SECONDS)
    assert producer.close()
    assert stored(topic) == 4
    consumer = new_consumer(CONFIG, **{"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.subscribe([topic])
    assert read(consumer) == [large(number) for number in (2, 12, 3, 13)]


def test_a_failed_upload_keeps_a_transaction_from_being_committed(
    topic: str, transactional: dict[str, Any], new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    store = FaultyStore(MemoryStore())
    producer = new_producer({**transactional, "large.message.payload.store.class": store})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    store.fail(PayloadStoreUnavailableError("down"), 1)
    producer.produce(topic, large(1))
    producer.produce(topic, b"small")
    with pytest.raises(KafkaException, match="down") as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, large(2))
    producer.commit_transaction(SECONDS)
    assert producer.close()
    assert stored(topic) == 1
    consumer = new_consumer(CONFIG, **{"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.subscribe([topic])
    assert read(consumer) == [large(2)]


def test_a_commit_that_comes_too_early_can_be_tried_again(
    topic: str, transactional: dict[str, Any], new_producer: "NewProducer"
) -> None:
    store = gated()
    producer = new_producer({**transactional, "large.message.payload.store.class": store})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, large(1))
    with pytest.raises(KafkaException, match="not uploaded within") as caught:
        producer.commit_transaction(0.05)
    assert caught.value.args[0].retriable()
    store.may_go.set()
    producer.commit_transaction(SECONDS)
    assert producer.close()
    assert stored(topic) == 1


class Lossy:
    """A client that does what it is told, and whose answers to a commit and to all that comes after it are lost.

    Args:
        client: The client.
        begins: Whether it can begin another transaction nevertheless.
    """

    def __init__(self, client: Any, *, begins: bool) -> None:
        self._client = client
        self._begins = begins

    def flush(self, timeout: float) -> int:
        return int(self._client.flush(timeout))

    def commit_transaction(self, timeout: float) -> None:
        self._client.commit_transaction(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "lost", False, True))

    def begin_transaction(self) -> None:
        if not self._begins:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fenced", True))
        self._client.begin_transaction()

    def abort_transaction(self, timeout: float) -> None:
        if not self._begins:
            raise KafkaException(KafkaError(KafkaError._FATAL, "fenced", True))
        self._client.abort_transaction(timeout)


@pytest.mark.parametrize("begins", [True, False])
def test_what_may_be_committed_stays_whatever_comes_next(
    topic: str, transactional: dict[str, Any], new_producer: "NewProducer", *, begins: bool
) -> None:
    producer = new_producer(transactional)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, large(1))
    producer._transactions._producer = Lossy(producer._producer, begins=begins)  # type: ignore[assignment]
    with pytest.raises(KafkaException, match="lost"):
        producer.commit_transaction(SECONDS)
    with nullcontext() if begins else pytest.raises(KafkaException, match="fenced"):
        producer.begin_transaction()
    with nullcontext() if begins else pytest.raises(KafkaException, match="fenced"):
        producer.abort_transaction(SECONDS)
    assert producer.close()
    assert stored(topic) == 1


@pytest.mark.parametrize(
    ("where", "call"),
    [
        ("in the store", "poll"),
        ("in the store", "commit"),
        ("in the client", "poll"),
        ("in the client", "commit"),
        ("in the log", "commit"),
    ],
)
def test_a_producer_that_is_fenced_takes_its_payloads_along(
    topic: str,
    transactional: dict[str, Any],
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    *,
    where: str,
    call: str,
) -> None:
    """Where its record is when the producer is fenced, and the call that learns of it.

    A record that is still on its way to the store has its partition refused, and is reported as purged by the client;
    one in the client is refused itself.
    """
    store = gated()
    first = new_producer({**transactional, "large.message.payload.store.class": store})
    first.init_transactions(SECONDS)
    first.begin_transaction()
    if where == "in the client":
        # Its partition is in the transaction, so it is the record itself that the broker refuses.
        first.produce(topic, b"small")
        assert first.flush(SECONDS) == 0
    first.produce(topic, large(1))
    if where == "in the log":
        store.may_go.set()
        assert first.flush(SECONDS) == 0
    second = new_producer(transactional)
    second.init_transactions(SECONDS)
    store.may_go.set()
    if call == "poll":
        with pytest.raises(KafkaException):
            until_idle(first)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, large(2))
    second.commit_transaction(SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # confluent_kafka's own, since it cannot abort
        assert first.close()
    assert second.close()
    consumer = new_consumer(CONFIG, **{"isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.subscribe([topic])
    assert read(consumer) == [large(2)]
    assert stored(topic) == 1


# The crash journal.


def test_what_is_committed_is_nothing_for_the_next_process(
    topic: str, transactional: dict[str, Any], new_producer: "NewProducer", tmp_path: Path
) -> None:
    producer = new_producer(transactional, **{"large.message.journal.path": str(tmp_path / "journal")})
    assert producer._journal is not None
    producer.init_transactions(SECONDS)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, large(1))
        assert producer.flush(SECONDS) == 0
        assert len(producer._journal.unsettled) == 1, "it could still be aborted"
        end(SECONDS)
        until = time.monotonic() + SECONDS
        while producer._journal.unsettled:
            assert time.monotonic() < until
            producer._sender.wait(0.1)
    assert stored(topic) == 1


def test_close_waits_for_what_has_to_be_deleted(topic: str, new_producer: "NewProducer") -> None:
    class Lazy(Gated):
        def delete(self, reference: str) -> None:
            threading.Event().wait(0.3)
            super().delete(reference)

    store = Lazy()
    store.configure({})
    producer = new_producer({**CONFIG, "large.message.payload.store.class": store})
    producer.produce(topic, large(1))
    assert store.begun.acquire(timeout=SECONDS)
    producer.purge()
    store.may_go.set()
    assert producer.close()
    assert stored(topic) == 0


KILLED = """if True:
    import sys, time
    from serde_chain import Producer
    servers, folder, journal, topic, transactional_id = sys.argv[1:]
    more = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer({
        "bootstrap.servers": servers,
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "local.path": folder,
        "large.message.threshold.bytes": 100,
        "large.message.journal.path": journal,
        **more,
    })
    if transactional_id:
        producer.init_transactions(30)
        producer.begin_transaction()
    producer.produce(topic, bytes(1000))
    assert producer.flush(30) == 0
    if not transactional_id:
        producer._outbox.send = None  # what is uploaded now is never sent
        def hang(record):
            print("ready", flush=True)
            time.sleep(60)
        producer._outbox.send = hang
        sender = producer._sender
        settle = producer._journal.settle
        producer._journal.settle = hang
        producer.produce(topic, bytes(2000))
    else:
        print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("transactional_id", ["", "killed"])
def test_the_next_start_deletes_what_a_killed_one_has_not_sent(
    broker: KafkaBroker, topic: str, tmp_path: Path, transactional_id: str
) -> None:
    folder, journal = tmp_path / "payloads", tmp_path / "journal"
    servers = str(broker.client_config()["bootstrap.servers"])
    arguments = [servers, str(folder), str(journal), topic, transactional_id and f"{transactional_id}-{topic}"]
    child = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait(SECONDS)
        if child.stdout is not None:
            child.stdout.close()
    store = open_store("local", {"local.path": str(folder)})
    assert len(list(getattr(store, "list")(topic))) == (1 if transactional_id else 2)  # noqa: B009
    local = {**CONFIG, "large.message.payload.store.class": "local", "local.path": str(folder)}
    producer = Producer({**broker.client_config(), **local, "large.message.journal.path": str(journal)})
    assert producer.close()
    sizes = [info.size for info in getattr(store, "list")(topic)]  # noqa: B009
    assert sizes == ([] if transactional_id else [1000])
    with Producer({**broker.client_config(), **local, "large.message.journal.path": str(journal)}) as again:
        assert again._journal is not None
        assert again._journal.unsettled == ()


def test_what_lies_in_another_store_stays_in_the_journal(
    broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.intend("s3://another/topic/1")
    config = {**broker.client_config(), **CONFIG, "large.message.journal.path": str(path)}
    Producer(config).close()
    assert "no configured payload store has it" in caplog.text
    with Journal(path) as journal:
        assert journal.left == ("s3://another/topic/1",)


def test_two_producers_cannot_share_a_journal(broker: KafkaBroker, tmp_path: Path) -> None:
    config = {**broker.client_config(), **CONFIG, "large.message.journal.path": str(tmp_path / "journal")}
    with Producer(config), pytest.raises(Exception, match=r"journal"):
        Producer(config)
    Producer(config).close()


def test_plain_confluent_kafka_sees_what_it_always_did(topic: str, new_producer: "NewProducer") -> None:
    """A chain that moves nothing has nothing in between."""
    producer = new_producer({"value.serializer": "bytes"})
    reports = Reports()
    producer.produce(topic, b"1", on_delivery=reports)
    assert len(producer) == 1
    assert producer.flush(SECONDS) == 0
    assert isinstance(reports[0][1], confluent_kafka.Message)
