"""What the processes of a round do."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from serde_chain.clients.confluent.consumer import Consumer
from serde_chain.clients.confluent.producer import Producer
from serde_chain.stamp import stamp
from tests.chaos.cluster import payload, payload_number
from tests.chaos.points import interrupted, kill_at, signalled

__all__ = [
    "consume_interrupted",
    "consume_signalled",
    "member",
    "produce",
    "produce_in_transactions",
    "produce_interrupted",
    "produce_until_fenced",
    "relay",
]


def produce(  # noqa: PLR0917  by position, as processes are started
    connection: Connection, config: dict[str, Any], topic: str, seed: int, count: int, point: int
) -> None:
    """Produce records, and be killed at a point.

    Tells ``("delivered", number)`` for each that is.
    """
    source = random.Random(seed)
    producer = Producer(config)
    kill_at(point)
    for number in range(count):
        value = payload(seed, number, large=source.random() < 0.6)
        producer.produce(topic, value, b"%d" % (number % 3), on_delivery=partial(_delivered, connection, number))
        if source.random() < 0.3:
            producer.poll(0)
        if source.random() < 0.1:
            producer.flush(30)
    producer.close()


def produce_in_transactions(  # noqa: PLR0917  as above
    connection: Connection, config: dict[str, Any], topic: str, seed: int, count: int, point: int
) -> None:
    """Produce in transactions of a few records, some of which are aborted, and be killed at a point.

    Tells ``("begun", numbers)`` and, for those that are, ``("committed", numbers)``.
    """
    source = random.Random(seed)
    producer = Producer(config)
    producer.init_transactions(30)
    kill_at(point)
    number = 0
    while number < count:
        numbers = range(number, number + source.randrange(1, 6))
        connection.send(("begun", *numbers))
        producer.begin_transaction()
        for each in numbers:
            value = payload(seed, each, large=source.random() < 0.6)
            producer.produce(topic, value, b"%d" % (each % 3))
        if source.random() < 0.3:
            producer.flush(30)
        if source.random() < 0.3:
            try:
                producer.abort_transaction(30)
            except KafkaException as error:
                # librdkafka alone does so too, now and then, against a broker that has just started: EndTxn overtakes
                # the partition's addition. The process is of no more use, as after a kill.
                if error.args[0].code() != KafkaError.INVALID_TXN_STATE:
                    raise
                os.kill(os.getpid(), signal.SIGKILL)
            connection.send(("aborted", *numbers))
        else:
            producer.commit_transaction(30)
            connection.send(("committed", *numbers))
        number = numbers.stop
    producer.close()


def produce_until_fenced(  # noqa: PLR0917  as above
    connection: Connection, config: dict[str, Any], topic: str, seed: int, count: int, at_once: int
) -> None:
    """Produce in transactions until another producer of the same id has fenced this one.

    Tells ``("ready",)``, ``("begun" or "committed", numbers)``, ``("delivered" or "failed", number)`` for reports, and
    ``("fenced", name, numbers)`` with the error's name and the numbers of the last transaction.
    """
    source = random.Random(seed)
    producer = Producer(config)
    producer.init_transactions(30)
    connection.send(("ready",))
    numbers = range(0)
    try:
        while numbers.stop < count:
            numbers = range(numbers.stop, numbers.stop + source.randrange(1, at_once))
            producer.begin_transaction()
            for each in numbers:
                value = payload(seed, each, large=source.random() < 0.4)
                connection.send(("begun", each))
                report = partial(_delivered, connection, each)
                producer.produce(topic, value, b"%d" % (each % 3), on_delivery=report)
                if source.random() < 0.2:
                    producer.poll(0)
            if source.random() < 0.3:
                producer.flush(30)
            producer.commit_transaction(30)
            connection.send(("committed", *numbers))
    except KafkaException as error:
        connection.send(("fenced", _fatal(producer, error).name(), *numbers))
    producer.close()


def _fatal(producer: Producer, error: KafkaException) -> Any:
    """The fatal error behind one that ended a transaction: it itself, or that of its abort.

    A broker that is fencing a producer answers its commit with UNKNOWN_SERVER_ERROR now and then.
    """
    if error.args[0].fatal():
        return error.args[0]
    try:
        producer.abort_transaction(30)
    except KafkaException as fenced:
        return fenced.args[0]
    raise error


def produce_interrupted(connection: Connection, config: dict[str, Any], topic: str, seed: int, count: int) -> None:
    """Produce records, interrupted at many points, and go on.

    Tells ``("returned", number)`` for calls that did, and ``("delivered" or "failed", number)`` for reports.
    """
    source = random.Random(seed)
    producer = Producer(config)
    for number in range(count):
        value = payload(seed, number, large=source.random() < 0.6)
        report = partial(_delivered, connection, number)
        with suppress(KeyboardInterrupt), interrupted(source.randrange(1, 150)):
            producer.produce(topic, value, b"%d" % (number % 3), on_delivery=report)
            connection.send(("returned", number))
        if source.random() < 0.5:
            with suppress(KeyboardInterrupt), interrupted(source.randrange(1, 60)):
                producer.poll(0.001)
        if source.random() < 0.2:
            with suppress(KeyboardInterrupt), interrupted(source.randrange(1, 200)):
                producer.flush(30)
    producer.flush(30)
    producer.close()


def _delivered(connection: Connection, number: int, error: Any, _message: Any) -> None:
    connection.send(("delivered" if error is None else "failed", number))


def consume_interrupted(connection: Connection, config: dict[str, Any], topic: str, seed: int, count: int) -> None:
    """Read a partition, interrupted at many points, and commit what was handed over.

    Tells ``("got", offset, number)`` and ``("committed", offset)``.
    """
    source = random.Random(seed)
    place = TopicPartition(topic, 0)
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = 0
    while got < count:
        several = source.random() < 0.5
        messages: list[Any] = []
        with suppress(KeyboardInterrupt), interrupted(source.randrange(1, 400)):
            messages = consumer.consume(source.randrange(1, 8), 1) if several else [consumer.poll(1)]
        for message in messages:
            if message is not None:
                connection.send(("got", message.offset(), payload_number(message.value())))
                got += 1
        if source.random() < 0.3:
            with suppress(KeyboardInterrupt, KafkaException), interrupted(source.randrange(1, 60)):
                consumer.commit(asynchronous=False)
            (committed,) = consumer.committed([place], 30)
            connection.send(("committed", committed.offset))
    consumer.close()


def consume_signalled(connection: Connection, config: dict[str, Any], topic: str, seed: int, count: int) -> None:
    """Read a topic in a group while real signals come, most of them while the client waits for records.

    Tells ``("ready",)``, ``("got", partition, offset, number)`` and ``("committed", offset, ...)``.
    """
    source = random.Random(seed)
    several = source.random() < 0.5
    consumer = Consumer(config)
    consumer.subscribe([topic])
    connection.send(("ready",))
    got = 0
    with signalled(random.Random(seed)):
        while got < count:
            messages: list[Any] = []
            # The client's C code makes a SystemError of a second signal that comes before the first one is raised.
            with suppress(KeyboardInterrupt, SystemError):
                messages = consumer.consume(source.randrange(1, 8), 0.5) if several else [consumer.poll(0.5)]
            for message in messages:
                if message is not None:
                    connection.send(("got", message.partition(), message.offset(), payload_number(message.value())))
                    got += 1
    consumer.poll(0)
    committed = consumer.commit(asynchronous=False) or []
    connection.send(("committed", *(place.offset for place in committed)))
    consumer.close()


def relay(_connection: Connection, config: dict[str, Any], source: str, target: str, point: int) -> None:
    """Relay a topic to its end, and be killed at a point."""
    kill_at(point)
    stamp(config, source, target, until_end=True)


def member(  # noqa: PLR0917  as above
    connection: Connection, config: dict[str, Any], topic: str, seed: int, point: int, leave_after: int
) -> None:
    """Be a member of a group: be killed at a point, or leave after some records.

    Tells ``("assigned" or "revoked", partitions)`` and ``("got", partition, offset, number)``, each at once.
    """
    source = random.Random(seed)
    consumer = Consumer(config)

    def assigned(_consumer: Any, partitions: list[TopicPartition]) -> None:
        connection.send(("assigned", *(each.partition for each in partitions)))

    consumer.subscribe([topic], on_assign=assigned)
    if point:
        kill_at(point)
    left = leave_after
    while left > 0:
        several = source.random() < 0.3
        messages: list[Any] = consumer.consume(3, 0.2) if several else [consumer.poll(0.2)]
        for message in messages:
            if message is not None and message.error() is None:
                connection.send(("got", message.partition(), message.offset(), payload_number(message.value())))
                left -= 1
    consumer.close()
    connection.send(("left",))
