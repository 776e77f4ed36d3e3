"""Limits by formula, and how they are asked for: against what the broker takes."""

import gc
import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from payload_stores.threads import DaemonPool
from serde_chain import TopicLimitError
from serde_chain.clients import topic_limits
from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.confluent.topic_admin import ConfluentAdmin
from serde_chain.clients.limits import largest_key, largest_value, record_size
from serde_chain.clients.outgoing import Attempt
from serde_chain.clients.topic_limits import TopicLimits
from serde_chain.testing.services import KafkaBroker
from tests.refusing_broker import refusing

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

BUFFER = "large.message.buffer.bytes"
AUTO: dict[str, Any] = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": "auto",
    "message.max.bytes": 3_000_000,
}


def set_limit(broker: KafkaBroker, topic: str, limit: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    admin = broker.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def limits(broker: KafkaBroker, ttl_ms: int = 60_000) -> TopicLimits:
    admin = ConfluentAdmin({**broker.client_config(), "log_level": 0})
    return TopicLimits(admin, ttl_ms=ttl_ms, timeout_ms=10_000)


def test_the_broker_takes_the_largest_value_and_no_larger(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    chance = random.Random(1)
    producer = confluent_kafka.Producer({**broker.client_config(), "message.max.bytes": 3_000_000, "linger.ms": 0})
    for limit in (300, 8_300, 70_000, 1_048_588, 2_000_000):
        topic = new_topic(1, {"max.message.bytes": str(limit)})
        for key in (None, b"", b"k" * chance.randrange(70, 130)):
            headers: list[Any] = [
                ("h" * chance.randrange(70), bytes(chance.randrange(70))) for _ in range(chance.randrange(3))
            ]
            if limit == 300:
                headers = []
            largest = largest_value(3_000_000, key, headers, limit)
            outcomes: list[Any] = []

            def delivered(error: Any, _message: Any, to: list[Any] = outcomes) -> None:
                to.append(error)

            for size in (largest, largest + 1):
                producer.produce(topic, bytes(size), key, headers=headers, on_delivery=delivered)
                assert producer.flush(30) == 0
            assert outcomes[0] is None, (limit, key, headers)
            assert outcomes[1].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE
            assert record_size(key, bytes(largest), headers) + 61 >= limit - 1
    producer.close()


def test_the_smaller_limit_counts() -> None:
    assert largest_value(1000, None, None) == 964
    assert largest_value(1000, None, None, 500) < 500
    assert largest_value(1000, None, None, 10**6) == 964
    assert largest_value(1000, b"k" * 2000, None, 500) == 0
    assert largest_value(1000, None, None, 10) == 0
    assert largest_key(10**6, None, 100_000) < 100_000 - 16_384 < largest_key(10**6, None, 101_000)
    assert largest_key(10**6, None, 100) == 0


def test_what_the_broker_says(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    asked = limits(broker)
    assert asked.find(new_topic()) == TopicLimit(1_048_588, compacted=False)
    compacted = new_topic(1, {"cleanup.policy": "compact,delete", "max.message.bytes": "5000"})
    assert asked.find(compacted) == TopicLimit(5000, compacted=True)
    assert asked.find("there-is-none") == TopicLimit()
    asked.close()


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"max.message.bytes": "5000"}, TopicLimit(5000)),
        ({"cleanup.policy": "compact"}, TopicLimit(compacted=True)),
        ({}, TopicLimit()),
    ],
)
def test_a_service_that_reports_some_settings_only(settings: dict[str, str], limit: TopicLimit) -> None:
    class Service:
        def describe_configs(self, resources: list[ConfigResource], **_: Any) -> dict[ConfigResource, Future[Any]]:
            answer: Future[Any] = Future()
            answer.set_result({name: ConfigEntry(name, value) for name, value in settings.items()})
            return {resources[0]: answer}

    admin = ConfluentAdmin({})
    admin._client = Service()
    assert admin.describe("t", 10) == limit


def test_a_closed_producer_has_no_connection_left(new_producer: "NewProducer", topic: str) -> None:
    before = clients()
    with new_producer(**AUTO) as producer:
        producer.produce(topic, b"x" * 2_000_000)
        producer.flush(30)
        assert [client for client in clients() if client not in before]
    assert not [client for client in clients() if client not in before]


def clients() -> list[object]:
    """The administrators' connections that there are."""
    return [each for each in gc.get_objects() if isinstance(each, AdminClient)]


