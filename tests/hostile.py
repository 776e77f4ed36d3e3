"""Records that a writer of a topic can make, and what becomes of the good ones behind them."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from payload_stores.ids import sha256_digest
from serde_chain import AsyncConsumer, Consumer, RecordContext
from serde_chain.catalogue import find_format
from serde_chain.clients import aiokafka
from serde_chain.config import DEAD_LETTER, DEAD_LETTER_TOPIC, ERROR_POLICY, RAISE
from serde_chain.record import KEY, VALUE, header_pairs
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.reference_format import Reference

# A call that finds fewer records than it asks for waits for as long: the last one always does.
_WAIT_S = 0.05

Headers = list[tuple[str, bytes | str | None]]
Record = tuple[bytes, Headers]

POLICIES = [policy for policy in ("raise", "skip", "dead-letter") if ERROR_POLICY.read({ERROR_POLICY.name: policy})]
PASSING = [policy for policy in POLICIES if policy != RAISE]

MOST_BYTES = 100_000
"""What a payload may have in these tests."""

GOOD = b"good" * 500
ABSENT = "00000000-0000-4000-8000-000000000000"


def urls(good: str, topic: str) -> Iterator[str]:
    """References that are made of one that can be read."""
    folder, _, payload_id = good.rpartition("/")
    yield from ("", "x", "://", "/", "\0", "file:///etc/passwd", "https://127.0.0.1:1/msg/1", f"other{good}")
    yield from (
        good[:-1],
        good + "x",
        good + "?x",
        good + "#x",
        good + "/x",
        good + "\n",
        good + "%00",
        good + "\ud800",
    )
    yield from (
        f"{folder}/{ABSENT}",
        f"{folder}/../{payload_id}",
        f"{folder}/%2e%2e/x",
        f"{folder}//x",
        folder,
        folder + "/",
    )
    yield from (f"{folder}/{'x' * 300}", f"{folder}/{'x/' * 700}x", good + "/" + f"{topic}/" * 100, "x" * 20_000)
    for other in ("absent", "..", "a b", "x" * 249, "x" * 300):  # payloads of topics that may not be there
        yield good.replace(topic, other)
        yield f"{folder}/{ABSENT}".replace(topic, other)


def placeholders(
    name: str, good: str, topic: str, references: Iterable[str], *, is_key: bool = False
) -> Iterator[Record]:
    """Placeholders of one format.

    Args:
        name: The format.
        good: A reference that can be read, to a payload of :data:`GOOD`.
        topic: Its topic.
        references: Further references, such as to objects that other writers have put into the store.
        is_key: Whether they are keys.
    """
    field = KEY if is_key else VALUE
    reference_format = find_format(name)
    digest = sha256_digest(GOOD)
    lies = (
        (len(GOOD) - 1, None),
        (0, None),
        (1 << 60, None),
        (None, sha256_digest(b"another")),
        (len(GOOD), "sha256:"),
    )
    wrong = [Reference(url) for url in (*urls(good, topic), *references)]
    wrong += [Reference(good, size, said) for size, said in lies]
    for reference in wrong:
        ctx = RecordContext(topic, field, [])
        try:
            value = reference_format.write_reference(reference, ctx, is_key=is_key)
        except (UnicodeError, ValueError):  # what no text can be: no writer can make it
            continue
        yield value, [*header_pairs(ctx)]
    ctx = RecordContext(topic, field, [])
    value = reference_format.write_reference(Reference(good, len(GOOD), digest), ctx, is_key=is_key)
    yield from mutated(bytes(value), [*header_pairs(ctx)])


def mutated(value: bytes, headers: Headers) -> Iterator[Record]:
    """What a record becomes where some of its bytes are others."""
    for other in (
        b"",
        b"\0",
        b"\xff" * 9,
        b"{}",
        b'{"url": 5}',
        b"[" * 5_000,
        value[:-1],
        value[1:],
        value * 2,
        value[::-1],
    ):
        yield other, headers
    for at, (name, said) in enumerate(headers):
        for content in (None, b"", b"\xff", b"x" * 5_000, b"-1", b"9" * 400, b"true", (said or b"")[:-1]):
            yield value, [*headers[:at], (name, content), *headers[at + 1 :]]
        yield value, headers[:at] + headers[at + 1 :]
        yield value, [*headers, (name, b"again")]
        yield value, [(name, b"before"), *headers]
    for at in range(0, len(value), max(1, len(value) // 16)):
        yield value[:at] + bytes([value[at] ^ 0x55]) + value[at + 1 :], headers


def write(config: dict[str, Any], topic: str, records: Iterable[Record], *, as_keys: bool = False) -> None:
    """Write records by a plain client; as keys of records whose values are good, where that is asked for."""
    producer = confluent_kafka.Producer(config)
    for content, headers in records:
        value, key = (b"value", content) if as_keys else (content, None)
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(30) == 0


def assert_the_last_is_delivered(
    broker: KafkaBroker, client: str, config: dict[str, Any], topic: str, value: object, *, seconds: float = 100
) -> list[Any]:
    """See that a consumer reaches the last record of a topic, and has put what it passed over where it belongs.

    Args:
        broker: The broker.
        client: One of `READERS`.
        config: Of the consumer, with a policy that passes over.
        topic: The topic.
        value: Value of the last record.
        seconds: For how long it may take.

    Returns:
        The values that were delivered before.
    """
    found, skipped = READERS[client](config, topic, value, seconds)
    assert skipped > 0
    dead = config.get(DEAD_LETTER_TOPIC.name)
    if dead is not None:
        reader = confluent_kafka.Consumer({**broker.client_config(), "group.id": "letters"})
        assert reader.get_watermark_offsets(confluent_kafka.TopicPartition(dead, 0), timeout=30)[1] == skipped
        reader.close()
    return found[:-1]


# Each takes a consumer's configuration, a topic, the value of its last record and seconds, and returns the values that
# came and the number of records that were passed over. Partitions are assigned: quicker than joining a group.


def _by_records(config: dict[str, Any], topic: str, last: object, seconds: float) -> tuple[list[Any], int]:
    return _with_consumer(
        config, topic, last, seconds, lambda consumer: [m.value() for m in consumer.consume(100, _WAIT_S)]
    )


def _by_columns(config: dict[str, Any], topic: str, last: object, seconds: float) -> tuple[list[Any], int]:
    return _with_consumer(
        config, topic, last, seconds, lambda consumer: consumer.consume_arrow(100, _WAIT_S).column("value").to_pylist()
    )


def _with_consumer(
    config: dict[str, Any], topic: str, last: object, seconds: float, read: Callable[[Consumer], list[Any]]
) -> tuple[list[Any], int]:
    found: list[Any] = []
    until = time.monotonic() + seconds
    with Consumer(config) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while not found or found[-1] != last:
            assert time.monotonic() < until, f"{len(found)} records came, {consumer.skipped} were passed over"
            found += read(consumer)
        return found, consumer.skipped


def _with_asyncio(config: dict[str, Any], topic: str, last: object, seconds: float) -> tuple[list[Any], int]:
    async def main() -> tuple[list[Any], int]:
        found: list[Any] = []
        async with AsyncConsumer(config) as consumer:
            await consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            while not found or found[-1] != last:
                found += [message.value() for message in await consumer.consume(100, _WAIT_S)]
            return found, consumer.skipped

    return asyncio.run(asyncio.wait_for(main(), seconds))


def _with_aiokafka(config: dict[str, Any], topic: str, last: object, seconds: float) -> tuple[list[Any], int]:
    async def main() -> tuple[list[Any], int]:
        found: list[Any] = []
        servers = config["bootstrap.servers"]
        letters = AIOKafkaProducer(bootstrap_servers=servers)
        inner = AIOKafkaConsumer(bootstrap_servers=servers)
        async with letters, aiokafka.Consumer(inner, config, dead_letters=letters) as consumer:
            partition = TopicPartition(topic, 0)
            inner.assign([partition])
            await inner.seek_to_beginning(partition)
            while not found or found[-1] != last:
                found.append((await consumer.getone()).value)
            return found, consumer.skipped

    return asyncio.run(asyncio.wait_for(main(), seconds))


READERS: dict[str, Callable[[dict[str, Any], str, object, float], tuple[list[Any], int]]] = {
    "Consumer": _by_records,
    "Consumer, columns": _by_columns,
    "AsyncConsumer": _with_asyncio,
    "aiokafka": _with_aiokafka,
}


def policy_config(policy: str, dead: str) -> dict[str, str]:
    """The keys of an error policy."""
    return {"serde.error.policy": policy, **({"serde.dead.letter.topic": dead} if policy == DEAD_LETTER else {})}


# aiokafka's own encoding of records in Python asks names for their bytes; those of other clients take text alone.
_WRITE_NAMES = """
import asyncio, sys
from ast import literal_eval
from aiokafka import AIOKafkaProducer

class Name(str):
    def encode(self, *_):
        return bytes.fromhex(self)

async def main():
    servers, topic, records = literal_eval(sys.stdin.read())
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for key, value, headers in records:
            headers = [(Name(name.hex()), content) for name, content in headers]
            await producer.send_and_wait(topic, value, key, partition=0, headers=headers)

asyncio.run(main())
"""


def write_header_names(
    broker: KafkaBroker, topic: str, records: Sequence[tuple[bytes | None, bytes, Sequence[tuple[bytes, bytes]]]]
) -> None:
    """Write records whose headers have any bytes as names: key, value and headers of each."""
    subprocess.run(
        [sys.executable, "-c", _WRITE_NAMES],
        input=repr((broker.bootstrap_servers, topic, records)),
        env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},
        text=True,
        timeout=100,
        check=True,
    )
