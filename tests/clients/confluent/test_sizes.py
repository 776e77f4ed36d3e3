"""Sizes around the limits of the client and of KIP-1159, and time limits."""

import random
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, Consumer, Producer
from serde_chain.clients.confluent.outbox import advise
from serde_chain.clients.limits import largest_value
from serde_chain.testing.services import KafkaBroker
from tests.hypothesis_profiles import examples

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer

CONFIG: dict[str, Any] = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "memory",
}
THRESHOLD = "large.message.threshold.bytes"
MAX = "message.max.bytes"


def stored(topic: str) -> int:
    return len(list(MemoryStore().list(topic)))


@pytest.mark.parametrize("more", [{}, {THRESHOLD: 1048576}], ids=["unset", "as in the KIP's example"])
def test_what_the_client_would_refuse_is_offloaded(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch", more: dict[str, Any]
) -> None:
    producer, consumer = new_producer(CONFIG, **more), new_consumer(CONFIG)
    sizes = [999_963, 999_964, 999_965, 1_000_000, 1_048_575, 1_048_576, 1_048_577]
    for size in sizes:
        producer.produce(topic, bytes(size))
        assert producer.flush(30) == 0
    assert stored(topic) == len([size for size in sizes if size > 999_964])
    consumer.subscribe([topic])
    assert [len(message.value()) for message in fetch(consumer, len(sizes))] == sizes


def test_a_raised_limit_leaves_the_kips_threshold(topic: str, new_producer: "NewProducer") -> None:
    producer = new_producer(CONFIG, **{MAX: "2000000"})
    outcomes: list[Any] = []
    for size in (1_048_516, 1_048_577):  # the most that the broker takes by default, and the KIP's threshold
        producer.produce(topic, bytes(size), on_delivery=lambda error, _message: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None, None]
    assert stored(topic) == 1


def test_a_threshold_below_is_kept(topic: str, new_producer: "NewProducer") -> None:
    producer = new_producer(CONFIG, **{THRESHOLD: 1000})
    for size in (1000, 1001):
        producer.produce(topic, bytes(size))
    assert producer.flush(30) == 0
    assert stored(topic) == 1


@pytest.mark.parametrize(
    ("threshold", "limit"), [(999_965, None), (1_048_577, None), (2_000_000, 2_000_000), ("970", 1000)]
)
def test_a_threshold_above_the_clients_limit_is_refused(threshold: object, limit: int | None) -> None:
    config = {
        **CONFIG,
        THRESHOLD: threshold,
        "bootstrap.servers": "127.0.0.1:1",
        **({} if limit is None else {MAX: limit}),
    }
    most = rf"{MAX} \({limit or 1_000_000}\)"
    message = rf"{THRESHOLD} \({threshold}\) exceeds the largest value that the client sends with {most}"
    with pytest.raises(ConfigError, match=message):
        Producer(config)


def test_a_threshold_at_the_clients_limit_is_taken(new_producer: "NewProducer") -> None:
    assert new_producer(CONFIG, **{THRESHOLD: 999_964})
    assert new_producer(CONFIG, **{THRESHOLD: "1964", MAX: "2000"})


HEADERS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=100), st.none() | st.binary(max_size=9000)), max_size=20
)


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(HEADERS, st.none() | st.binary(max_size=9000), st.integers(0, 3), st.sampled_from([1000, 70_000, 1_000_000]))
def test_what_passes_inline_is_taken_by_the_client(
    headers: list[Any], key: bytes | None, below: int, limit: int
) -> None:
    # Queued only: this is librdkafka's own check, made before anything is sent.
    size = largest_value(limit, key, headers)
    plain = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", MAX: limit, "log_level": 0})
    try:
        if size > 0:
            plain.produce("t", bytes(max(size - below, 0)), key, headers=headers)
            # A header without a value takes a few bytes less than we think.
            slack = sum(4 for _, value in headers if value is None)
            with pytest.raises(confluent_kafka.KafkaException, match="MSG_SIZE_TOO_LARGE"):
                plain.produce("t", bytes(size + 1 + slack), key, headers=headers)
    finally:
        plain.purge()
        plain.flush(0)


