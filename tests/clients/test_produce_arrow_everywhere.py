"""``produce_arrow`` of all producers: order, failed uploads, transactions, bad rows."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer

from payload_stores import PayloadAccessDeniedError
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import AsyncProducer, ConfigError, EncodeError, Producer, SerializationError
from serde_chain.clients import aiokafka
from serde_chain.testing.services import KafkaBroker

SECONDS = 30.0
SCHEMA = """{"type": "record", "name": "Image", "fields": [
    {"name": "id", "type": "string"}, {"name": "pixels", "type": "bytes"}]}"""
REFUSED = b"not this one" * 500
Open = Callable[..., AbstractAsyncContextManager[Any]]


class _Store(FaultyStore):
    """Refuses some payloads, whenever they come."""

    def call(self, operation: Callable[..., Any], *args: Any) -> Any:
        if operation.__name__ == "publish" and REFUSED in bytes(args[1]):
            raise PayloadAccessDeniedError("not yours")
        return super().call(operation, *args)


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    store = _Store(MemoryStore())
    store.configure({})
    yield store
    MemoryStore.clear()


@pytest.fixture
def config(broker: KafkaBroker, store: FaultyStore) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "log_level": 0,
        "linger.ms": 0,
        "key.serializer": "string",
        "value.serializers": "avro, large-message",
        "avro.schema": SCHEMA,
        "large.message.threshold.bytes": 1000,
        "large.message.payload.store.class": store,
    }


class _Awaited:
    """A blocking producer, with its calls awaited."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(asyncio.to_thread, getattr(self.producer, name))


@asynccontextmanager
async def _blocking(config: dict[str, Any]) -> AsyncIterator[Any]:
    with Producer(config) as producer:
        if "transactional.id" in config:
            producer.init_transactions(SECONDS)
        yield _Awaited(producer)


@asynccontextmanager
async def _aio(config: dict[str, Any]) -> AsyncIterator[Any]:
    async with AsyncProducer(config) as producer:
        if "transactional.id" in config:
            await producer.init_transactions(SECONDS)
        yield producer


@asynccontextmanager
async def _aiokafka(config: dict[str, Any]) -> AsyncIterator[Any]:
    client = AIOKafkaProducer(
        bootstrap_servers=config["bootstrap.servers"], transactional_id=config.get("transactional.id")
    )
    async with aiokafka.Producer(client, config) as producer:
        yield producer


EVERY = pytest.mark.parametrize("client", [_blocking, _aio, _aiokafka])
ASYNC = pytest.mark.parametrize("client", [_aio, _aiokafka])


def images(*pixels: bytes, prefix: str = "M") -> Any:
    return pa.table({"id": [f"{prefix} {row}" for row in range(len(pixels))], "pixels": list(pixels)})


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


def keys(broker: KafkaBroker, topic: str, count: int) -> list[str]:
    """The keys of the committed records, in order."""
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0}
    consumer = confluent_kafka.Consumer({**broker.client_config(), **settings})
    consumer.subscribe([topic])
    found: list[str] = []
    while message := consumer.poll(SECONDS):
        if message.error() is None:
            found.append((message.key() or b"").decode())
        elif len(found) >= count:  # the end of the partition
            break
    consumer.close()
    return found


