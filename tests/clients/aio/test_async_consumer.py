"""AsyncConsumer on the real broker."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.aio import AIOConsumer

from payload_stores.testing import FaultyStore
from serde_chain import AsyncConsumer, AsyncProducer, Consumer, PayloadIntegrityError, Producer
from serde_chain.clients.event_loop import Call
from serde_chain.testing.services import KafkaBroker

SECONDS = 30.0
COUNT = 20
VALUES = [(b"%d " % number) * (1000 if number % 3 == 0 else 1) for number in range(COUNT)]


@pytest.fixture
def filled(config: dict[str, Any], topic: str) -> str:
    """A topic with some large records."""
    with Producer(config) as producer:
        for number, value in enumerate(VALUES):
            producer.produce(topic, value, headers=[("n", b"%d" % number)])
    return topic


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 100))


def found_in(message: Any) -> bytes:
    assert message.error() is None
    number = int(dict(message.headers())["n"])
    assert message.offset() == number
    return bytes(message.value())


def test_every_call_of_confluents_client_is_there() -> None:
    names = {name for name in dir(AIOConsumer) if not name.startswith("_")}
    assert names - set(dir(AsyncConsumer)) == set()
    ours = {name for name in dir(Consumer) if not name.startswith("_")}
    # A cancelled call's records come again by themselves.
    assert ours - set(dir(AsyncConsumer)) == {"is_cut", "take_back"}


@pytest.mark.parametrize("how", ["poll", "consume", "for", "arrow"])
def test_records_come_with_headers_and_in_order(config: dict[str, Any], filled: str, how: str) -> None:
    async def main() -> None:
        values: list[bytes] = []
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled])
            if how == "for":
                async for message in consumer:
                    values.append(found_in(message))
                    if len(values) == COUNT:
                        break
            while len(values) < COUNT:
                if how == "arrow":
                    values += (await consumer.consume_arrow(COUNT, 1)).column("value").to_pylist()
                elif how == "consume":
                    values += map(found_in, await consumer.consume(COUNT - len(values), SECONDS))
                else:
                    values.append(found_in(await consumer.poll(SECONDS)))
        assert values == VALUES

    run(main())


@pytest.mark.full
def test_a_batch_ends_where_its_payloads_fill_the_bound(config: dict[str, Any], filled: str) -> None:
    async def main() -> None:
        batches: list[list[bytes]] = []
        async with AsyncConsumer({**config, "large.message.downloads.max.bytes": 4_000}) as consumer:
            await consumer.subscribe([filled])
            while missing := COUNT - sum(map(len, batches)):
                batches.append([found_in(message) for message in await consumer.consume(missing, SECONDS)])
        assert [value for batch in batches for value in batch] == VALUES
        assert max(sum(len(value) for value in batch if len(value) > 100) for batch in batches) < 4_000 + 3_000

    run(main())


def test_consume_waits_for_as_many_as_were_asked_for(config: dict[str, Any], filled: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled])
            assert len(await consumer.consume(COUNT)) == COUNT
            assert await consumer.consume(1, 0.3) == []
            assert await consumer.poll(0.3) is None

    run(main())


class Victim:
    """Cancels a task when the result of its call is there, and the task has not seen it."""

    task: "asyncio.Task[Any] | None" = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        succeed = Call._succeed

        def succeed_in_vain(call: Call[Any], result: Any) -> None:
            succeed(call, result)
            task, self.task = self.task, None
            if task is not None:
                task.cancel()

        monkeypatch.setattr(Call, "_succeed", succeed_in_vain)

    async def cancel(self, call: Coroutine[Any, Any, Any]) -> None:
        self.task = asyncio.create_task(call)
        with pytest.raises(asyncio.CancelledError):
            await self.task


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_what_a_cancelled_call_has_fetched_comes_with_the_next_one(
    config: dict[str, Any], filled: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        values: list[bytes] = []
        victim = Victim(monkeypatch)
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled])
            while len(values) < COUNT:
                await victim.cancel(consumer.poll(SECONDS) if how == "poll" else consumer.consume(4, SECONDS))
                messages = [await consumer.poll(SECONDS)] if how == "poll" else await consumer.consume(4, SECONDS)
                values += map(found_in, messages)
        assert values == VALUES

    run(main())


@pytest.mark.parametrize("turns", range(5))
def test_a_call_may_be_cancelled_at_any_moment(config: dict[str, Any], filled: str, turns: int) -> None:
    """After so many turns of the event loop; it may be done by then."""

    async def main() -> None:
        values: list[bytes] = []
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled])
            while len(values) < COUNT:
                calls = [asyncio.create_task(consumer.poll(SECONDS)) for _ in range(2)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
                values += [found_in(call.result()) for call in calls if not call.cancelled()]
                if len(values) < COUNT:
                    values.append(found_in(await consumer.poll(SECONDS)))
        assert values == VALUES

    run(main())


def test_the_offset_of_what_reached_no_one_is_not_committed(
    config: dict[str, Any], filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncConsumer({**config, "enable.auto.commit": False}) as consumer:
            await consumer.subscribe([filled])
            first = await consumer.poll(SECONDS)
            assert first is not None
            await Victim(monkeypatch).cancel(consumer.poll(SECONDS))
            await consumer.commit(asynchronous=False)
            (committed,) = await consumer.committed([TopicPartition(filled, 0)], SECONDS)
            assert committed.offset == 1
            second = await consumer.poll(SECONDS)
            assert second is not None
            assert second.offset() == 1

    run(main())


def test_a_timeout_around_a_call_loses_nothing(config: dict[str, Any], filled: str) -> None:
    async def main() -> None:
        values: list[bytes] = []
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled])
            while len(values) < COUNT:
                try:
                    async with asyncio.timeout(0.001 * (len(values) + 1)):
                        async for message in consumer:
                            values.append(found_in(message))  # noqa: PERF401  what came before the timeout counts
                except TimeoutError:
                    pass
        assert values == VALUES

    run(main())


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_callbacks_run_on_the_loop_and_may_call_the_consumer(config: dict[str, Any], filled: str, kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        told: list[str] = []

        async def assigned(of: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            assert asyncio.get_running_loop() is loop
            assert of is consumer
            told.append("assigned")
            for partition in partitions:
                partition.offset = OFFSET_BEGINNING
            await asyncio.sleep(0)
            await asyncio.gather(of.assign(partitions), of.assignment())
            # A task that outlives the callback makes its calls in their turn.
            tasks.append(asyncio.create_task(later(of)))

        async def later(of: AsyncConsumer) -> list[TopicPartition]:
            await asyncio.sleep(0.3)
            return await of.assignment()

        async def revoked(of: AsyncConsumer, _partitions: list[TopicPartition]) -> None:
            await of.commit(asynchronous=False)
            told.append("revoked")

        def plainly(_of: AsyncConsumer, _partitions: list[TopicPartition]) -> None:
            assert asyncio.get_running_loop() is loop
            told.append("plainly")

        tasks: list[asyncio.Task[Any]] = []
        consumer = AsyncConsumer(config)
        if kind == "coroutine":
            await consumer.subscribe([filled], on_assign=assigned, on_revoke=revoked)
        else:
            await consumer.subscribe([filled], on_assign=plainly, on_revoke=plainly)
        assert len(await consumer.consume(COUNT, SECONDS)) == COUNT
        for task in tasks:
            assert [partition.topic for partition in await task] == [filled]
        await consumer.close()
        assert told == (["assigned", "revoked"] if kind == "coroutine" else ["plainly", "plainly"])

    run(main())


def test_an_error_of_a_callback_is_raised_by_the_call(config: dict[str, Any], filled: str) -> None:
    async def main() -> None:
        async def assigned(_consumer: AsyncConsumer, _partitions: list[TopicPartition]) -> None:
            raise ValueError("not these")

        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled], on_assign=assigned)
            with pytest.raises(ValueError, match="not these"):
                await consumer.poll()

    run(main())


def test_a_record_that_cannot_be_read_is_an_error_of_the_call_and_of_no_other(
    config: dict[str, Any], store: FaultyStore, filled: str
) -> None:
    async def main() -> None:
        values: list[bytes] = []
        errors: list[Exception] = []
        async with AsyncConsumer(config) as consumer:
            await consumer.subscribe([filled])
            while len(values) + len(errors) < COUNT:
                try:
                    message = await consumer.poll(SECONDS)
                except PayloadIntegrityError as error:
                    errors.append(error)
                else:
                    values.append(found_in(message))
        assert len(errors) == 1
        assert set(values) < set(VALUES)

    store.damage()
    run(main())


def test_closing_ends_the_calls_of_other_tasks(config: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(config)
        await consumer.subscribe([topic])
        waiting = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        await consumer.close()
        assert await waiting is None
        with pytest.raises(RuntimeError):
            await consumer.poll(1)

    run(main())


def test_positions_pause_and_seek(config: dict[str, Any], filled: str) -> None:
    async def main() -> None:
        place = TopicPartition(filled, 0)
        by_hand = {"enable.auto.commit": False, "enable.auto.offset.store": False}
        async with AsyncConsumer({**config, **by_hand}) as consumer:
            await consumer.assign([TopicPartition(filled, 0, 5)])
            assert [partition.topic for partition in await consumer.assignment()] == [filled]
            message = await consumer.poll(SECONDS)
            assert message is not None
            assert message.offset() == 5
            assert (await consumer.position([place]))[0].offset == 6
            await consumer.seek(TopicPartition(filled, 0, 10))
            message = await consumer.poll(SECONDS)
            assert message is not None
            assert message.offset() == 10
            await consumer.pause([place])
            assert await consumer.poll(0.3) is None
            await consumer.resume([place])
            message = await consumer.poll(SECONDS)
            assert message is not None
            assert message.offset() == 11
            await consumer.commit(message, asynchronous=False)
            assert (await consumer.committed([place], SECONDS))[0].offset == 12
            assert await consumer.get_watermark_offsets(place, SECONDS) == (0, COUNT)
            found = await consumer.offsets_for_times([TopicPartition(filled, 0, 0)], SECONDS)
            assert found[0].offset == 0
            assert filled in (await consumer.list_topics(timeout=SECONDS)).topics
            assert await consumer.cluster_id(SECONDS)
            await consumer.incremental_unassign([place])
            await consumer.incremental_assign([TopicPartition(filled, 0, 3)])
            message = await consumer.poll(SECONDS)
            assert message is not None
            assert message.offset() == 3
            await consumer.store_offsets(message)
            await consumer.unassign()
            assert await consumer.assignment() == []

    run(main())


def test_exactly_once_from_topic_to_topic(config: dict[str, Any], broker: KafkaBroker, filled: str, topic: str) -> None:
    target = f"{topic}-target"
    broker.create_topic(target)

    async def main() -> None:
        async with (
            AsyncConsumer({**config, "enable.auto.commit": False}) as consumer,
            AsyncProducer({**config, "transactional.id": target}) as producer,
        ):
            await consumer.subscribe([filled])
            await producer.init_transactions(SECONDS)
            messages = await consumer.consume(COUNT, SECONDS)
            await producer.begin_transaction()
            for message in messages:
                await producer.produce(target, message.value(), headers=message.headers())
            positions = await consumer.position(await consumer.assignment())
            await producer.send_offsets_to_transaction(positions, await consumer.consumer_group_metadata(), SECONDS)
            await producer.commit_transaction(SECONDS)
            (committed,) = await consumer.committed([TopicPartition(filled, 0)], SECONDS)
            assert committed.offset == COUNT

    run(main())
    consumer = confluent_kafka.Consumer(
        {**broker.client_config(), "group.id": target, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([target])
    assert len(consumer.consume(COUNT, SECONDS)) == COUNT
    consumer.close()
