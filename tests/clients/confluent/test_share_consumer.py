"""Share groups: who gets a record again, and who does not."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType, IllegalStateException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from payload_stores.memory import MemoryStore
from serde_chain import DecodeError, PayloadStoreUnavailableError, Producer, ShareConsumer
from serde_chain.errors import DeadLetterError
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.conftest import NewTopic
from tests.consuming import consumed
from tests.interrupts import interrupted_at
from tests.signals import SECONDS, Signals

STORE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 10}
LARGE = {"value.serializers": "json, large-message", "value.deserializers": "large-message, json", **STORE}
Config = dict[str, Any]
SIGNALS = 6
WITHIN = (
    "serde_chain/clients/confluent/share_consumer.py",
    "serde_chain/clients/confluent/uninterrupted_poll.py",
)


@pytest.fixture
def broker(share_broker: KafkaBroker) -> KafkaBroker:
    return share_broker


@pytest.fixture
def group(broker: KafkaBroker, topic: str) -> str:
    """A share group that begins with the first record."""
    resource = ConfigResource(ResourceType.GROUP, topic)
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    admin = broker.admin()
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
    return topic


@pytest.fixture
def config(broker: KafkaBroker, group: str) -> Iterator[Config]:
    yield {**broker.client_config(), "group.id": group, "log_level": 0, **LARGE}
    MemoryStore.clear()


@pytest.fixture
def produce(broker: KafkaBroker, config: Config, topic: str) -> Callable[..., None]:
    def write(*values: Any, **settings: Any) -> None:
        """Write values; bytes as they are."""
        writing = {key: value for key, value in {**config, **settings}.items() if key != "group.id"}
        with Producer(writing) as producer, confluent_kafka.Producer(broker.client_config()) as plain:
            for value in values:
                (plain if isinstance(value, bytes) else producer).produce(topic, value)
                assert (plain if isinstance(value, bytes) else producer).flush(30) == 0

    return write


def polled(consumer: ShareConsumer, count: int = 1) -> list[Any]:
    """Polls until there are some records."""
    found: list[Any] = []
    while len(found) < count:
        found += consumer.poll(10)
    return found


def values(messages: list[Any]) -> list[Any]:
    assert [message.error() for message in messages] == [None] * len(messages)
    return [message.value() for message in messages]


def rest_of(config: Config, topic: str, produce: Callable[..., None]) -> list[Any]:
    """What another member of the group gets, up to a last record."""
    produce("last")
    found: list[Any] = []
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        while "last" not in found:
            found += values(polled(consumer))
    return found[:-1]


def test_records_are_decoded_and_accepted(config: Config, topic: str, produce: Callable[..., None]) -> None:
    large = {"name": "M 51", "more": "x" * 100}
    produce({"id": 1}, large, None)
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert consumer.subscription() == [topic]
        messages = polled(consumer, 3)
        assert values(messages) == [{"id": 1}, large, None]
        assert [message.headers() for message in messages] == [None] * 3
        with pytest.raises(IllegalStateException, match="explicit"):
            consumer.acknowledge(messages[0])
        assert list(consumer.commit_sync(30).values()) == [None]
    assert rest_of(config, topic, produce) == []


def test_the_next_poll_accepts_and_a_close_does_not(config: Config, topic: str, produce: Callable[..., None]) -> None:
    produce({"id": 1})
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer)) == [{"id": 1}]
        produce({"id": 2})
        assert values(polled(consumer)) == [{"id": 2}]
    assert rest_of(config, topic, produce) == [{"id": 2}]


def test_explicit_acknowledgements(config: Config, topic: str, produce: Callable[..., None]) -> None:
    produce({"id": 1}, {"id": 2}, {"id": 3})
    with ShareConsumer(config, **{"share.acknowledgement.mode": "explicit"}) as consumer:
        consumer.subscribe([topic])
        one, two, three = polled(consumer, 3)
        with pytest.raises(IllegalStateException):
            consumer.poll(0)
        consumer.acknowledge(one)
        consumer.acknowledge(two, AcknowledgeType.RELEASE)
        consumer.acknowledge_offset(topic, 0, three.offset(), AcknowledgeType.REJECT)
        (again,) = polled(consumer)
        assert (again.value(), again.delivery_count()) == ({"id": 2}, 2)
        consumer.acknowledge(again)
        consumer.commit_async()
    assert rest_of(config, topic, produce) == []


def test_an_undecodable_record_is_raised_and_rejected(config: Config, topic: str, produce: Callable[..., None]) -> None:
    produce({"id": 1}, b"{", {"id": 3})
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        errors: list[DecodeError] = []
        while len(found) < 2:
            try:
                found += values(consumer.poll(10))
            except DecodeError as error:
                errors.append(error)
        assert found == [{"id": 1}, {"id": 3}]
        assert [(error.topic, error.offset, error.about_record) for error in errors] == [(topic, 1, True)]
        raw: Any = errors[0].record
        assert raw.value() == b"{"
        consumer.commit_sync(30)
    assert rest_of(config, topic, produce) == []


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_policies(config: Config, topic: str, new_topic: NewTopic, produce: Callable[..., None], policy: str) -> None:
    config |= {"serde.error.policy": policy}
    if policy == "dead-letter":
        config |= {"serde.dead.letter.topic": new_topic()}
    produce({"id": 1}, b"{", {"id": 3})
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer, 2)) == [{"id": 1}, {"id": 3}]
        assert consumer.skipped == 1
        consumer.commit_sync(30)
    assert rest_of(config, topic, produce) == []
    if policy == "dead-letter":
        plain = {name: value for name, value in config.items() if not name.startswith(("value.", "large.", "serde."))}
        (letter,) = consumed(plain, config["serde.dead.letter.topic"], 1)
        assert letter.value() == b"{"
        assert dict(letter.headers())["serde-chain-error-offset"] == b"1"


def test_without_its_dead_letter_topic_a_record_is_released(
    config: Config, topic: str, produce: Callable[..., None]
) -> None:
    produce(b"{")
    dead = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": f"{topic}-none"}
    with ShareConsumer({**config, **dead, "topic.metadata.propagation.max.ms": 100}) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(DeadLetterError, match="does not take it"):
            polled(consumer)
        assert consumer.skipped == 0
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(DecodeError, match="JSON") as caught:
            polled(consumer)
        raw: Any = caught.value.record
        assert raw.delivery_count() == 2


@pytest.mark.full
def test_a_store_that_is_away_releases_the_record(
    config: Config, topic: str, produce: Callable[..., None], s3_server: S3Server, bucket: str
) -> None:
    store = {"large.message.payload.store.class": "s3", **s3_server.store_config(bucket)}
    config |= store
    produce({"id": 1}, {"more": "x" * 100}, **store)
    away = {"s3.endpoint.url": "http://127.0.0.1:9", "share.record.lock.duration.ms": 4000}
    with ShareConsumer({**config, **away}) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer)) == [{"id": 1}]
        with pytest.raises(PayloadStoreUnavailableError) as caught:
            polled(consumer)
        error: Any = caught.value  # a SerializationError too, as the chain raises it
        assert (error.offset, error.about_record) == (1, False)
        consumer.commit_sync(30)
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        (message,) = polled(consumer)
        assert (message.value(), message.delivery_count()) == ({"more": "x" * 100}, 2)


class _AwayStore(MemoryStore):
    asked = 0

    def download(self, reference: str) -> bytes:
        type(self).asked += 1
        raise PayloadStoreUnavailableError("away")


@pytest.mark.full
def test_each_attempt_asks_a_store_that_is_away_once_per_record(
    config: Config, topic: str, produce: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(*({"id": number, "more": "x" * 100} for number in range(5)))
    attempts: list[tuple[int, int]] = []
    attempt = ShareConsumer._try

    def noted(self: ShareConsumer, messages: list[Any]) -> list[Any]:
        before = _AwayStore.asked
        outcomes = attempt(self, messages)
        attempts.append((_AwayStore.asked - before, len(messages)))
        return outcomes

    monkeypatch.setattr(ShareConsumer, "_try", noted)
    away = {"large.message.payload.store.class": _AwayStore, "share.record.lock.duration.ms": 4000}
    with ShareConsumer({**config, **away}) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(PayloadStoreUnavailableError, match="away"):
            polled(consumer)
    assert len(attempts) > 1
    assert all(asked == count for asked, count in attempts)


class _SlowStore(MemoryStore):
    arrived = threading.Event()

    def download(self, reference: str) -> bytes:
        assert self.arrived.wait(60)
        return super().download(reference)


def test_a_payload_that_comes_too_late_for_the_lock(config: Config, topic: str, produce: Callable[..., None]) -> None:
    _SlowStore.arrived.clear()
    produce({"more": "x" * 100})
    slow = {"large.message.payload.store.class": _SlowStore, "share.record.lock.duration.ms": 1000}
    with ShareConsumer({**config, **slow}) as consumer:
        consumer.subscribe([topic])
        try:
            with pytest.raises(PayloadStoreUnavailableError, match=r"share\.record\.lock\.duration\.ms"):
                polled(consumer)
        finally:
            _SlowStore.arrived.set()
        (message,) = polled(consumer)
        assert (message.value(), message.delivery_count()) == ({"more": "x" * 100}, 2)


def test_payloads_beyond_the_bound_come_later(config: Config, topic: str, produce: Callable[..., None]) -> None:
    large = [{"more": f"{number}" * 100} for number in range(3)]
    produce(*large)
    with ShareConsumer({**config, "large.message.downloads.max.bytes": 150}) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer)) == large[:1]
        assert len(consumer._raw) == 2
        assert values(consumer.poll(0)) == large[1:2]
        assert values(consumer.poll(0)) == large[2:]
        consumer.commit_sync(30)
    assert rest_of(config, topic, produce) == []


def test_records_whose_turn_comes_too_late_are_released(
    config: Config, topic: str, produce: Callable[..., None]
) -> None:
    large = [{"more": f"{number}" * 100} for number in range(2)]
    produce(*large)
    with ShareConsumer({**config, "large.message.downloads.max.bytes": 150}) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer)) == large[:1]
        consumer._until = 0
        (again,) = polled(consumer)
        assert (again.value(), again.delivery_count()) == (large[1], 2)


def test_an_interrupted_call_loses_nothing(config: Config, topic: str, produce: Callable[..., None]) -> None:
    interrupts = [KeyboardInterrupt]

    def read(data: Any, _ctx: Any) -> Any:
        if data == b'{"id":2}' and interrupts:
            raise interrupts.pop()
        return data

    produce({"id": 1}, {"id": 2}, {"id": 3})
    with ShareConsumer({**config, "value.deserializers": ["large-message", read, "json"]}) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []
        while len(found) < 3:
            with suppress(KeyboardInterrupt):
                found += values(consumer.poll(10))
        assert interrupts == []
        assert found == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_an_interrupted_call_settles_no_record_twice(
    config: Config, topic: str, produce: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts, settled = [KeyboardInterrupt], list[Any]()
    produce(b"{", b"{", b"{", {"id": 4})
    with ShareConsumer({**config, "serde.error.policy": "skip"}) as consumer:
        settle = consumer._settle

        def interrupted(message: Any, error: Any) -> Any:
            if settled and interrupts:
                raise interrupts.pop()
            settled.append(message.offset())
            return settle(message, error)

        monkeypatch.setattr(consumer, "_settle", interrupted)
        consumer.subscribe([topic])
        found: list[Any] = []
        while not found:
            with suppress(KeyboardInterrupt):
                found += values(consumer.poll(10))
        assert (interrupts, settled, found) == ([], [0, 1, 2], [{"id": 4}])
        assert consumer.skipped == 3


def test_records_that_were_not_returned_are_released(config: Config, topic: str, produce: Callable[..., None]) -> None:
    produce(b"{", {"id": 2})
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(DecodeError):
            polled(consumer)
    assert rest_of(config, topic, produce) == [{"id": 2}]


class _Failed:
    """A message that is an error of the client's own: it has no place."""

    def error(self) -> str:
        return "Broker: Topic authorization failed"

    def topic(self) -> None: ...

    def partition(self) -> None: ...

    def offset(self) -> None: ...


