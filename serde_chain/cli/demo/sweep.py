"""The last part of the demo: a producer is killed, and a sweep deletes the payload that it left in the store."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from payload_stores import open_store
from payload_stores.base import SupportsList
from serde_chain.cli.demo.steps import DEADLINE_S, DemoError
from serde_chain.testing.alerts import alert

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBER: Final = 1_000_000  # not the number of an earlier alert
_BYTES: Final = 5_000_000


def sweep_after_a_kill(
    console: Console, spark: SparkSession, config: dict[str, Any], topic: str, manifest: Path
) -> int:
    """Kill a producer between upload and record, and sweep the topic's payloads.

    Args:
        console: Where to print.
        spark: A session with Spark's Kafka connector.
        config: The configuration; its store supports listing and deletion.
        topic: The topic, with some large messages.
        manifest: The file for the list of deleted payloads.

    Returns:
        Number of payloads deleted by the sweep.

    Raises:
        DemoError: The producer uploaded nothing, or the sweep deleted other payloads than its own.
    """
    before = _references(config, topic)
    console.print("A producer is killed between the upload of a payload and its record …")
    with console.status("Waiting for its payload …"):
        left = _killed_producer(config, topic, before)
    with _quiet(), console.status("Sweeping: comparing the store with the records …"):
        from serde_chain.spark.jobs import sweep

        # No producer is running, so no record is in transit.
        report = sweep(spark, config, topic, grace_ms=0, delete=True, manifest=manifest)
    deleted = before.union(left) - _references(config, topic)
    if len(left) != 1 or deleted != left:
        raise DemoError(f"the producer left {len(left)} payloads, and the sweep deleted {len(deleted)}", topic=topic)
    console.print("`serde-chain sweep --delete` has compared the store with the records in the topic:")
    console.print(f"  {report.live} payloads are in use, and are still there;")
    console.print(f"  {report.deleted} was in no record and was deleted, {report.bytes:,} bytes:")
    console.print(f"  {left.pop()}", soft_wrap=True)
    console.print(
        "(A sweep keeps payloads younger than a day, whose records may still come, and warns of a shorter period. Here "
        "it may delete at once: nothing else is being produced.)"
    )
    return report.deleted


def _references(config: dict[str, Any], topic: str) -> set[str]:
    with contextlib.closing(open_store(config["large.message.payload.store.class"], config)) as store:
        if not isinstance(store, SupportsList):
            raise DemoError(f"the store {store.scheme} cannot list its payloads", topic=topic)
        return {info.reference for info in store.list(topic)}


def _killed_producer(config: dict[str, Any], topic: str, before: set[str]) -> set[str]:
    """Start a producer, kill it when its payload is in the store, and return the new references."""
    processes = multiprocessing.get_context("spawn")
    ours, its = processes.Pipe()
    producer = processes.Process(target=_produce_and_wait, args=(its, config, topic), daemon=True)
    until = time.monotonic() + DEADLINE_S
    producer.start()
    its.close()
    try:
        while not (came := _references(config, topic) - before):
            if not producer.is_alive() or time.monotonic() > until:
                raise DemoError("the producer to be killed uploaded nothing", topic=topic)
            time.sleep(0.05)  # stores have no notifications
    finally:
        producer.kill()
        producer.join()
        ours.close()
    return came


def _produce_and_wait(connection: Connection, config: dict[str, Any], topic: str) -> None:
    """Upload a payload, and hold back its record; also ends when the parent process is gone."""
    from serde_chain import Producer

    # The client delays records for this long, to send several at once.
    with Producer({**config, "linger.ms": 1000 * DEADLINE_S}) as producer:
        producer.produce(topic, alert(_NUMBER, _BYTES))
        connection.poll(DEADLINE_S)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave warnings of the sweep to its report."""
    logger = logging.getLogger("serde_chain")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
