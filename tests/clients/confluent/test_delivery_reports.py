"""Records that librdkafka calls delivered, though the broker has refused them: on a real broker, behind a proxy."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from payload_stores import PayloadStoreUnavailableError, open_store
from serde_chain import AsyncProducer, Producer
from serde_chain.testing.services import KafkaBroker
from tests.clients.conftest import QUICK
from tests.refusing_broker import refusing

if TYPE_CHECKING:
    from tests.conftest import NewTopic

SECONDS = 30
KEYS = [b"0", b"1", b"2", b"3", b"4"]
# Chains that go each of the ways to the client: none, plain calls, and the sender's lanes.
CHAINS: dict[str, dict[str, Any]] = {
    "none": {},
    "bytes": {"value.serializers": "bytes"},
    "large-message": {
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": 100,
    },
}

Reports = list[tuple[KafkaError | None, bytes | None]]


@pytest.fixture
def config(broker: KafkaBroker, topic: str) -> Iterator[dict[str, Any]]:
    """Of a producer whose first batch of the topic is refused; each record is a batch."""
    client = broker.client_config()
    with refusing(str(client["bootstrap.servers"]), topic) as servers:
        yield {
            **client,
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "log_level": 0,
        }


def in_log(broker: KafkaBroker, topic: str) -> list[bytes | None]:
    """The keys of what readers see."""
    reading = {"group.id": str(uuid.uuid4()), "enable.partition.eof": True, **QUICK}
    consumer = confluent_kafka.Consumer({**broker.client_config(), **reading})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        keys = []
        while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
            keys.append(message.key())
        return keys
    finally:
        consumer.close()


def send(producer: Producer, topic: str) -> Reports:
    reports: Reports = []
    for key in KEYS:
        producer.produce(
            topic, b"x" * 200, key, on_delivery=lambda error, message: reports.append((error, message.key()))
        )
    return reports


def test_what_librdkafka_says_of_it(broker: KafkaBroker, topic: str, config: dict[str, Any]) -> None:
    """Where this fails, librdkafka has mended it, and `failure_of` may go."""
    told: list[tuple[KafkaError | None, int | None]] = []
    with confluent_kafka.Producer(config) as producer:
        for key in KEYS:
            producer.produce(topic, b"", key, on_delivery=lambda error, message: told.append((error, message.offset())))
        assert producer.flush(SECONDS) == 0
    assert told == [(None, None), (None, 0), (None, 1), (None, 2), (None, 3)]
    assert in_log(broker, topic) == KEYS[1:]


@pytest.mark.parametrize("chain", CHAINS)
def test_a_transaction_is_not_committed_without_it(
    broker: KafkaBroker, topic: str, config: dict[str, Any], chain: str
) -> None:
    with Producer({**config, **CHAINS[chain], "transactional.id": topic}) as producer:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        reports = send(producer, topic)
        with pytest.raises(KafkaException, match="may be in no log") as caught:
            producer.commit_transaction(SECONDS)
        assert caught.value.args[0].txn_requires_abort()
        assert [(error is None, key) for error, key in reports] == [(key != b"0", key) for key in KEYS]
        producer.abort_transaction(SECONDS)
        producer.begin_transaction()
        reports = send(producer, topic)
        producer.commit_transaction(SECONDS)
    assert reports == [(None, key) for key in KEYS]
    assert in_log(broker, topic) == KEYS


def test_a_callback_gets_an_error(
    broker: KafkaBroker, topic: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    common: Reports = []
    on_delivery = {"on_delivery": lambda error, message: common.append((error, message.key()))}
    with Producer({**config, **on_delivery}) as producer:
        for key in KEYS:
            producer.produce(topic, b"", key)
        assert producer.flush(SECONDS) == 0
    lost = [key for error, key in common if error is not None]
    kept = in_log(broker, topic)
    assert lost == [key for key in KEYS if key not in kept] == [b"0"]
    assert f"a record of {topic} may be lost" in caplog.text


@pytest.mark.parametrize("chain", CHAINS)
def test_without_a_callback_it_is_logged_once(
    topic: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture, chain: str
) -> None:
    with Producer({**config, **CHAINS[chain]}) as producer:
        for key in KEYS:
            producer.produce(topic, b"x" * 200, key)
        assert producer.flush(SECONDS) == 0
    told = [record.getMessage() for record in caplog.records if record.name == "serde_chain"]
    assert [text.partition(":")[0] for text in told] == [f"a record of {topic} may be lost"]


def test_a_future_gets_it(topic: str, config: dict[str, Any]) -> None:
    async def run() -> list[Any]:
        async with AsyncProducer(config) as producer:
            deliveries = [await producer.produce(topic, b"", key) for key in KEYS]
            return await asyncio.gather(*deliveries, return_exceptions=True)

    failure, *others = asyncio.run(run())
    assert isinstance(failure, KafkaException)
    assert [message.offset() for message in others] == [0, 1, 2, 3]


def test_a_payload_is_not_referred_to_where_a_chunk_is_not_there(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic = new_topic(1)
    payloads = new_topic(1)
    payload = bytes(range(256)) * 12_000
    client = broker.client_config()
    with refusing(str(client["bootstrap.servers"]), payloads) as servers:
        store = open_store("kafka", {**client, "bootstrap.servers": servers, "kafka.payload.topic": payloads})
        with pytest.raises(PayloadStoreUnavailableError, match="without reporting the offset"):
            store.publish(topic, payload)
        assert store.download(store.publish(topic, payload)) == payload
        store.close()


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
def test_where_only_errors_are_reported_there_are_none(
    broker: KafkaBroker, topic: str, chain: str, *, idempotent: bool
) -> None:
    settings = {"enable.idempotence": idempotent, "delivery.report.only.error": True}
    with Producer({**broker.client_config(), **CHAINS[chain], **settings}) as producer:
        reports = send(producer, topic)
        assert producer.flush(SECONDS) == 0
        producer.produce(topic, b"x" * 200, b"5")
    assert reports == []
    assert in_log(broker, topic) == [*KEYS, b"5"]
