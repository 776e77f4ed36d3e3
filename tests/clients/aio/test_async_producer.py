"""AsyncProducer on the real broker."""

import asyncio
import itertools
import logging
import os
import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.aio import AIOProducer

from payload_stores import PayloadAccessDeniedError
from payload_stores.testing import FaultyStore
from serde_chain import AsyncProducer, EncodeError
from serde_chain.testing.services import KafkaBroker

SECONDS = 30.0
LARGE = bytes(2000)
VERY_LARGE = bytes(1 << 19)


def read(broker: KafkaBroker, topic: str, count: int) -> list[Any]:
    """Records as they are in the topic, without what was committed nowhere."""
    consumer = confluent_kafka.Consumer(
        {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    messages: list[Any] = []
    while len(messages) < count and (more := consumer.consume(count - len(messages), SECONDS)):
        messages += more
    consumer.close()
    return messages


def test_every_call_of_confluents_client_is_there() -> None:
    names = {name for name in dir(AIOProducer) if not name.startswith("_")}
    assert names - set(dir(AsyncProducer)) == set()


def test_a_record_with_headers_is_delivered(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(config) as producer:
            small = await producer.produce(topic, b"small", key=b"k", headers=[("band", b"g")], timestamp=1000)
            large = await producer.produce(topic, LARGE, headers={"band": b"r"}, partition=0)
            messages = [await small, await large]
            assert [(message.topic(), message.offset()) for message in messages] == [(topic, 0), (topic, 1)]

    asyncio.run(main())
    first, second = read(broker, topic, 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"small", [("band", b"g")])
    assert first.timestamp()[1] == 1000
    assert dict(second.headers())["band"] == b"r"
    assert second.value().startswith(b"memory:///")


def test_records_of_all_sizes_leave_in_call_order(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    values = [[b"small", LARGE, VERY_LARGE, b"x" * 300_000][number % 4] for number in range(60)]

    async def main() -> None:
        async with AsyncProducer(config) as producer:
            # From now on, small ones are encoded on the loop, where nothing is before them.
            await (await producer.produce(topic, b"first", headers=[("n", b"-1")]))
            calls = [
                asyncio.create_task(producer.produce(topic, value, headers=[("n", b"%d" % number)]))
                for number, value in enumerate(values)
            ]
            for call in calls:
                await (await call)

    asyncio.run(main())
    numbers = [int(dict(message.headers())["n"]) for message in read(broker, topic, len(values) + 1)]
    assert numbers == list(range(-1, len(values)))


def test_an_upload_that_fails_is_reported_by_the_future(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    store.fail(PayloadAccessDeniedError("not yours"))

    async def main() -> None:
        async with AsyncProducer(config) as producer:
            failing = await producer.produce(topic, LARGE)
            after = await producer.produce(topic, b"after")
            with pytest.raises(KafkaException, match="not yours") as caught:
                await failing
            assert isinstance(caught.value.__cause__, PayloadAccessDeniedError)
            assert (await after).offset() == 0

    asyncio.run(main())


@pytest.mark.parametrize("value", ["not bytes", {"not": bytes(1 << 20)}])
def test_a_value_that_no_stage_takes_is_an_error_of_the_call(config: dict[str, Any], topic: str, value: object) -> None:
    async def main() -> None:
        async with AsyncProducer({**config, "value.serializers": "json", "value.deserializers": "json"}) as producer:
            await (await producer.produce(topic, [1]))
            with pytest.raises(EncodeError):
                await producer.produce(topic, {1, 2})
            with pytest.raises(EncodeError):
                await producer.produce(topic, [value, {1, 2}, "x" * 300_000])
            # The report of the first is counted until the call that has served it ends.
            assert await producer.flush(60) == 0
            assert len(producer) == 0

    asyncio.run(main())


def test_small_records_take_no_thread(config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine any record may take long, and then the next one takes a thread.
    monkeypatch.setattr("serde_chain.clients.event_loop._LONG_SECONDS", SECONDS)
    threads = set()

    def stage(value: bytes, _ctx: object) -> bytes:
        threads.add(threading.current_thread())
        return value

    async def main() -> None:
        async with AsyncProducer({**config, "value.serializers": [stage, "large-message"]}) as producer:
            await (await producer.produce(topic, b"first"))
            threads.clear()
            deliveries = [await producer.produce(topic, b"%d" % number) for number in range(100)]
            assert threads == {threading.main_thread()}
            threads.clear()
            deliveries.append(await producer.produce(topic, VERY_LARGE))
            assert threading.main_thread() not in threads
            await asyncio.gather(*deliveries)

    asyncio.run(main())


NESTED = {
    "bytes": {"alert": {"cutouts": [{"stamp": b"x" * 1000} for _ in range(2000)]}},
    "numbers": {"light": {"curve": [[1.0, 2.0] for _ in range(50_000)]}},
    "behind others": [*range(500), {"image": {"data": bytes(1 << 21)}}],
}


@pytest.mark.parametrize("value", NESTED.values(), ids=NESTED)
def test_nested_values_are_encoded_in_threads(
    config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setattr("serde_chain.clients.event_loop._LONG_SECONDS", SECONDS)
    threads = []

    def stage(_value: object, _ctx: object) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return b""

    async def main() -> None:
        async with AsyncProducer({**config, "value.serializers": [stage]}) as producer:
            for each in ({"id": 0}, {"id": 1}, value, {"id": 2}, {"id": 3}, value):
                await (await producer.produce(topic, each))

    asyncio.run(main())
    assert threads == [False, True, False, True, True, False]


def test_what_took_long_once_is_remembered(config: dict[str, Any], topic: str) -> None:
    """Of objects whose size shows nowhere, one in some was large."""
    threads = []

    class Opaque:
        seconds = 0.0

    class Long(Opaque):
        seconds = 0.05

    def stage(value: Opaque, _ctx: object) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        threading.Event().wait(value.seconds)
        return b""

    async def main() -> None:
        async with AsyncProducer({**config, "value.serializers": [stage]}) as producer:
            for each in (Long(), Opaque(), Long(), Opaque(), Opaque(), Long()):
                await (await producer.produce(topic, each))

    asyncio.run(main())
    assert not any(threads)


def test_many_small_records_leave_the_loop_to_others(
    config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()
    # A millisecond each time that it is looked at.
    monkeypatch.setattr("serde_chain.clients.event_loop._now", lambda: next(clock) / 1000, raising=False)
    turns = []

    async def main() -> None:
        async with AsyncProducer(config) as producer:
            await (await producer.produce(topic, b"first"))

            async def other() -> None:
                while True:
                    turns.append(len(deliveries))
                    await asyncio.sleep(0)

            deliveries: list[Any] = []
            task = asyncio.create_task(other())
            while len(deliveries) < 200:
                deliveries.append(await producer.produce(topic, b"small"))
            task.cancel()
            await asyncio.gather(*deliveries)

    asyncio.run(main())
    assert max(after - before for before, after in itertools.pairwise([0, *turns, 200])) <= 10


def test_a_coroutine_that_sleeps_goes_on_within_ten_milliseconds_of_small_records(
    config: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it costs is several turns of the loop: its timer ends in one, and it goes on in the next."""
    clock = itertools.count()
    # A tenth of a millisecond each time that it is looked at.
    monkeypatch.setattr("serde_chain.clients.event_loop._now", lambda: next(clock) / 10_000)
    pauses = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        # Reports of deliveries take turns of the loop too, as many as the broker likes: they come afterwards.
        async with AsyncProducer({**config, "linger.ms": 100_000}) as producer:
            first = await producer.produce(topic, b"first")
            await producer.flush(SECONDS)
            await first
            monkeypatch.setattr(loop, "time", lambda: next(clock) / 10_000)

            async def other() -> None:
                while True:
                    began = loop.time()
                    await asyncio.sleep(0.001)
                    pauses.append(loop.time() - began - 0.001)

            task = asyncio.create_task(other())
            deliveries = [await producer.produce(topic, b"small") for _ in range(2000)]
            task.cancel()
            monkeypatch.undo()
            await producer.flush(SECONDS)
            await asyncio.gather(*deliveries)

    asyncio.run(main())
    assert len(pauses) > 10
    assert max(pauses) <= 0.01


def test_a_slow_stage_does_not_hold_up_the_loop(config: dict[str, Any], topic: str) -> None:
    """The first record of a topic, which may have to ask a registry, and those after one that took long."""
    is_looped = threading.Event()

    def stage(value: bytes, _ctx: object) -> bytes:
        assert is_looped.wait(SECONDS), "the event loop stands still"
        return value

    async def main() -> None:
        async with AsyncProducer({**config, "value.serializers": [stage]}) as producer:
            call = asyncio.create_task(producer.produce(topic, b"v"))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(is_looped.set)
            await (await call)

    asyncio.run(main())


def test_a_pipe_without_data_does_not_hold_up_the_loop(config: dict[str, Any], broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(config) as producer:
            for _ in range(2):  # from now on it is known that records are encoded quickly
                await (await producer.produce(topic, b"first"))
            out, into = os.pipe()
            with os.fdopen(out, "rb") as file:
                call = asyncio.create_task(producer.produce(topic, file))
                await asyncio.sleep(0)
                os.write(into, b"data")
                os.close(into)
                await (await call)

    deadline = threading.Timer(SECONDS, lambda: os._exit(1))  # a loop that is blocked cannot be interrupted
    deadline.start()
    asyncio.run(main())
    deadline.cancel()
    assert [message.value() for message in read(broker, topic, 3)] == [b"first", b"first", b"data"]


def test_a_record_whose_caller_is_cancelled_is_sent_in_its_turn(
    config: dict[str, Any], broker: KafkaBroker, topic: str
) -> None:
    may_go_on = threading.Event()
    has_begun = threading.Event()

    def stage(value: bytes, _ctx: object) -> bytes:
        has_begun.set()
        assert may_go_on.wait(SECONDS)
        return value

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with AsyncProducer({**config, "value.serializers": [stage]}) as producer:
            first = asyncio.create_task(producer.produce(topic, b"first"))
            await loop.run_in_executor(None, has_begun.wait, SECONDS)
            second = asyncio.create_task(producer.produce(topic, b"second"))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            may_go_on.set()
            await (await second)

    asyncio.run(main())
    assert [message.value() for message in read(broker, topic, 2)] == [b"first", b"second"]


def test_a_record_whose_caller_is_cancelled_and_that_fails_is_logged(
    config: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    may_go_on = threading.Event()

    def stage(_value: bytes, _ctx: object) -> bytes:
        assert may_go_on.wait(SECONDS)
        raise EncodeError("it does not fit")

    async def main() -> None:
        async with AsyncProducer({**config, "value.serializers": [stage]}) as producer:
            call = asyncio.create_task(producer.produce(topic, b"v"))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            may_go_on.set()

    with caplog.at_level(logging.ERROR, "serde_chain"):
        asyncio.run(main())
    assert f"a record of {topic} was not sent: it does not fit" in caplog.text


def test_produce_waits_for_room(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    async def main() -> None:
        settings = {**config, "large.message.buffer.bytes": 5000, "max.block.ms": 30_000}
        async with AsyncProducer(settings) as producer:
            await (await producer.produce(topic, b"first"))
            with store.hanging():
                deliveries = [await producer.produce(topic, LARGE) for _ in range(2)]
                waiting = asyncio.create_task(producer.produce(topic, LARGE))
                done, _ = await asyncio.wait([waiting], timeout=0.2)
                assert not done
            await asyncio.gather(*deliveries, await waiting)

    asyncio.run(main())


def test_a_full_client_is_waited_for(config: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        settings = {**config, "queue.buffering.max.messages": 10, "linger.ms": 20}
        async with AsyncProducer(settings) as producer:
            deliveries = [await producer.produce(topic, b"%d" % number) for number in range(60)]
            offsets = [(await delivery).offset() for delivery in deliveries]
            assert offsets == list(range(60))

    asyncio.run(main())


@pytest.mark.full
def test_no_room_for_too_long_is_an_error(config: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        settings = {
            **config, "bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 1, "max.block.ms": 300,
            "large.message.store.timeout.ms": 300, "message.timeout.ms": 1000,
        }  # fmt: skip
        producer = AsyncProducer(settings)
        delivery = await producer.produce(topic, b"v")
        with pytest.raises(BufferError):
            await producer.produce(topic, b"v")
        with pytest.raises(KafkaException, match="timed out"):
            await delivery
        await producer.close()

    asyncio.run(main())


@pytest.mark.full
def test_flush_purge_and_len(config: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        producer = AsyncProducer({**config, "bootstrap.servers": "127.0.0.1:1"})
        deliveries = [await producer.produce(topic, value) for value in (b"small", LARGE)]
        assert await producer.flush(0.3) == len(producer) > 0
        await producer.purge()
        assert await producer.flush(SECONDS) == 0
        for delivery in deliveries:
            with pytest.raises(KafkaException, match="Purged"):
                await delivery
        await producer.close()
        await producer.close()
        with pytest.raises(RuntimeError):
            await producer.produce(topic, b"v")

    asyncio.run(main())


def test_poll_waits_for_deliveries(config: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(config) as producer:
            assert await producer.poll(0) == 0
            delivery = await producer.produce(topic, b"v")
            assert await producer.poll(SECONDS) == 1
            assert delivery.done()

    asyncio.run(main())


def test_transactions(config: dict[str, Any], broker: KafkaBroker, store: FaultyStore, topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer({**config, "transactional.id": topic}) as producer:
            await producer.init_transactions(SECONDS)
            await producer.begin_transaction()
            aborted = await producer.produce(topic, LARGE)
            await producer.flush(SECONDS)
            await producer.abort_transaction(SECONDS)
            await asyncio.wait([aborted])
            await producer.begin_transaction()
            await producer.produce(topic, LARGE, headers=[("n", b"1")])
            await producer.commit_transaction(SECONDS)

    asyncio.run(main())
    (message,) = read(broker, topic, 1)
    assert dict(message.headers())["n"] == b"1"
    assert store.download(message.value().decode()) == LARGE


# confluent_kafka's own, of a producer that is closed within a transaction
@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning")
@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction", "flush", "poll", "close"])
def test_a_producer_that_is_fenced_says_so(
    config: dict[str, Any], broker: KafkaBroker, topic: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    config |= {"transactional.id": f"id-{topic}"}

    async def main() -> None:
        producer = AsyncProducer({**config, "linger.ms": 100})
        await producer.init_transactions(SECONDS)
        await producer.begin_transaction()
        first = await producer.produce(topic, LARGE)
        await first
        other = confluent_kafka.Producer(
            {**broker.client_config(), "transactional.id": config["transactional.id"], "log_level": 0}
        )
        await asyncio.to_thread(other.init_transactions, SECONDS)
        deliveries = [await producer.produce(topic, value) for value in 5 * [b"small", LARGE]]
        with pytest.raises(KafkaException) as caught:
            await (producer.close() if call == "close" else getattr(producer, call)(SECONDS))
        assert caught.value.args[0].code() == KafkaError._FENCED
        await producer.close()
        async with asyncio.timeout(SECONDS):
            for failure in await asyncio.gather(*deliveries, return_exceptions=True):
                assert isinstance(failure, KafkaException)

    asyncio.run(main())
    assert "callback" not in caplog.text, "none has failed"


def test_callbacks_may_be_coroutines(config: dict[str, Any]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        async def error_cb(_error: object) -> None:
            assert asyncio.get_running_loop() is loop
            told.set()

        producer = AsyncProducer({**config, "bootstrap.servers": "127.0.0.1:1"}, error_cb=error_cb)
        await asyncio.wait_for(told.wait(), SECONDS)
        await producer.close()

    asyncio.run(main())


def test_cluster(config: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(config) as producer:
            assert topic in (await producer.list_topics(timeout=SECONDS)).topics
            assert await producer.cluster_id(SECONDS)

    asyncio.run(main())