def test_answers_are_kept_for_a_time(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic = new_topic(1, {"max.message.bytes": "5000"})
    kept, soon_old = limits(broker), limits(broker, ttl_ms=1)
    assert [asked.find(topic).max_bytes for asked in (kept, soon_old)] == [5000, 5000]
    set_limit(broker, topic, 6000)
    until = time.monotonic() + 10
    while soon_old.find(topic).max_bytes != 6000 and time.monotonic() < until:
        pass  # the broker itself takes a moment
    assert [asked.find(topic).max_bytes for asked in (kept, soon_old)] == [5000, 6000]
    kept.forget(topic)
    assert kept.find(topic).max_bytes == 6000


@pytest.mark.full
def test_what_was_known_is_used_when_nobody_answers(
    broker: KafkaBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = limits(broker, ttl_ms=1)
    known = asked.find(topic)
    asked._admin, asked._timeout_s = ConfluentAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}), 0.2
    time.sleep(0.002)
    assert asked.find(topic) == known
    assert not caplog.records, "the question is still on its way"
    asked.forget(topic)  # a record was refused, so this is waited for
    assert asked.find(topic) == known
    for _ in range(10):  # other records are refused too
        asked.forget(topic)
        assert asked.known(topic) == known, "a missing answer is remembered"
    (warning,) = caplog.records
    assert warning.getMessage().startswith("the last known limit is used: ")
    assert topic in warning.getMessage()


def test_an_unanswered_question_is_remembered_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    admin = ConfluentAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=300)
    assert asked.known("t") is None, "the question runs, without a wait"
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(asked.learn, ["t"] * 4)) == [TopicLimit(unanswered=True)] * 4
    assert time.monotonic() - began < 10
    asked.forget("t")
    assert asked.known("t") == TopicLimit(unanswered=True)
    (warning,) = caplog.records
    assert "automatic_offload = false" in warning.getMessage()
    assert "large.message.threshold.bytes" in warning.getMessage()
    with pytest.raises(TopicLimitError, match="automatic_offload = false"):
        asked.find("t")
    asked.close()


class Silent:
    """Never answers within the deadline; a test ends it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ended = threading.Event()

    def describe(self, topic: str, timeout_s: float) -> TopicLimit:
        self.asked.append(topic)
        self.ended.wait(timeout_s)
        raise RuntimeError("no answer")

    def may_wait(self) -> bool:
        return True

    def close(self) -> None:
        self.ended.set()


def test_a_broker_that_never_answers_costs_neither_a_thread_nor_a_warning_for_each_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin = Silent()
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=60_000)
    before = threading.active_count()
    for number in range(1000):
        assert asked.known(f"topic-{number}") is None
    assert threading.active_count() - before <= 8
    admin.ended.set()
    assert {asked.learn(f"topic-{number}") for number in range(1000)} == {TopicLimit(unanswered=True)}
    assert sorted(admin.asked) == sorted(f"topic-{number}" for number in range(1000))
    until = time.monotonic() + 10
    while not caplog.records and time.monotonic() < until:
        time.sleep(0.01)  # the answers are there before the thread that was first has logged its warning
    assert len(caplog.records) == 1
    with pytest.raises(TopicLimitError, match="no answer"):
        asked.find("topic-0")


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Mute:
    """Lets the deadline of each question pass, on a clock, until it speaks; some topics are wrong in themselves."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.speaks = False

    def describe(self, topic: str, timeout_s: float) -> TopicLimit:
        self.asked.append(topic)
        if topic == "wrong":
            raise RuntimeError("no name of a topic")
        if not self.speaks:
            self.clock.now += timeout_s
            raise RuntimeError("no answer")
        return TopicLimit(5000, compacted=False)

    def may_wait(self) -> bool:
        return True

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(topic_limits, "time", clock)
    return clock


def test_the_silence_of_a_broker_is_remembered_for_all_topics(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    admin = Mute(clock)
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=10_000)
    nothing = TopicLimit(unanswered=True)
    assert asked.learn("first") == nothing
    assert clock.now == 10
    assert asked.known("second") == asked.learn("second") == nothing
    assert admin.asked == ["first"]
    with pytest.raises(TopicLimitError, match="no answer") as caught:
        asked.find("second")
    assert caught.value.topic == "second"
    assert len(caplog.records) == 1
    clock.now += 60
    admin.speaks = True
    assert asked.known("second") == nothing, "it is asked again, while records go on"
    settle(asked)
    assert asked.known("second") == TopicLimit(5000, compacted=False)
    assert asked.learn("third") == TopicLimit(5000, compacted=False), "the broker answers, so it is waited for"


def test_a_broker_that_stays_silent_is_never_waited_for_again(clock: Clock) -> None:
    admin = Mute(clock)
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=10_000)
    asked.learn("first")
    clock.now += 100
    assert asked.known("second") == TopicLimit(unanswered=True)
    settle(asked)
    assert admin.asked == ["first", "second"]
    assert asked.known("third") == TopicLimit(unanswered=True)