class _Client:
    """A client without a broker, for a batch that is hard to get from one."""

    def __init__(self) -> None:
        self.acknowledged: list[Any] = []

    def poll(self, _timeout: float) -> list[Any]:
        return []

    def acknowledge_offset(self, *place: Any) -> None:
        self.acknowledged.append(place)

    def close(self) -> None: ...


def test_an_error_whose_turn_comes_too_late_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only records are: an error has no offset."""
    client = _Client()
    monkeypatch.setattr(confluent_kafka, "ShareConsumer", lambda _config: client)
    with ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "value.deserializer": "json"}) as consumer:
        monkeypatch.setattr(consumer, "_raw", [_Failed()])
        assert consumer.poll(0) == []
    assert client.acknowledged == []


# Real signals, and a store that goes away and comes back


def large(number: int) -> dict[str, Any]:
    return {"id": number, "more": "x" * 100}


def read(consumer: ShareConsumer, signals: Signals) -> list[Any]:
    """Values of one call; none if a signal ends it."""
    try:
        messages = consumer.poll(2)
    except signals.kind:
        signals.caught()
        return []
    return values(messages)


def test_no_record_is_lost_or_doubled_when_signals_end_the_waiting_call(
    config: Config, topic: str, produce: Callable[..., None]
) -> None:
    found: list[Any] = []
    writes = [partial(produce, large(number)) for number in range(SIGNALS)]
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        with Signals(deep=True) as signals, signals.before_each(writes):
            while len(found) < SIGNALS:
                found += read(consumer, signals)
        assert signals.raised >= SIGNALS / 2
        assert found == [large(number) for number in range(SIGNALS)]
        consumer.commit_sync(30)
    assert rest_of(config, topic, produce) == []


@pytest.mark.full
def test_ctrl_c_at_any_point_of_a_poll(config: Config, topic: str, produce: Callable[..., None]) -> None:
    found: list[Any] = []
    point = interrupts = 0
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        # Not of a call that waits in vain: each has a record, or ends before it asks for one.
        while interrupts == point:
            produce(large(point))
            try:
                with interrupted_at(point, WITHIN):
                    found += values(polled(consumer))
            except KeyboardInterrupt:
                interrupts += 1
                found += values(polled(consumer))
            point += 1
        assert found == [large(number) for number in range(point)]
        assert interrupts > 20
        consumer.commit_sync(30)
    assert rest_of(config, topic, produce) == []


class _WaitingStore(MemoryStore):
    asked = threading.Event()
    answer = threading.Event()

    def download(self, reference: str) -> bytes:
        self.asked.set()
        assert self.answer.wait(SECONDS)
        return super().download(reference)


@pytest.fixture
def waiting() -> Iterator[type[_WaitingStore]]:
    _WaitingStore.asked.clear()
    _WaitingStore.answer.clear()
    yield _WaitingStore
    _WaitingStore.answer.set()


@contextmanager
def interrupted(waiting: type[_WaitingStore]) -> Iterator[None]:
    """A block that Ctrl-C ends while a payload is fetched."""
    main = threading.get_ident()

    def send() -> None:
        assert waiting.asked.wait(SECONDS)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join(SECONDS)
    waiting.answer.set()


def test_ctrl_c_while_payloads_are_fetched(
    config: Config, topic: str, produce: Callable[..., None], waiting: type[_WaitingStore]
) -> None:
    produce(*map(large, range(3)))
    with ShareConsumer({**config, "large.message.payload.store.class": waiting}) as consumer:
        consumer.subscribe([topic])
        with interrupted(waiting):
            polled(consumer)
        messages = polled(consumer, 3)
        assert values(messages) == [large(number) for number in range(3)]
        assert messages[0].delivery_count() == 1
        consumer.commit_sync(30)
    assert rest_of(config, topic, produce) == []


def test_what_ctrl_c_leaves_is_released_by_close(
    config: Config, topic: str, produce: Callable[..., None], waiting: type[_WaitingStore]
) -> None:
    produce(large(0))
    with ShareConsumer({**config, "large.message.payload.store.class": waiting}) as consumer:
        consumer.subscribe([topic])
        with interrupted(waiting):
            polled(consumer)
    # Long before the lock ends, which takes 30 s.
    assert rest_of(config, topic, produce) == [large(0)]


@pytest.mark.full
def test_a_store_that_comes_back(config: Config, topic: str, produce: Callable[..., None], tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "payloads", tmp_path / "elsewhere"
    store = {"large.message.payload.store.class": "local", "local.path": str(folder)}
    produce(large(0), **store)
    folder.rename(elsewhere)
    folder.mkdir()  # the bare mount point
    with ShareConsumer({**config, **store, "share.record.lock.duration.ms": 1000}) as consumer:
        consumer.subscribe([topic])
        for _ in range(2):
            with pytest.raises(PayloadStoreUnavailableError) as caught:
                polled(consumer)
            assert not caught.value.about_record
        folder.rmdir()
        elsewhere.rename(folder)
        (message,) = polled(consumer)
        assert (message.value(), message.delivery_count()) == (large(0), 3)
        consumer.commit_sync(30)
    assert rest_of(config | store, topic, produce) == []
