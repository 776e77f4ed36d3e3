"""The steps of both demos: show the configuration, produce, read back, and show the records as stored in Kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from serde_chain.errors import ContextualError

DEADLINE_S: Final = 120


class DemoError(ContextualError):
    """The demo did not get the expected result."""

    context_fields = ("topic", "partition", "offset")


def make_console(*, is_quiet: bool = False) -> Console:
    """Create the console for output; warnings are logged there too.

    Args:
        is_quiet: Print nothing: only the figures are wanted.
    """
    console = Console(quiet=is_quiet)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)])
    return console


def config_table(title: str, config: dict[str, Any]) -> Table:
    """Lay out a configuration, without its passwords."""
    table = Table(title=title, title_justify="left")
    table.add_column("key")
    table.add_column("value", overflow="fold")
    for key, value in config.items():
        shown = "(a nested record schema)" if key == "avro.schema" else str(value)
        table.add_row(key, "********" if "password" in key else shown)
    return table


def produce(
    config: dict[str, Any],
    topic: str,
    records: Iterable[dict[str, Any]],
    on_delivered: Callable[[int], object] = lambda _number: None,
) -> None:
    """Produce records, and wait until the broker has accepted all of them.

    Args:
        config: The configuration.
        topic: The topic.
        records: Arguments of ``Producer.produce`` for each.
        on_delivered: Called with the number of each accepted record, from 0.

    Raises:
        DemoError: Some records were not delivered.
    """
    from serde_chain import Producer

    delivered = count = 0
    failed: list[str] = []

    def note(number: int, error: Any, _message: Any) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1
            on_delivered(number)
        else:
            failed.append(str(error))

    with Producer(config) as producer:
        for count, record in enumerate(records, 1):
            producer.produce(topic, **record, on_delivery=partial(note, count - 1))
            producer.poll(0)
        producer.flush(DEADLINE_S)
    if delivered != count:
        raise DemoError(f"{count - delivered} of {count} records were not delivered: {failed[:3]}", topic=topic)


def consume(config: dict[str, Any], topic: str, count: int, *, group: str) -> Iterator[Any]:
    """The first records of a topic, from a consumer.

    Args:
        config: The configuration.
        topic: The topic.
        count: Number of records.
        group: The consumer group.

    Raises:
        DemoError: Records are missing, or did not arrive in time.
    """
    from serde_chain import Consumer

    settings = {**config, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    until = time.monotonic() + DEADLINE_S
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        for at in range(count):
            message = consumer.poll(max(until - time.monotonic(), 0))
            if message is None:
                raise DemoError(f"{count - at} of {count} records did not come back", topic=topic)
            if message.error() is not None:
                raise DemoError(f"the consumer got an error: {message.error()}", topic=topic)
            yield message


def raw_records(config: dict[str, Any], topic: str, *, group: str) -> Iterator[Any]:
    """The records of a topic's first partition as stored in Kafka.

    Raises:
        DemoError: The records are unreadable.
    """
    from serde_chain.clients.confluent.partitions import PartitionReader

    with PartitionReader(config, group, failure=DemoError, timeout_s=DEADLINE_S, log_level=0) as reader:
        yield from reader.read(topic, 0, *reader.bounds(topic, 0))