def test_an_error_of_one_topic_is_no_silence(clock: Clock) -> None:
    admin = Mute(clock)
    admin.speaks = True
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=10_000)
    assert asked.learn("wrong") == TopicLimit(unanswered=True)
    assert asked.known("other") is None
    assert asked.learn("other") == TopicLimit(5000, compacted=False)


def test_an_answer_that_comes_at_once_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(DaemonPool, "submit", lambda _pool, work, *args: work(*args))
    admin = Mute(clock)
    admin.speaks = True
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=10_000)
    assert asked.learn("images") == asked.find("images") == TopicLimit(5000, compacted=False)
    asked.forget("images")
    assert asked.learn("images") == TopicLimit(5000, compacted=False)
    assert admin.asked == ["images"] * 2


def settle(asked: TopicLimits) -> None:
    """Wait until all questions have come to their ends."""
    for question in list(asked._asked.values()):
        question.result(30)


def test_those_who_wait_for_a_silent_broker_are_released_together(clock: Clock) -> None:
    ended = threading.Event()

    class Hanging(Mute):
        def describe(self, topic: str, timeout_s: float) -> TopicLimit:
            if topic == "hangs":
                ended.wait(60)
            return super().describe(topic, timeout_s)

    asked = TopicLimits(Hanging(clock), ttl_ms=60_000, timeout_ms=60_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked.learn, "hangs")
        until = time.monotonic() + 30
        while "hangs" not in asked._asked and time.monotonic() < until:
            pass
        asked.learn("first")
        assert waiting.result(30) == TopicLimit(unanswered=True)
        assert not ended.is_set()
        ended.set()
    settle(asked)


def test_a_question_that_waits_for_others_has_its_deadline() -> None:
    admin = Silent()
    asked = TopicLimits(admin, ttl_ms=60_000, timeout_ms=60_000)
    for number in range(8):
        asked.known(f"topic-{number}")
    until = time.monotonic() + 30
    while len(admin.asked) < 8 and time.monotonic() < until:
        time.sleep(0.001)
    asked._timeout_s = -0.9  # with the grace, a tenth of a second
    began = time.monotonic()
    assert asked.learn("last") == TopicLimit(unanswered=True)
    assert time.monotonic() - began < 10
    assert "last" not in admin.asked
    asked.known("closed")
    asked.close()
    assert asked.learn("closed") == TopicLimit(unanswered=True)


def test_the_question_for_one_topic_holds_up_no_other(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic, other = new_topic(), new_topic()
    asked = limits(broker, ttl_ms=1_000)
    known = asked.find(topic)
    unanswered: Future[Any] = Future()
    asked._asked[other] = unanswered
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked.find, other)
        asked.forget(topic)
        assert asked.find(topic) == known
        assert not waiting.done()
        asked._not_answered(other, unanswered, None)
        assert isinstance(waiting.exception(10), TopicLimitError)


def test_auto_follows_the_topic(
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
) -> None:
    low, high = new_topic(1, {"max.message.bytes": "5000"}), new_topic(1, {"max.message.bytes": "2000000"})
    producer, consumer = new_producer(AUTO), new_consumer(AUTO)
    for topic, limit in ((low, 5000), (high, 2_000_000)):
        largest = largest_value(3_000_000, b"k", [("a", b"1")], limit)
        sizes = [largest - 1, largest, largest + 1]
        for size in sizes:
            producer.produce(topic, bytes(size), b"k", headers=[("a", b"1")])
        assert producer.flush(30) == 0
        assert [info.size for info in MemoryStore().list(topic)] == [largest + 1]
        consumer.subscribe([topic])
        assert [len(message.value()) for message in fetch(consumer, 3)] == sizes


def test_a_limit_is_learnt_through_a_proxy(
    broker: KafkaBroker, new_topic: "NewTopic", new_producer: "NewProducer"
) -> None:
    topic = new_topic(1, {"max.message.bytes": "5000"})
    largest = largest_value(3_000_000, None, [], 5000)
    with refusing(broker.bootstrap_servers, "another") as servers:  # it hands on all records of this topic
        producer = new_producer(AUTO, **{"bootstrap.servers": servers})
        for size in (largest, largest + 1):
            producer.produce(topic, bytes(size))
        assert producer.flush(30) == 0
        assert [info.size for info in MemoryStore().list(topic)] == [largest + 1]
        producer.close()


