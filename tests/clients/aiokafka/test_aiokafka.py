"""The adapter around aiokafka's clients, on the real broker."""

import asyncio
import hashlib
import json
import threading
import uuid
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaConnectionError, ProducerFenced, UnknownTopicOrPartitionError
from aiokafka.producer.transaction_manager import TransactionState

from payload_stores import PayloadAccessDeniedError, PayloadIntegrityError, PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import ConfigError, EncodeError, SerializationError
from serde_chain.clients.aiokafka import Consumer, Producer, RecordDecoder
from serde_chain.clients.journal import Journal
from serde_chain.errors import DeadLetterError
from serde_chain.schemas.confluent import ConfluentRegistry
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from serde_chain.transfer import Prefetch, Prefetched, Transfer

SECONDS = 30.0
LARGE = bytes(2000)
COUNT = 20
VALUES = [(b"%d " % number) * (1000 if number % 3 == 0 else 1) for number in range(COUNT)]


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    store = FaultyStore(MemoryStore())
    store.configure({})
    yield store
    MemoryStore.clear()


@pytest.fixture
def config(store: FaultyStore) -> dict[str, Any]:
    return {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message",
        "large.message.threshold.bytes": 1000,
        "large.message.payload.store.class": store,
    }


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 100))


def new_consumer(broker: KafkaBroker, topic: str, config: dict[str, Any], **more: Any) -> Consumer:
    settings = {"bootstrap_servers": broker.bootstrap_servers, "group_id": f"g-{uuid.uuid4()}", **more}
    dead_letters = settings.pop("dead_letters", None)
    return Consumer(
        AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings), config, dead_letters=dead_letters
    )


def new_producer(broker: KafkaBroker, config: dict[str, Any], **more: Any) -> Producer:
    return Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **more), config)


def number_of(record: Any) -> int:
    return int(dict(record.headers)["n"])


@pytest.mark.parametrize("how", ["getone", "getmany", "for"])
def test_records_of_all_sizes_travel_in_call_order(
    config: dict[str, Any], broker: KafkaBroker, topic: str, how: str
) -> None:
    async def main() -> None:
        async with new_producer(broker, config) as producer:
            calls = [
                asyncio.create_task(producer.send(topic, value, key=b"k", headers=[("n", b"%d" % number)]))
                for number, value in enumerate(VALUES)
            ]
            metadata = [await (await call) for call in calls]
            assert [each.offset for each in metadata] == list(range(COUNT))
        records: list[Any] = []
        async with new_consumer(broker, topic, config) as consumer:
            if how == "for":
                async for record in consumer:
                    records.append(record)
                    if len(records) == COUNT:
                        break
            while len(records) < COUNT:
                if how == "getone":
                    records.append(await consumer.getone())
                else:
                    found = await consumer.getmany(timeout_ms=1000, max_records=7)
                    records += found.get(TopicPartition(topic, 0), [])
        assert [number_of(record) for record in records] == [record.offset for record in records] == list(range(COUNT))
        assert [record.value for record in records] == VALUES
        assert {record.key for record in records} == {b"k"}
        assert {tuple(name for name, _ in record.headers) for record in records} == {("n",)}

    run(main())


def test_chains_know_the_record(broker: KafkaBroker, topic: str) -> None:
    """Encryption binds the topic, and header framing writes a header."""
    config = {
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializers": "json, encrypt",
        "value.deserializers": "encrypt, json",
        "encryption.keys": {"k": bytes(32)},
        "encryption.key.id": "k",
    }

    async def main() -> None:
        async with new_producer(broker, config) as producer:
            await producer.send_and_wait(topic, {"name": "M 51"}, key="ü", timestamp_ms=1000, partition=0)
            await producer.send_and_wait(topic, None, key="ü")
        async with new_consumer(broker, topic, config) as consumer:
            first, tombstone = await consumer.getone(), await consumer.getone()
            assert (first.key, first.value, first.timestamp) == ("ü", {"name": "M 51"}, 1000)
            assert (tombstone.key, tombstone.value) == ("ü", None)

    run(main())


