"""Large and compressible records, through the whole chain of each client, against the same library calls by hand.

A record of rows has some 5 MB of Avro, and stays above the threshold once compressed, so that it goes to a store (in
memory: the costs of stores are measured elsewhere). By hand, the payload's SHA-256 is computed too.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Final

import aiokafka
import confluent_kafka
import fastavro
import zstandard

import serde_chain.clients.aiokafka as ours_of_aiokafka
from benchmarks.harness import Row, Table, in_turns
from serde_chain import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeserializerChain,
    Producer,
    RecordContext,
    SerializerChain,
)
from serde_chain.record import header_pairs
from serde_chain.testing.services import KafkaBroker

_ROWS: Final = 160_000
_RECORDS: Final = 3  # per turn
_ROUNDS: Final = 9
_SECONDS: Final = 60.0
_UNIT: Final = "ms of CPU per record"
_TOPIC: Final = "benchmark"
_OURS, _THEIRS = "ours", "theirs"
_BY_HAND: Final = "the library calls by hand"
_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "LightCurve",
        "fields": [
            {
                "name": "points",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Point",
                        "fields": [
                            {"name": "mjd", "type": "double"},
                            {"name": "flux", "type": "double"},
                            {"name": "band", "type": "string"},
                            {"name": "visit", "type": "long"},
                            {"name": "flags", "type": "long"},
                        ],
                    },
                },
            }
        ],
    }
)
_CONFIG: Final[dict[str, Any]] = {
    "value.serializers": "avro, zstd, large-message",
    "value.deserializers": "large-message, zstd, avro",
    "avro.schema": _SCHEMA,
    "large.message.payload.store.class": "memory",
}


def run(*, quick: bool) -> Iterator[Table]:
    """The chain alone, then each client with a real broker."""
    rounds, count = (2, 1) if quick else (_ROUNDS, _RECORDS)
    record, by_hand = _record(_ROWS), _ByHand()
    if len(by_hand.write(record)[1]) <= 1 << 20:
        raise AssertionError("the record is not large")
    with KafkaBroker() as broker:
        for topic in (_TOPIC, _OURS, _THEIRS):
            broker.create_topic(topic)
        common: dict[str, Any] = {**broker.client_config(), "log_level": 0}
        work = (record, by_hand, count, rounds)
        up = [*_chain_up(*work), *_clients_up(common, *work), _aiokafka_up(common, *work)]
        down = [*_chain_down(*work), *_clients_down(common, *work)]
    yield Table("large-records-up", "A compressible record of 5 MB: avro → zstd → large-message", _UNIT, up)
    yield Table("large-records-down", "The same record: large-message → zstd → avro", _UNIT, down)


def _record(count: int) -> dict[str, Any]:
    """A light curve; its fluxes have few digits, so that it can be compressed by half."""
    random = Random(44)
    return {
        "points": [
            {
                "mjd": 60_000 + at / 1000,
                "flux": random.randrange(1 << 24) / 1000,
                "band": "ugrizy"[at % 6],
                "visit": random.randrange(1 << 40),
                "flags": 0,
            }
            for at in range(count)
        ]
    }


class _ByHand:
    """The same work: fastavro, zstandard, hashlib and a dictionary as the store."""

    def __init__(self) -> None:
        self._schema = fastavro.parse_schema(json.loads(_SCHEMA))
        self._compressor, self._decompressor = zstandard.ZstdCompressor(3), zstandard.ZstdDecompressor()
        self._store: dict[str, bytes] = {}

    def write(self, record: Any) -> tuple[bytes, bytes, list[Any]]:
        """Reference, payload and headers."""
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, self._schema, record)
        data = self._compressor.compress(buffer.getvalue())
        headers: list[Any] = [("large-message-digest", hashlib.sha256(data).hexdigest().encode())]
        reference = f"memory:///{_TOPIC}/{uuid.uuid4()}"
        self._store.clear()  # as the store of the others
        self._store[reference] = data
        return reference.encode(), data, headers

    def keep(self, record: Any) -> tuple[bytes, list[Any]]:
        """Reference and headers of a payload for readers."""
        reference, data, headers = self.write(record)
        self._store[reference.decode()] = data
        return reference, headers

    def read(self, reference: bytes, headers: Any) -> Any:
        """The record."""
        data = self._store[reference.decode()]
        if hashlib.sha256(data).hexdigest().encode() != dict(headers)["large-message-digest"]:
            raise AssertionError("another payload")
        return fastavro.schemaless_reader(io.BytesIO(self._decompressor.decompress(data)), self._schema, None)


def _compared(name: str, ways: tuple[Callable[[], object], Callable[[], object]], count: int, rounds: int) -> Row:
    """Ours and by hand, in turns; each way handles ``count`` records.

    The first half of the rounds is not counted. A decoded record is 44 MiB of small objects, and the allocator's arenas
    take fewer fresh pages each round, from 12,000 a record down to a few: the rows of a process that has just started
    differ by 10 % with what ran before them.
    """
    ours, theirs = ways
    times = in_turns({"ours": ours, "theirs": theirs}, 2 * rounds, time.process_time)
    per_record = {way: [1000 * seconds / count for seconds in taken[rounds:]] for way, taken in times.items()}
    return Row(name, per_record["ours"], _BY_HAND, per_record["theirs"])


def _repeated(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()


def _forget() -> None:
    """Payloads of turns that are over would fill the memory."""
    from payload_stores.memory import MemoryStore

    MemoryStore.clear()


def _chain_up(record: Any, by_hand: _ByHand, count: int, rounds: int) -> Iterator[Row]:
    with SerializerChain.from_config(_CONFIG) as chain:

        def ours() -> None:
            _forget()
            for _ in range(count):
                chain(record, RecordContext(_TOPIC, "value", []))

        yield _compared("chain", (ours, partial(_repeated, partial(by_hand.write, record), count)), count, rounds)


def _clients_up(common: dict[str, Any], record: Any, by_hand: _ByHand, count: int, rounds: int) -> Iterator[Row]:
    plain = confluent_kafka.Producer(common)

    def with_plain() -> None:
        for _ in range(count):
            reference, _payload, headers = by_hand.write(record)
            plain.produce(_TOPIC, reference, headers=headers)
        plain.flush(_SECONDS)

    with Producer({**common, **_CONFIG}) as producer:

        def with_ours() -> None:
            _forget()
            for _ in range(count):
                producer.produce(_TOPIC, record)
            producer.flush(_SECONDS)

        yield _compared("Producer", (with_ours, with_plain), count, rounds)
    with asyncio.Runner() as runner:
        asynchronous = runner.run(_made(lambda: AsyncProducer({**common, **_CONFIG})))

        async def with_async() -> None:
            _forget()
            for _ in range(count):
                await (await asynchronous.produce(_TOPIC, record))

        yield _compared("AsyncProducer", (lambda: runner.run(with_async()), with_plain), count, rounds)
        runner.run(asynchronous.close())


def _aiokafka_up(common: dict[str, Any], record: Any, by_hand: _ByHand, count: int, rounds: int) -> Row:
    servers = common["bootstrap.servers"]
    with asyncio.Runner() as runner:
        plain, inner = (
            runner.run(_made(lambda: aiokafka.AIOKafkaProducer(bootstrap_servers=servers))) for _ in range(2)
        )
        wrapped = runner.run(_made(lambda: ours_of_aiokafka.Producer(inner, {**common, **_CONFIG})))
        for client in (plain, wrapped):
            runner.run(client.start())

        async def with_plain() -> None:
            for _ in range(count):
                reference, _payload, headers = by_hand.write(record)
                await plain.send_and_wait(_TOPIC, reference, headers=headers)

        async def with_ours() -> None:
            _forget()
            for _ in range(count):
                await wrapped.send_and_wait(_TOPIC, record)

        row = _compared("aiokafka", (lambda: runner.run(with_ours()), lambda: runner.run(with_plain())), count, rounds)
        for client in (wrapped, plain):
            runner.run(client.stop())
    return row


def _chain_down(record: Any, by_hand: _ByHand, count: int, rounds: int) -> Iterator[Row]:
    _forget()
    with SerializerChain.from_config(_CONFIG) as writer, DeserializerChain.from_config(_CONFIG) as reader:
        ctx = RecordContext(_TOPIC, "value", [])
        reference, own = writer(record, ctx), by_hand.keep(record)
        headers = header_pairs(ctx)

        def ours() -> None:
            for _ in range(count):
                reader(reference, RecordContext(_TOPIC, "value", [*headers]))

        yield _compared("chain", (ours, partial(_repeated, partial(by_hand.read, *own), count)), count, rounds)


def _clients_down(common: dict[str, Any], record: Any, by_hand: _ByHand, count: int, rounds: int) -> Iterator[Row]:
    _forget()
    reference, headers = by_hand.keep(record)
    with Producer({**common, **_CONFIG}) as producer:
        for _ in range(count):
            producer.produce(_OURS, record)
        producer.flush(_SECONDS)
    with Producer(common) as sender:
        for _ in range(count):
            sender.produce(_THEIRS, reference, headers=headers)
        sender.flush(_SECONDS)
    settings = {**common, "group.id": _TOPIC, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    plain = confluent_kafka.Consumer(settings)

    def with_plain() -> None:
        plain.assign([confluent_kafka.TopicPartition(_THEIRS, 0, 0)])
        for _ in range(count):
            message = _there(plain.poll(_SECONDS))
            by_hand.read(message.value(), message.headers())

    with Consumer({**settings, **_CONFIG}) as consumer:

        def with_ours() -> None:
            consumer.assign([confluent_kafka.TopicPartition(_OURS, 0, 0)])
            for _ in range(count):
                _there(consumer.poll(_SECONDS))

        yield _compared("Consumer", (with_ours, with_plain), count, rounds)
    with asyncio.Runner() as runner:
        asynchronous = runner.run(_made(lambda: AsyncConsumer({**settings, **_CONFIG})))

        async def with_async() -> None:
            await asynchronous.assign([confluent_kafka.TopicPartition(_OURS, 0, 0)])
            for _ in range(count):
                _there(await asynchronous.poll(_SECONDS))

        yield _compared("AsyncConsumer", (lambda: runner.run(with_async()), with_plain), count, rounds)
        runner.run(asynchronous.close())
    plain.close()


def _there(message: Any) -> Any:
    if message is None:
        raise TimeoutError("no record")
    return message


async def _made(make: Callable[[], Any]) -> Any:
    """An object that needs a running loop."""
    return make()
