"""``serde-chain demo``: real records through a real broker and a payload store, back again, and into Spark.

At the end, a sweep deletes the payload left by a killed producer.
"""

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
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.table import Table

from payload_stores.plugins import require
from serde_chain.chain import SerializerChain
from serde_chain.cli import inspect_topic as inspect
from serde_chain.cli.demo.steps import (
    DEADLINE_S,
    DemoError,
    config_table,
    consume,
    produce,
    raw_records,
)
from serde_chain.cli.demo.sweep import sweep_after_a_kill
from serde_chain.testing.alerts import ALERT_SCHEMA, alert, demo_sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "alerts"


@dataclass
class _Digests:
    """Digests of the produced records, by alert id.

    Attributes:
        records: Digests of the alerts' Avro bytes.
        pixels: Digests of their science images' pixels.
        sizes: Approximate sizes of the alerts in bytes.
    """

    records: dict[int, str] = field(default_factory=dict)
    pixels: dict[int, str] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)


def run_demo(console: Console, records: int, *, keep: bool = False, store: str = "local") -> dict[str, Any]:
    """Run the demo; leaves nothing running, and nothing on disk unless requested.

    Args:
        console: The console for output.
        records: Number of alerts.
        keep: Keep the payloads if they are in a folder.
        store: The payload store: ``local`` or ``kafka``.

    Returns:
        The figures: records, inline and offloaded ones with their bytes, and what the sweep deleted.

    Raises:
        DemoError: A record was lost or changed.
        MissingDependencyError: An extra is missing; the message names all required ones.
        ServiceError: The broker or Spark could not be fetched or started.
    """
    for module in ("pyspark", "fastavro", "zstandard"):
        require(module, "services,avro,compression")
    from serde_chain.testing.services import KafkaBroker, spark_session
    from serde_chain.testing.services.java import system_java

    system_java()  # Spark starts last
    logging.getLogger("serde_chain").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    folder = Path(tempfile.mkdtemp(prefix="serde-chain-demo-"))
    payloads = folder / "payloads" if store == "local" else None
    if payloads is not None:
        payloads.mkdir()
    try:
        console.print("Starting a Kafka broker (fetched once, about a minute the first time) …")
        with contextlib.ExitStack() as stack:
            with console.status("The broker starts …"):
                broker = stack.enter_context(KafkaBroker())
            broker.create_topic(TOPIC)
            config = {
                "bootstrap.servers": broker.bootstrap_servers,
                "value.serializers": "avro, zstd, large-message",
                "value.deserializers": "large-message, zstd, avro",
                "avro.schema": ALERT_SCHEMA,
                "large.message.payload.store.class": store,
                **({} if payloads is None else {"local.path": str(payloads)}),
            }
            title = f"The configuration of producer, consumer and Spark (broker {broker.bootstrap_servers})"
            console.print(config_table(title, config))
            digests = _produce(console, config, records)
            _compare(console, config, digests)
            console.print("Starting Spark, with its Kafka connector …")
            with console.status("Spark starts …"):
                spark = stack.enter_context(spark_session("serde-chain demo", log=folder / "spark.log"))
            rows = _read_in_spark(console, spark, config, digests.pixels)
            figures = _report(console, config, payloads)
            console.print(rows)
            swept = sweep_after_a_kill(console, spark, config, TOPIC, folder / "deleted.jsonl")
        console.print(
            f"[bold green]All {records} records came back unchanged[/], from the consumer and in the Spark DataFrame "
            "(digests compared). The broker and Spark are stopped."
        )
        where = f"{payloads} (remove the folder when you are done)" if keep else "removed; keep them with --keep"
        console.print(f"Payloads: {where if payloads else 'removed with the broker'}", soft_wrap=True)
        kept = str(payloads) if keep and payloads else None
        return {"records": records, "store": store, **figures, "swept": swept, "kept": kept}
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
    """Read all records back, and compare them with the produced ones."""
    avro, missing = _avro(), dict(digests.records)
    with _progress(console, "consuming, comparing digests", sum(digests.sizes.values())) as advance:
        for message in consume(config, TOPIC, len(missing), group="demo"):
            record = message.value()
            if missing.pop(record["alert_id"], None) != _digest(avro(record)):
                raise DemoError(f"alert {record['alert_id']} came back changed, or twice")
            advance(digests.sizes[record["alert_id"]])


def _read_in_spark(console: Console, spark: SparkSession, config: dict[str, Any], pixels: dict[int, str]) -> Table:
    from serde_chain.spark import decode, explain

    console.print(f"Spark reads whole batches at a time: {explain(config)}", soft_wrap=True)
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
    wrong = [number for number, digest in pixels.items() if decoded.get(number, {"digest": None})["digest"] != digest]
    if wrong or len(decoded) != len(pixels):
        raise DemoError(f"Spark decoded {len(decoded)} of {len(pixels)} records, {len(wrong)} of them changed or lost")
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


def _report(console: Console, config: dict[str, Any], payloads: Path | None) -> dict[str, Any]:
    """Show the records as stored in Kafka, and where the payloads are; returns the figures."""
    seen = [inspect.describe(message) for message in raw_records(config, TOPIC, group="demo-inspect")]
    offloaded = [record for record in seen if "reference" in record["value"]]
    inline = [record for record in seen if "reference" not in record["value"]]
    table = Table("", "records", "bytes in Kafka", "bytes in the payload store", title="What went where")
    table.title_justify = "left"
    figures = {
        "inline": {"records": len(inline), "bytes": _sum(inline, "bytes")},
        "offloaded": {
            "records": len(offloaded),
            "bytes": _sum(offloaded, "bytes"),
            "payload_bytes": _sum(offloaded, "payload bytes"),
        },
    }
    for name, of_kind in figures.items():
        row = [f"{of_kind[figure]:,}" if figure in of_kind else "-" for figure in ("records", "bytes", "payload_bytes")]
        table.add_row(name, *row)
    console.print(table)
    if offloaded:
        if payloads is not None:
            files = sum(1 for path in payloads.rglob("*") if path.is_file())
            console.print(f"The payloads are in {payloads}: {files} files.", soft_wrap=True)
        else:
            chunks = sum(1 for _ in raw_records(config, f"{TOPIC}.payloads", group="demo-chunks"))
            console.print(f"The payloads are in the topic {TOPIC}.payloads: {chunks} chunks.", soft_wrap=True)
        console.print("The largest record as shown by `serde-chain inspect`:")
        console.print(inspect.table(max(offloaded, key=lambda record: record["value"]["payload bytes"])))
    return figures


def _sum(records: list[dict[str, Any]], what: str) -> int:
    return sum(record["value"][what] for record in records)


@contextlib.contextmanager
def _progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar in bytes; yields the function that advances it."""
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