def test_an_upload_that_fails_is_reported_by_the_future(
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str
) -> None:
    store.fail(PayloadAccessDeniedError("not yours"))

    async def main() -> None:
        async with new_producer(broker, config) as producer:
            failing = await producer.send(topic, LARGE)
            after = await producer.send(topic, b"after")
            with pytest.raises(PayloadAccessDeniedError, match="not yours"):
                await failing
            assert (await after).offset == 0
            with pytest.raises(EncodeError):
                await producer.send(topic, "not bytes")
        with pytest.raises(aiokafka.errors.ProducerClosed):
            await producer.send(topic, b"v")

    run(main())


def test_a_payload_whose_record_is_refused_is_deleted(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with new_producer(broker, config, max_request_size=3000) as producer:
            delivery = await producer.send(topic, LARGE, key=bytes(5000))
            with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
                await delivery

    run(main())
    store = MemoryStore()
    store.configure({})
    assert list(store.list(topic)) == []


def test_the_loop_goes_on_while_a_store_hangs(
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str
) -> None:
    async def main() -> None:
        async with new_producer(broker, {**config, "large.message.buffer.bytes": 5000}) as producer:
            await producer.send_and_wait(topic, b"first")
            with store.hanging():
                deliveries = [await producer.send(topic, LARGE) for _ in range(2)]
                waiting = asyncio.create_task(producer.send(topic, LARGE))
                done, _ = await asyncio.wait([waiting], timeout=0.2)
                assert not done
            await asyncio.gather(*deliveries, await waiting)
        async with new_consumer(broker, topic, config) as consumer:
            assert (await consumer.getone()).value == b"first"
            with store.hanging():
                reading = asyncio.create_task(consumer.getone())
                done, _ = await asyncio.wait([reading], timeout=0.2)
                assert not done
            assert (await reading).value == LARGE

    run(main())


def test_transactions(config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with new_producer(broker, config, transactional_id=topic) as producer:
            with suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, LARGE)
                    await producer.flush()
                    raise ZeroDivisionError
            while producer._sender.is_cleaning:
                await producer._news()
            assert list(_memory().list(topic)) == []
            store.fail(PayloadAccessDeniedError("not yours"))
            with pytest.raises(PayloadAccessDeniedError):
                async with producer.transaction():
                    (await producer.send(topic, LARGE)).add_done_callback(lambda sent: sent.exception())
            async with producer.transaction():
                await producer.send(topic, LARGE, headers=[("n", b"1")])
        assert len(list(_memory().list(topic))) == 1
        async with new_consumer(broker, topic, config, isolation_level="read_committed") as consumer:
            record = await consumer.getone()
            assert (number_of(record), record.value) == (1, LARGE)

    run(main())


def test_a_commit_that_was_cancelled_keeps_its_payloads(
    config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    async def main() -> None:
        async with new_producer(broker, config, transactional_id=topic) as producer:
            transactions = producer._producer._txn_manager
            await producer.begin_transaction()
            await producer.send_and_wait(topic, LARGE)
            commit = asyncio.create_task(producer.commit_transaction())
            while transactions.state is TransactionState.IN_TRANSACTION:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0)
            commit.cancel()
            with suppress(asyncio.CancelledError):
                await commit
            await transactions.wait_for_transaction_end()
            await producer.begin_transaction()
            await producer.abort_transaction()
        assert len(list(_memory().list(topic))) == 1

    run(main())


@pytest.mark.parametrize("in_body", [True, False])
def test_a_time_limit_around_a_transaction(
    config: dict[str, Any], broker: KafkaBroker, topic: str, *, in_body: bool
) -> None:
    """In the block it is aborted; while it is committed, that goes on. The next one begins when it has ended."""

    async def main() -> None:
        async with new_producer(broker, config, transactional_id=topic) as producer:
            transactions = producer._producer._txn_manager

            async def expire(limit: asyncio.Timeout) -> None:
                while transactions.state is not TransactionState.COMMITTING_TRANSACTION:  # noqa: ASYNC110  no event
                    await asyncio.sleep(0)
                limit.reschedule(0)

            async def first() -> None:
                async with asyncio.timeout(None) as limit:
                    watching = asyncio.create_task(expire(limit))
                    async with producer.transaction():
                        await producer.send_and_wait(topic, LARGE, headers=[("n", b"1")])
                        if in_body:
                            watching.cancel()
                            limit.reschedule(0)
                            await asyncio.sleep(SECONDS)

            with pytest.raises(TimeoutError):
                await first()
            if not in_body:
                with pytest.raises(IllegalOperation, match="begin_transaction"):
                    await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, LARGE, headers=[("n", b"2")])
        expected = [2] if in_body else [1, 2]
        async with new_consumer(broker, topic, config, isolation_level="read_committed") as consumer:
            assert [number_of(await consumer.getone()) for _ in expected] == expected
        assert len(list(_memory().list(topic))) == len(expected)

    run(main())