@pytest.mark.parametrize("more", [{}, {"timestamp": 1}, {"key": b"k"}, {"headers": [("band", b"g")]}])
@pytest.mark.parametrize("chain", ["bytes", "bytes, zstd"])
def test_what_is_too_large_has_a_remedy(chain: str, more: dict[str, Any]) -> None:
    """The first error of anyone who sends images: librdkafka names neither the topic nor what to do."""
    config = {"bootstrap.servers": "127.0.0.1:1", "value.serializers": chain, "log_level": 0}
    with (
        Producer(config) as producer,
        pytest.raises(confluent_kafka.KafkaException, match="MSG_SIZE_TOO_LARGE") as caught,
    ):
        producer.produce("images", random.Random(1).randbytes(1_000_001), **more)
    (note,) = caught.value.__notes__
    assert "topic images" in note
    assert "large-message" in note
    other = confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._FAIL))
    advise(other, "images")
    assert not hasattr(other, "__notes__")


def test_keys_and_headers_count(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    source = random.Random(1159)
    producer, consumer = new_producer(CONFIG), new_consumer(CONFIG)
    for _ in range(12):
        key = source.randbytes(source.choice([1, 63, 64, 5_000]))
        headers: Any = [("n" * source.randrange(1, 100), source.randbytes(source.randrange(5_000))) for _ in range(3)]
        edge = largest_value(1_000_000, key, headers)
        for size in (edge, edge + 1):
            producer.produce(topic, bytes(size), key, headers=headers)
        assert producer.flush(30) == 0
    assert stored(topic) == 12
    consumer.subscribe([topic])
    assert len(fetch(consumer, 24)) == 24


def test_large_keys_are_offloaded_too(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    config = {**CONFIG, "key.serializers": "string, large-message", "key.deserializers": "large-message, string"}
    producer, consumer = new_producer(config), new_consumer(config)
    lengths = (10, 990_000, 2_000_000)
    for length in lengths:
        producer.produce(topic, bytes(length), "k" * length)
    assert producer.flush(30) == 0
    consumer.subscribe([topic])
    messages = fetch(consumer, 3)
    assert [(len(message.key()), len(message.value())) for message in messages] == [
        (n, n) for n in (10, 990_000, 2_000_000)
    ]
    assert [message.headers() for message in messages] == [None] * 3


# Time limits


@pytest.mark.parametrize(
    ("client", "limit", "default"), [(Producer, "max.block.ms", 60_000), (Consumer, "max.poll.interval.ms", 300_000)]
)
def test_store_calls_must_end_within_the_clients_time_limit(client: Any, limit: str, default: int) -> None:
    config = {**CONFIG, "bootstrap.servers": "127.0.0.1:1", "group.id": "g", "session.timeout.ms": 1000}
    timeout = "large.message.store.timeout.ms"
    with pytest.raises(ConfigError, match=rf"{timeout} \({default + 1} ms\) is longer than {limit} \({default} ms\)"):
        client({**config, timeout: default + 1})
    with pytest.raises(ConfigError, match=rf"{timeout} \(3000 ms\) is longer than {limit} \(2000 ms\)"):
        client({**config, timeout: "3000", limit: "2000"})
    s3 = {
        "large.message.payload.store.class": "s3", "s3.bucket": "b", "s3.region": "eu-west-1",
        "s3.request.timeout.ms": default, "s3.retry.attempts": 2,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=rf"worst case of the payload store's own .* is longer than {limit}"):
        client({**config, **s3})


def test_the_deadline_follows_the_time_limit(broker: KafkaBroker) -> None:
    both = {**CONFIG, "key.serializers": "bytes, large-message", **broker.client_config()}
    for config, timeout in (
        ({**CONFIG, **broker.client_config(), "max.block.ms": 5000}, 5000),
        ({**both, "max.block.ms": 5000}, 2500),  # a key and a value
        ({**CONFIG, **broker.client_config()}, 60_000),
    ):
        with Producer(config) as producer:
            assert producer._value is not None
            assert producer._value.stages[-1].timeout_ms == timeout