def test_auto_and_a_limit_that_is_lowered(
    broker: KafkaBroker, new_topic: "NewTopic", new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    topic = new_topic(1, {"max.message.bytes": "1000000"})
    producer = new_producer(AUTO, **{"linger.ms": 50})
    values = [number.to_bytes(2, "big") * size for number, size in enumerate([100, 10_000, 50, 20_000, 4000] * 10)]
    outcomes: list[Any] = []
    producer.produce(topic, b"1")
    assert producer.flush(30) == 0
    set_limit(broker, topic, 9_000)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None] * 50
    assert len(producer) == 0
    consumer = new_consumer(AUTO)
    consumer.subscribe([topic])
    assert sorted(message.value() for message in fetch(consumer, 51)[1:]) == sorted(values)
    assert len(list(MemoryStore().list(topic))) == 20


def test_records_that_are_refused_stay_in_order(
    broker: KafkaBroker, new_topic: "NewTopic", new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    topic = new_topic(1, {"max.message.bytes": "1000000"})
    producer = new_producer(AUTO)
    producer.produce(topic, b"1")
    assert producer.flush(30) == 0
    set_limit(broker, topic, 9_000)
    values = [number.to_bytes(2, "big") * 10_000 for number in range(100)]
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    assert producer.flush(30) == 0
    consumer = new_consumer(AUTO)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 101)[1:]] == values


@pytest.mark.parametrize(("more", "count"), [({}, 2), ({"large.message.id": "random"}, 4)], ids=["default", "set"])
def test_compacted_topics_have_ids_of_the_content(
    new_topic: "NewTopic", new_producer: "NewProducer", more: dict[str, Any], count: int
) -> None:
    compacted, other = new_topic(1, {"cleanup.policy": "compact"}), new_topic()
    producer = new_producer(AUTO, **more)
    for topic in (compacted, compacted, compacted, other, other):
        producer.produce(topic, bytes(2_000_000) if topic == other else b"x" * 2_000_000, b"key")
    producer.produce(compacted, b"y" * 2_000_000, b"key")
    assert producer.flush(30) == 0
    assert len(list(MemoryStore().list(compacted))) == count
    assert len(list(MemoryStore().list(other))) == 2


def test_no_room_in_time(new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    topic = new_topic(1, {"max.message.bytes": "5000"})
    producer = new_producer(
        AUTO, **{"linger.ms": 60_000, "max.block.ms": 300, "delivery.timeout.ms": 120_000, BUFFER: 3000}
    )
    producer.produce(topic, bytes(100_000))  # its limit is asked for
    assert producer.flush(30) == 0
    for _ in range(20):
        producer.produce(topic, bytes(200))
    producer.produce(topic, bytes(2000))  # the batch is full, so it waits
    with pytest.raises(BufferError, match=r"large\.message\.buffer\.bytes \(3000\), and none was finished"):
        producer.produce(topic, bytes(2000))
    producer.purge()


class Watched:
    """A client whose ``poll`` must not be called from a callback: confluent_kafka would end the process."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.is_calling = False

    def poll(self, timeout: float) -> int:
        assert not self.is_calling
        count: int = self._client.poll(timeout)
        return count

    def __len__(self) -> int:
        return len(self._client)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_callback_that_produces_waits_for_room_without_polling(
    new_topic: "NewTopic", new_producer: "NewProducer"
) -> None:
    topic, other = new_topic(1, {"max.message.bytes": "5000"}), new_topic()
    store = FaultyStore(MemoryStore())
    store.configure({})
    producer = new_producer({**AUTO, "large.message.payload.store.class": store}, **{"max.block.ms": 100, BUFFER: 3000})
    for each in (topic, other):
        producer.produce(each, b"to know its limit")
    assert producer.flush(30) == 0
    client: Any = Watched(producer._producer)
    producer._producer = client
    told: list[Any] = []

    def produce_more(_error: Any, _message: Any) -> None:
        client.is_calling = True
        try:
            producer.produce(topic, bytes(10_000))
            told.append(None)
        except (BufferError, AssertionError) as error:
            told.append(error)
        client.is_calling = False

    with store.hanging():
        producer.produce(topic, bytes(10_000))
        producer.produce(other, b"small", on_delivery=produce_more)
        until = time.monotonic() + 30
        while not told:
            assert time.monotonic() < until
            producer.poll(0.1)
    assert told[0] is None or isinstance(told[0], BufferError)
    assert producer.flush(30) == 0


def test_reported_records_are_not_left_to_the_collector(topic: str, new_producer: "NewProducer") -> None:
    producer = new_producer(AUTO)
    producer.produce(topic, b"to know its limit")
    assert producer.flush(30) == 0
    gc.collect()
    gc.disable()
    try:
        producer.produce(topic, b"value")
        assert producer.flush(30) == 0
        # Of this topic: confluent_kafka keeps for ever what callbacks in other tests have raised, with its frames.
        attempts = [each for each in gc.get_objects() if isinstance(each, Attempt)]
        assert not [each for each in attempts if each.record.topic == topic]
    finally:
        gc.enable()