def test_what_a_caller_changes_after_send_is_not_sent(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with new_producer(broker, config) as producer:
            for size in (100, 2000, 500_000):
                value, key = bytearray(b"a" * size), bytearray(b"key")
                delivery = await producer.send(topic, value, key=key)
                value[:] = b"b" * size
                key[:] = b"yek"
                await delivery
        async with new_consumer(broker, topic, config) as consumer:
            for size in (100, 2000, 500_000):
                record = await consumer.getone()
                assert (record.key, record.value) == (b"key", b"a" * size)

    run(main())


def test_ids_of_a_key_as_text(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with new_producer(broker, {**config, "large.message.id": "keyed"}) as producer:
            await producer.send_and_wait(topic, LARGE, key="M 51")
        async with new_consumer(broker, topic, config) as consumer:
            record = await consumer.getone()
            assert (record.key, record.value) == (b"M 51", LARGE)

    run(main())
    (payload,) = _memory().list(topic)
    assert hashlib.sha256(b"M 51").hexdigest() in payload.reference


@pytest.mark.parametrize("commits", [True, False])
def test_a_producer_that_is_fenced(config: dict[str, Any], broker: KafkaBroker, topic: str, *, commits: bool) -> None:
    """Its payloads are deleted, unless they may have been committed."""
    name = f"transaction-{uuid.uuid4()}"

    async def main() -> None:
        first = new_producer(broker, config, transactional_id=name)
        await first.start()
        await first.begin_transaction()
        await first.send_and_wait(topic, LARGE)
        async with new_producer(broker, config, transactional_id=name):
            with pytest.raises(ProducerFenced):
                await (first.commit_transaction() if commits else first.abort_transaction())
        with suppress(ProducerFenced):
            await first.stop()
        assert len(list(_memory().list(topic))) == commits

    run(main())


def _memory() -> MemoryStore:
    store = MemoryStore()
    store.configure({})
    return store


@pytest.mark.parametrize("how", ["getone", "getmany"])
@pytest.mark.parametrize("kind", [PayloadIntegrityError, PayloadAccessDeniedError])
def test_a_record_that_cannot_be_read_costs_no_other(  # noqa: PLR0917  fixtures
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str, how: str, kind: type[Exception]
) -> None:
    """It is passed over if that is its own fault, and tried again otherwise."""
    is_own_fault = kind is PayloadIntegrityError

    async def main() -> None:
        async with new_producer(broker, config) as producer:
            for number, value in enumerate(VALUES):
                await producer.send(topic, value, headers=[("n", b"%d" % number)])
        numbers: list[int] = []
        errors: list[Exception] = []
        async with new_consumer(broker, topic, config) as consumer:
            numbers.append(number_of(await consumer.getone()))
            if is_own_fault:
                store.damage()
            else:
                store.fail(kind("not yours"))
            while len(numbers) + (len(errors) if is_own_fault else 0) < COUNT:
                try:
                    if how == "getone":
                        numbers.append(number_of(await consumer.getone()))
                    else:
                        for records in (await consumer.getmany(timeout_ms=1000, max_records=5)).values():
                            numbers += map(number_of, records)
                except kind as error:
                    errors.append(error)
        assert len(errors) <= 1
        missing = set(range(COUNT)) - set(numbers)
        assert len(missing) == len(errors) if is_own_fault else not missing
        assert numbers == sorted(set(numbers))

    run(main())


@pytest.mark.parametrize("how", ["getone", "getmany"])
@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_records_are_passed_over_by_policy(  # noqa: PLR0917  fixtures
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str, how: str, policy: str
) -> None:
    broker.create_topic(f"{topic}-dead")
    settings = {**config, "serde.error.policy": policy, "serde.dead.letter.topic": f"{topic}-dead"}
    dead_letters = None

    async def main() -> None:
        nonlocal dead_letters
        async with new_producer(broker, config) as producer:
            for number, value in enumerate(VALUES):
                await producer.send(topic, value, key=b"%d" % number, headers=[("n", b"%d" % number)])
        if policy == "dead-letter":
            dead_letters = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
        numbers: list[int] = []
        async with new_consumer(broker, topic, settings, dead_letters=dead_letters) as consumer:
            store.damage()
            while len(numbers) < COUNT - 1:
                if how == "getone":
                    numbers.append(number_of(await consumer.getone()))
                else:
                    for records in (await consumer.getmany(timeout_ms=1000)).values():
                        numbers += map(number_of, records)
            assert consumer.skipped == 1
        [missing] = set(range(COUNT)) - set(numbers)
        assert numbers == sorted(numbers)
        if policy == "skip":
            return
        async with AIOKafkaConsumer(
            f"{topic}-dead", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as reader:
            letter = await reader.getone()
        said = dict(letter.headers)
        assert (letter.key, said["n"], said["serde-chain-error-offset"]) == (b"%d" % missing,) * 3
        assert said["serde-chain-error-kind"] == b"PayloadIntegrityError"
        assert said["serde-chain-error-topic"] == topic.encode()
        assert "large-message-size" in said  # still a reference

    run(main())


@pytest.mark.parametrize("how", ["getone", "getmany"])
def test_a_dead_letter_topic_that_is_not_there(
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str, how: str
) -> None:
    """The consumer stays at the record until it is."""
    settings = {**config, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": f"{topic}-dead"}

    async def main() -> None:
        async with new_producer(broker, config) as producer:
            for number in range(2):
                await producer.send(topic, LARGE, headers=[("n", b"%d" % number)])
        dead_letters = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        async with new_consumer(broker, topic, settings, dead_letters=dead_letters) as consumer:
            for _ in range(2):
                store.damage()
                with pytest.raises(DeadLetterError, match="no such topic") as refused:
                    await (consumer.getone() if how == "getone" else consumer.getmany(timeout_ms=30_000, max_records=1))
                assert (refused.value.offset, refused.value.dead_letter_topic) == (0, f"{topic}-dead")
                assert consumer.skipped == 0
            broker.create_topic(f"{topic}-dead")
            store.damage()
            assert number_of(await consumer.getone()) == 1
            assert consumer.skipped == 1

    run(main())


def test_a_dead_letter_that_is_too_large_stops_nothing(broker: KafkaBroker, topic: str) -> None:
    broker.create_topic(f"{topic}-dead", 1, {"max.message.bytes": "1000"})
    dead = f"{topic}-dead"
    settings = {
        "value.serializers": "bytes",
        "value.deserializers": "json",
        "serde.error.policy": "dead-letter",
        "serde.dead.letter.topic": dead,
    }

    async def main() -> None:
        async with new_producer(broker, settings) as producer:
            for value in (b"x" * 2000, b"1"):
                await producer.send_and_wait(topic, value, key=b"k", headers=[("n", b"1")])
        dead_letters = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
        async with new_consumer(broker, topic, settings, dead_letters=dead_letters) as consumer:
            assert (await consumer.getone()).value == 1
            assert consumer.skipped == 1
        async with AIOKafkaConsumer(
            dead, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as reader:
            letter = await reader.getone()
        said = dict(letter.headers)
        assert (letter.key, letter.value, said["n"]) == (b"k", None, b"1")
        assert (said["serde-chain-error-offset"], said["serde-chain-error-dropped"]) == (b"0", b"value")

    run(main())


def test_dead_letters_need_a_producer(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    settings = {**config, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": f"{topic}-dead"}

    async def main() -> None:
        reader = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers)
        with pytest.raises(ConfigError, match="needs a producer"):
            Consumer(reader, settings)
        with pytest.raises(ConfigError, match="needs a topic"):
            Consumer(reader, {**config, "serde.error.policy": "dead-letter"})
        await reader.stop()

    run(main())


def test_a_batch_holds_no_more_payloads_than_allowed(
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**config, "large.message.downloads.max.bytes": 3 * len(LARGE)}
    asked: list[Transfer[Any]] = []
    add = Prefetch.add

    def noted(self: Prefetch, transfers: Iterable[Transfer[Any]]) -> list[Prefetched]:
        asked.extend(each := list(transfers))
        return add(self, each)

    monkeypatch.setattr(Prefetch, "add", noted)

    async def main() -> None:
        async with new_producer(broker, config) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, LARGE, headers=[("n", b"%d" % number)])
        numbers: list[int] = []
        sizes = []
        async with new_consumer(broker, topic, settings) as consumer:
            while len(numbers) < 10:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    sizes.append(len(records))
                    numbers += map(number_of, records)
        assert numbers == [*range(10)]
        assert max(sizes) == 3
        assert store.calls.count("download") == 10
        assert len(asked) == 10, "what is beyond the bound would be fetched, and dropped"

    run(main())


def test_a_payload_that_fails_before_its_turn_is_fetched_again(
    config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    """As with the other clients: the store may be back by then."""
    third_began = threading.Event()
    numbers: list[int] = []

    class Store(MemoryStore):
        def download(self, reference: str) -> bytes:
            payload = super().download(reference)
            numbers.append(number := payload[0])
            if number == 0:
                assert third_began.wait(SECONDS)
            elif number == 2:  # with two transfers in flight, the second has ended
                third_began.set()
            elif numbers.count(1) == 1:
                raise PayloadStoreUnavailableError("not now")
            return payload

    settings = {
        **config,
        "large.message.payload.store.class": Store(),
        "large.message.downloads.in.flight": 2,
    }

    async def main() -> None:
        async with new_producer(broker, settings) as producer:
            for number in range(3):
                await producer.send_and_wait(topic, bytes([number]) * 2000)
        async with new_consumer(broker, topic, settings) as consumer:
            [records] = (await consumer.getmany(timeout_ms=10_000)).values()
        assert [record.value for record in records] == [bytes([number]) * 2000 for number in range(3)]
        assert sorted(numbers) == [0, 1, 1, 2]

    run(main())


def test_behind_a_failure_of_the_store_no_record_waits_for_it(
    config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    """Each of them would take the store's deadline, one after the other."""
    numbers: list[int] = []

    class Store(MemoryStore):
        def download(self, reference: str) -> bytes:
            numbers.append(super().download(reference)[0])
            raise PayloadStoreUnavailableError("not now")

    settings = {**config, "large.message.payload.store.class": Store()}

    async def main() -> None:
        async with new_producer(broker, settings) as producer:
            for number in range(3):
                await producer.send_and_wait(topic, bytes([number]) * 2000)
        async with new_consumer(broker, topic, settings) as consumer:
            with pytest.raises(SerializationError, match="not now") as raised:
                await consumer.getmany(timeout_ms=10_000)
        assert raised.value.offset == 0
        assert [number for number in sorted(numbers) if number] == [1, 2]  # ahead of their turn, and not again

    run(main())


def test_keys_and_values_that_are_both_large(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    both = {"key.serializers": "bytes, large-message", "key.deserializers": "large-message"}

    async def main() -> None:
        async with new_producer(broker, {**config, **both}) as producer:
            await producer.send_and_wait(topic, LARGE, key=LARGE + b"key")
        async with new_consumer(broker, topic, {**config, **both}) as consumer:
            record = await consumer.getone()
        assert (record.key, record.value) == (LARGE + b"key", LARGE)

    run(main())


def test_what_a_cancelled_call_has_fetched_comes_with_the_next_one(
    config: dict[str, Any], store: FaultyStore, broker: KafkaBroker, topic: str
) -> None:
    async def main() -> None:
        async with new_producer(broker, config) as producer:
            await producer.send_and_wait(topic, LARGE)
        async with new_consumer(broker, topic, config) as consumer:
            with store.hanging():
                reading = asyncio.create_task(consumer.getone())
                while "download" not in store.calls:  # noqa: ASYNC110  another thread makes the call
                    await asyncio.sleep(0.01)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            assert (await consumer.getone()).offset == 0

    run(main())


def test_positions(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with new_producer(broker, config) as producer:
            assert await producer.partitions_for(topic) == {0}
            for value in VALUES:
                await producer.send(topic, value)
        place = TopicPartition(topic, 0)
        async with new_consumer(broker, topic, config, enable_auto_commit=False) as consumer:
            await consumer.getone()
            assert await consumer.position(place) == 1
            await consumer.commit()
            assert await consumer.committed(place) == 1
            consumer.seek(place, 5)
            assert (await consumer.getone()).offset == 5
            await consumer.seek_to_committed(place)
            assert (await consumer.getone()).offset == 1
            await consumer.seek_to_beginning(place)
            assert (await consumer.getone()).offset == 0
            await consumer.seek_to_end(place)
            assert await consumer.position(place) == COUNT
            consumer.pause(place)
            assert consumer.paused() == {place}
            consumer.resume(place)
            assert consumer.assignment() == {place}
            assert consumer.subscription() == {topic}
            consumer.unsubscribe()
            consumer.assign([place])

    run(main())


def test_a_crash_journal(config: dict[str, Any], broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    left = _memory().publish(topic, LARGE)
    with Journal(path) as journal:
        journal.intend(left)

    async def main() -> None:
        async with new_producer(broker, {**config, "large.message.journal.path": str(path)}) as producer:
            other = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            with pytest.raises(ConfigError, match="another producer"):
                Producer(other, {**config, "large.message.journal.path": str(path)})
            await other.stop()
            await producer.send_and_wait(topic, LARGE)

    run(main())
    assert left not in [info.reference for info in _memory().list(topic)]
    with Journal(path) as journal:
        assert journal.unsettled == ()


def test_a_failed_start_releases_the_journal(config: dict[str, Any], tmp_path: Path) -> None:
    journaled = {**config, "large.message.journal.path": str(tmp_path / "journal")}

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(KafkaConnectionError):
                async with Producer(AIOKafkaProducer(bootstrap_servers="127.0.0.1:1"), journaled):
                    pass

    run(main())


def test_a_policy_that_has_no_effect_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def make(**more: str) -> None:
        await RecordDecoder({"value.deserializers": "json", **more}).close()

    asyncio.run(make())
    assert caplog.messages == []
    asyncio.run(make(**{"serde.error.policy": "skip"}))
    (told,) = caplog.messages
    assert told.startswith("serde.error.policy = skip has no effect on single records")
    with pytest.raises(ConfigError, match="did you mean dead-letter"):
        asyncio.run(make(**{"serde.error.policy": "deadletter"}))


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_registry_does_not_hold_the_loop(
    broker: KafkaBroker, registry: SchemaRegistry, topic: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    fields = [{"name": f"f{at}", "type": "bytes", "default": ""} for at in range(2)]
    schemas = [json.dumps({"type": "record", "name": "R", "fields": fields[: at + 1]}) for at in range(2)]
    settings = {"value.serializer": "avro", "value.deserializer": "avro", "schema.registry.url": registry.url}
    get, goes_on = ConfluentRegistry.get, threading.Event()

    def slow(*arguments: Any) -> RegisteredSchema:
        assert goes_on.wait(20), "the loop stands still"
        return get(*arguments)

    async def main() -> None:
        read = []
        async with new_consumer(broker, topic, settings) as consumer:
            for schema in schemas:
                # Many, so that records count as quick to decode.
                count = 100 if schema is schemas[0] else 1
                async with new_producer(broker, {**settings, "avro.schema": schema}) as producer:
                    for _ in range(count):
                        await producer.send_and_wait(topic, {"f0": b"first", "f1": bytes(size)})
                if schema is schemas[1]:
                    monkeypatch.setattr(ConfluentRegistry, "get", slow)
                    asyncio.get_running_loop().call_later(0.1, goes_on.set)
                read += [(await consumer.getone()).value for _ in range(count)]
        assert [list(value or ()) for value in read] == [["f0"]] * 100 + [["f0", "f1"]]

    run(main())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing topics are not waited for."""
    monkeypatch.setattr("serde_chain.clients.aiokafka.producer._TOPIC_SECONDS", 0.0)


def test_a_topic_that_is_created_in_time_gets_its_record(broker: KafkaBroker, config: dict[str, Any]) -> None:
    async def main() -> None:
        topic = f"late-{uuid.uuid4()}"
        answers: list[bool] = []
        async with Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers), config) as producer:
            client = producer.client
            client.add_topic(topic)
            ask = client.force_metadata_update

            async def counted() -> bool:
                answers.append(await ask())
                if len(answers) == 3:  # the record waits by then
                    broker.create_topic(topic)
                return answers[-1]

            client.force_metadata_update = lambda: asyncio.ensure_future(counted())
            assert (await producer.send_and_wait(topic, b"1")).offset == 0
        assert len(answers) > 3

    run(main())


@pytest.mark.usefixtures("impatient")
def test_a_missing_topic_is_named(broker: KafkaBroker, config: dict[str, Any]) -> None:
    async def main() -> None:
        missing = f"missing-{uuid.uuid4()}"
        async with Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers), config) as producer:
            with pytest.raises(UnknownTopicOrPartitionError, match=f"the topic '{missing}' does not exist"):
                await producer.send(missing, b"2")
            broker.create_topic(missing)
            assert (await producer.send_and_wait(missing, b"3")).offset == 0

    run(main())


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_deleted_later_is_named(broker: KafkaBroker, config: dict[str, Any]) -> None:
    async def main() -> None:
        topic = f"deleted-{uuid.uuid4()}"
        broker.create_topic(topic)
        async with Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers), config) as producer:
            await producer.send_and_wait(topic, b"1")
            admin = broker.admin()
            admin.delete_topics([topic])[topic].result(30)
            while producer.client.cluster.partitions_for_topic(topic) is not None:
                await producer.client.force_metadata_update()
            with pytest.raises(UnknownTopicOrPartitionError, match=f"the topic '{topic}' does not exist"):
                await producer.send(topic, b"2")

    run(main())


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_goes_a_second_time_is_waited_for_again(
    broker: KafkaBroker, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        topic = f"goes-{uuid.uuid4()}"
        answers: list[bool] = []
        async with Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers), config) as producer:
            client = producer.client
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send(topic, b"1")
            broker.create_topic(topic)
            while client.cluster.partitions_for_topic(topic) is None:
                await client.force_metadata_update()
            await producer.send_and_wait(topic, b"2")
            admin = broker.admin()
            admin.delete_topics([topic])[topic].result(30)
            while client.cluster.partitions_for_topic(topic) is not None:
                await client.force_metadata_update()
            monkeypatch.setattr("serde_chain.clients.aiokafka.producer._TOPIC_SECONDS", 60.0)
            ask = client.force_metadata_update

            async def counted() -> bool:
                answers.append(await ask())
                if len(answers) == 4:
                    broker.create_topic(topic)
                return answers[-1]

            client.force_metadata_update = lambda: asyncio.ensure_future(counted())
            assert (await producer.send_and_wait(topic, b"3")).offset == 0

    run(main())


def test_records_of_a_missing_topic_share_its_time(
    broker: KafkaBroker, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        missing = f"missing-{uuid.uuid4()}"
        async with Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers), config) as producer:
            with monkeypatch.context() as first:
                first.setattr("serde_chain.clients.aiokafka.producer._TOPIC_SECONDS", 0.0)
                with pytest.raises(UnknownTopicOrPartitionError):
                    await producer.send(missing, b"1")
            monkeypatch.setattr("serde_chain.clients.aiokafka.producer._TOPIC_SECONDS", 10_000.0)
            sent = [asyncio.create_task(producer.send(missing, b"2")) for _ in range(3)]
            errors = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(error) for error in errors] == [UnknownTopicOrPartitionError] * 3

    run(main())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answers", [[True], [False, False]], ids=["to an older question", "none"])
def test_an_existing_topic_is_not_called_missing(
    broker: KafkaBroker, config: dict[str, Any], answers: list[bool]
) -> None:
    """The answer may be one to a question from before the topic's first record, or no broker may answer."""

    async def main() -> None:
        topic = f"there-{uuid.uuid4()}"
        async with Producer(AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers), config) as producer:
            client = producer.client
            client.add_topic(topic)
            await client.force_metadata_update()
            broker.create_topic(topic)
            ask = client.force_metadata_update

            def in_its_place() -> asyncio.Future[bool]:
                answer = asyncio.get_running_loop().create_future()
                answer.set_result(answers.pop(0))
                if not answers:
                    client.force_metadata_update = ask
                return answer

            client.force_metadata_update = in_its_place
            assert (await producer.send_and_wait(topic, b"1")).offset == 0

    run(main())
