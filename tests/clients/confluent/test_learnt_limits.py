"""A learnt limit is the topic's limit; and what happens where it cannot be learnt: on real brokers."""

import asyncio
import logging
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer
from serde_chain.clients.limits import largest_value
from serde_chain.testing.services import KafkaBroker
from tests.clients.confluent.test_topic_limits import set_limit
from tests.refusing_broker import silent

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

THRESHOLD = "large.message.threshold.bytes"
AUTO: dict[str, Any] = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "memory",
    THRESHOLD: "auto",
}
HEADERS: Any = [("telescope", b"VLT"), ("empty", None)]
MAX = 1_000_000_000


def send(producer: Producer, topic: str, *values: Any, **more: Any) -> list[Any]:
    """Send records; returns their errors."""
    outcomes: list[Any] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error), **more)
    assert producer.flush(60) == 0
    return outcomes


def stored(topic: str) -> list[int]:
    return sorted(info.size for info in MemoryStore().list(topic))


@pytest.mark.parametrize("limit", [5_000_000, 40_000_000])
@pytest.mark.parametrize(("key", "headers"), [(None, None), (b"k" * 70, HEADERS)], ids=["value alone", "key, headers"])
def test_the_topics_limit_counts_to_the_byte(  # noqa: PLR0917, pytest passes them by name
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
    key: bytes | None,
    headers: Any,
    limit: int,
) -> None:
    topic = new_topic(1, {"max.message.bytes": str(limit)})
    producer, consumer = new_producer(AUTO), new_consumer(AUTO)
    largest = largest_value(MAX, key, headers, limit)
    sizes = [3_000_000, largest, largest + 1]
    assert send(producer, topic, *map(bytes, sizes), key=key, headers=headers) == [None] * 3
    assert stored(topic) == [largest + 1]
    consumer.subscribe([topic])
    assert [len(message.value()) for message in fetch(consumer, 3)] == sizes
    # The broker agrees: one more byte is too much.
    plain = new_producer({"message.max.bytes": MAX})
    (error,) = send(plain, topic, bytes(largest + 1), key=key, headers=headers)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


@pytest.mark.full
def test_more_than_a_broker_receives_by_default(new_producer: "NewProducer") -> None:
    """A broker starts, for records of 150 MB."""
    limit = 150_000_000
    with KafkaBroker(config={"socket.request.max.bytes": str(2 * limit)}, memory="2g") as broker:
        broker.create_topic("large", 1, {"max.message.bytes": str(limit)})
        producer = new_producer(AUTO, **broker.client_config())
        largest = largest_value(MAX, b"k", None, limit)
        assert send(producer, "large", bytes(largest), bytes(largest + 1), key=b"k") == [None] * 2
        assert stored("large") == [largest + 1]
        reader = confluent_kafka.Consumer({**broker.client_config(), "group.id": "g", "fetch.max.bytes": 2 * limit})
        reader.assign([confluent_kafka.TopicPartition("large", 0, 0)])
        message: Any = reader.poll(60)
        assert len(message.value()) == largest
        reader.close()


def test_the_largest_that_librdkafka_sends() -> None:
    assert largest_value(MAX, None, None, 2_000_000_000) == MAX - 36


# Prints by how many MiB of address space a process grows while it sends 400 MB that have waited for their topic.
LONG_QUEUE = """
import sys, uuid
from confluent_kafka.admin import AdminClient, NewTopic
from serde_chain import Producer

def peak():
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmPeak")]
    return int(line.split()[1]) >> 10

servers = {"bootstrap.servers": sys.argv[1]}
topic = f"long-queue-{uuid.uuid4()}"
store = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": "auto"}
with Producer({**servers, **store, "value.serializers": "bytes, large-message"}) as producer:
    for _ in range(40_000):
        producer.produce(topic, bytes(10_000), partition=0)
    before = peak()
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    assert producer.flush(60) == 0
    print(peak() - before)
"""


@pytest.mark.full
def test_a_long_queue_reserves_no_memory_for_each_batch(broker: KafkaBroker) -> None:
    command = [sys.executable, "-c", LONG_QUEUE, broker.bootstrap_servers]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    assert int(done.stdout) < 1200, "with the default of message.copy.max.bytes, some 2,000"