@EVERY
@pytest.mark.parametrize("stages", ["avro, large-message", "avro, encrypt, large-message"])
def test_rows_are_sent_in_order(
    client: Open, stages: str, config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    config |= {"value.serializers": stages}
    if "encrypt" in stages:  # a stage that needs the record's topic
        config |= {"encryption.keys": {"k": bytes(32)}, "encryption.key.id": "k"}
    reports: list[Any] = []
    threads: set[threading.Thread] = set()

    def report(error: Any, _message: Any) -> None:
        reports.append(error)
        threads.add(threading.current_thread())

    table = images(*(bytes(5000 if row % 3 == 0 else 5) for row in range(40)))

    async def main() -> None:
        async with client(config) as producer:
            first = asyncio.create_task(producer.produce_arrow(table, topic, key="id", on_delivery=report))
            if client is _blocking:
                await first
            else:
                await asyncio.sleep(0)  # it has its turn
            assert await producer.produce_arrow(images(b"last", prefix="N"), topic, "id") == 1
            assert await first == 40
            await producer.flush()
            assert len(reports) == 40
        assert reports == [None] * 40
        assert client is _blocking or threads == {threading.current_thread()}

    run(main)
    assert keys(broker, topic, 41) == [*table["id"].to_pylist(), "N 0"]


@EVERY
def test_of_uploads_that_fail_the_others_are_delivered(
    client: Open, config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    reports: list[Any] = []
    table = images(b"small", bytes(5000), REFUSED, b"small", bytes(5000), REFUSED, bytes(5000))

    async def main() -> None:
        async with client(config) as producer:
            count = await producer.produce_arrow(
                table, topic, "id", on_delivery=lambda error, _message: reports.append(error)
            )
            await producer.flush()
            assert count == len(reports) == 7

    run(main)
    failures = [error for error in reports if error is not None]
    causes = [error if client is _aiokafka else error.__cause__ for error in failures]
    assert sorted(error.row for error in causes) == [2, 5]
    assert all(isinstance(error, PayloadAccessDeniedError) for error in causes)
    assert keys(broker, topic, 5) == ["M 0", "M 1", "M 3", "M 4", "M 6"]


@EVERY
def test_a_failed_upload_that_nobody_asks_about_is_logged(
    client: Open, config: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with client(config) as producer:
            await producer.produce_arrow(images(REFUSED), topic)
            await producer.flush()

    run(main)
    assert [topic in text and "row=0" in text for text in caplog.messages] == [True]


@EVERY
def test_transactions(
    client: Open, config: dict[str, Any], broker: KafkaBroker, store: FaultyStore, topic: str
) -> None:
    pixels = [bytes(5000), b"small", bytes(5000)]

    async def main() -> None:
        async with client({**config, "transactional.id": topic}) as producer:
            await producer.begin_transaction()
            await producer.produce_arrow(images(*pixels, prefix="aborted"), topic, "id")
            await producer.flush()
            assert len(list(store.list(topic))) == 2
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.produce_arrow(images(*pixels, prefix="failed"), topic, "id")
            await producer.produce_arrow(images(REFUSED), topic, "id")
            with pytest.raises((confluent_kafka.KafkaException, PayloadAccessDeniedError), match="not yours"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            await producer.begin_transaction()
            assert await producer.produce_arrow(images(*pixels), topic, "id") == 3
            await producer.commit_transaction()

    run(main)
    assert keys(broker, topic, 3) == ["M 0", "M 1", "M 2"]
    # Those of aborted transactions are deleted, at the latest when the producer is closed.
    assert len(list(store.list(topic))) == 2


@EVERY
def test_rows_before_a_wrong_one_are_sent(
    client: Open, config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    table = pa.table({"id": ["M 0", "M 1", "M 2"], "flux": [1.0, float("nan"), 2.0]})

    async def main() -> None:
        async with client({**config, "value.serializers": "json, large-message"}) as producer:
            with pytest.raises(EncodeError) as raised:
                await producer.produce_arrow(table, topic, "id")
            assert raised.value.row == 1
            with pytest.raises(ConfigError, match="no column nam of keys"):
                await producer.produce_arrow(table, topic, "nam")
        async with client({"bootstrap.servers": config["bootstrap.servers"]}) as producer:
            with pytest.raises(ConfigError, match="requires a chain of values"):
                await producer.produce_arrow(table, topic)

    run(main)
    assert keys(broker, topic, 1) == ["M 0"]


def test_without_room_the_error_names_the_row(config: dict[str, Any]) -> None:
    limits = {
        "bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 5, "max.block.ms": 50,
        "large.message.store.timeout.ms": 50,
    }  # fmt: skip

    async def main() -> None:
        producer = AsyncProducer({**config, **limits})
        with pytest.raises(BufferError, match="row 5 of the table"):
            await producer.produce_arrow(images(*[b"small"] * 9), "alerts")
        assert len(producer) == 5
        await producer.purge()
        await producer.close()

    run(main)


@ASYNC
def test_the_loop_proceeds(client: Open, config: dict[str, Any], topic: str) -> None:
    proceeded = threading.Event()

    def waits(value: bytes, _ctx: object) -> bytes:
        if not proceeded.wait(SECONDS):
            raise SerializationError("the loop is held")
        return value

    async def main() -> None:
        async with client({**config, "value.serializers": ["json", waits]}) as producer:
            sending = asyncio.create_task(producer.produce_arrow(pa.table({"id": ["M 51"]}), topic))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.01, proceeded.set)
            assert await sending == 1

    run(main)


@ASYNC
def test_a_call_that_is_cancelled_loses_no_row_in_the_middle(
    client: Open, config: dict[str, Any], broker: KafkaBroker, store: FaultyStore, topic: str
) -> None:
    """It continues, or ends: what is sent are the first rows, before all later calls."""
    table = images(*[bytes(5000)] * 6)

    async def main() -> None:
        async with client({**config, "large.message.buffer.bytes": 12_000}) as producer:
            with store.hanging():
                sending = asyncio.create_task(producer.produce_arrow(table, topic, "id"))
                while len(store.calls) < 2:  # noqa: ASYNC110  of a thread
                    await asyncio.sleep(0.001)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
            assert await producer.produce_arrow(images(b"after", prefix="N"), topic, "id") == 1

    run(main)
    *before, last = keys(broker, topic, 3)
    assert last == "N 0"
    assert before == table["id"].to_pylist()[: len(before)]
    assert len(before) == 6 or client is _aiokafka


def test_a_callback_that_fails_is_logged(config: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[object] = []

    def report(error: object, _message: object) -> None:
        calls.append(error)
        raise ZeroDivisionError

    async def main() -> None:
        async with AsyncProducer(config) as producer:
            await producer.produce_arrow(images(b"a", b"b"), topic, on_delivery=report)

    run(main)
    assert calls == [None, None]
    assert caplog.messages == ["a callback of the producer failed"] * 2