def test_a_limit_that_the_user_has_set_stays(new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    topic = new_topic(1, {"max.message.bytes": "5000000"})
    assert send(new_producer(AUTO, **{"message.max.bytes": 1_000_000}), topic, bytes(999_965)) == [None]
    assert stored(topic) == [999_965]


def test_a_record_fits_into_the_clients_queue(new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    topic = new_topic(1, {"max.message.bytes": "5000000"})
    producer = new_producer(AUTO, **{"queue.buffering.max.kbytes": 2000})
    most = 2000 * 1024 - 36
    for size in (most, most + 1):
        assert send(producer, topic, bytes(size)) == [None]
    assert stored(topic) == [most + 1]


def test_other_routes_keep_the_clients_limit(new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    topic, other = new_topic(1, {"max.message.bytes": "5000000"}), new_topic(1, {"max.message.bytes": "5000000"})
    route = "large.message.route.other."
    producer = new_producer({**AUTO, f"{route}topics": other, f"{route}threshold.bytes": 1_048_576})
    for each in (topic, other):
        assert send(producer, each, bytes(999_964), bytes(999_965)) == [None] * 2
    assert (stored(topic), stored(other)) == ([], [999_965])


def test_a_limit_is_followed_both_ways(broker: KafkaBroker, new_topic: "NewTopic", new_producer: "NewProducer") -> None:
    topic = new_topic(1)
    producer = new_producer(AUTO, **{"large.message.threshold.ttl.ms": 50})
    assert is_offloaded(producer, topic)
    set_limit(broker, topic, 5_000_000)
    # Answers are old after 50 ms, and the broker takes a moment.
    until = time.monotonic() + 30
    while is_offloaded(producer, topic):
        assert time.monotonic() < until
    set_limit(broker, topic, 2_000_000)
    while not is_offloaded(producer, topic):
        assert time.monotonic() < until


def is_offloaded(producer: Producer, topic: str) -> bool:
    """Whether a value of 3 MB goes to the store."""
    before = len(stored(topic))
    assert send(producer, topic, bytes(3_000_000)) == [None]
    return len(stored(topic)) > before


def test_a_value_without_offloading_is_checked_before_it_is_sent(
    new_topic: "NewTopic", new_producer: "NewProducer"
) -> None:
    """Where only keys negotiate: librdkafka alone would send it, for the broker to refuse."""
    low, high = new_topic(1), new_topic(1, {"max.message.bytes": "5000000"})
    config = {name: value for name, value in AUTO.items() if not name.startswith("value.")}
    producer = new_producer({**config, "key.serializers": "bytes, large-message"})
    for topic in (low, high):
        assert send(producer, topic, bytes(50_000)) == [None]
    assert send(producer, high, bytes(3_000_000), key=b"k") == [None]
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.produce(low, bytes(3_000_000), b"k")
    assert send(producer, low, b"next", key=b"k") == [None]
    new = new_topic(1)  # its limit is not known yet
    (error,) = send(producer, new, bytes(3_000_000), key=b"k")
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_asyncio(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic = new_topic(1, {"max.message.bytes": "5000000"})
    MemoryStore.clear()

    async def main() -> list[int]:
        async with AsyncProducer({**broker.client_config(), "linger.ms": 0, **AUTO}) as producer:
            sizes = [10, 3_000_000, 5_000_000]
            deliveries = [await producer.produce(topic, bytes(size)) for size in sizes]
            return [len((await delivery).value() or b"") for delivery in deliveries]

    small, large, reference = asyncio.run(main())
    assert (small, large) == (10, 3_000_000)
    assert reference < 1000
    assert stored(topic) == [5_000_000]


# A broker that never answers.


def test_small_records_do_not_wait_for_an_answer(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", caplog: pytest.LogCaptureFixture
) -> None:
    with silent(broker.bootstrap_servers) as servers, caplog.at_level(logging.WARNING):
        producer = new_producer(AUTO, **{"bootstrap.servers": servers})
        began = time.monotonic()
        assert send(producer, topic, *[b"value"] * 3000) == [None] * 3000
        assert time.monotonic() - began < 9, "the question takes 10 s"
        assert not caplog.records
        producer.close()


@pytest.mark.full
@pytest.mark.parametrize("more", [{}, {"enable.idempotence": True}], ids=["", "idempotent"])
def test_an_oversized_record_takes_no_small_ones_with_it(  # noqa: PLR0917, pytest passes them by name
    broker: KafkaBroker,
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
    caplog: pytest.LogCaptureFixture,
    more: dict[str, Any],
) -> None:
    topic = new_topic(1, {"max.message.bytes": "50000"})
    with silent(broker.bootstrap_servers) as servers, caplog.at_level(logging.WARNING):
        times = {"max.block.ms": 1000, "linger.ms": 100}
        producer = new_producer({**AUTO, **more}, **{"bootstrap.servers": servers, **times})
        assert send(producer, topic, b"0" * 20_000) == [None], "it waits for the answer that does not come"
        began = time.monotonic()
        values: list[Any] = [b"1", b"2" * 100_000, b"3", None, b"4" * 200_000, b"5" * 1000, b"6" * 20_000, None]
        assert send(producer, topic, *values, key=b"key") == [None] * len(values)
        assert time.monotonic() - began < 5
        (warning,) = [record for record in caplog.records if "how large" in record.message]
        assert "automatic_offload = false" in warning.message
        producer.close()
    assert stored(topic) == [100_000, 200_000]
    consumer = new_consumer(AUTO)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 9)][1:] == values


def test_values_that_cannot_be_offloaded_go_again_without_those_that_are_too_large(
    broker: KafkaBroker, new_topic: "NewTopic", new_producer: "NewProducer"
) -> None:
    topic = new_topic(1, {"max.message.bytes": "900000"})
    config = {name: value for name, value in AUTO.items() if not name.startswith("value.")}
    with silent(broker.bootstrap_servers) as servers:
        producer = new_producer(
            {**config, "key.serializers": "bytes, large-message", "linger.ms": 100, "max.block.ms": 1000},
            **{"bootstrap.servers": servers},
        )
        values = [b"0" * 20_000, b"1", b"2" * 950_000, b"3", None]
        outcomes = send(producer, topic, *values, key=b"key")
        assert sorted(error.code() for error in outcomes if error is not None) == [KafkaError.MSG_SIZE_TOO_LARGE]
        producer.close()
