"""Listings of stores, in files and on Spark's disks: a store may have more payloads than fit into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from payload_stores.plugins import require
from serde_chain.jobs.payload_folders import ListedPayload, pages_of
from serde_chain.jobs.sweeping import store_failed
from serde_chain.spark.jobs.plan import LISTED, ListingPlan
from serde_chain.spark.jobs.worker import listed_schema
from serde_chain.spark.udfs.make import map_batches

_PAGE: Final = 20_000
_WORK: Final = "serde_chain.spark.jobs.worker:list_payloads"


class PayloadPages:
    """Payloads in a file, written once and read page by page.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrow = require("pyarrow", "spark")
        self._schema = listed_schema()

    def write(self, payloads: Iterable[ListedPayload]) -> Iterator[int]:
        """Write payloads.

        Yields:
            The number of payloads written, after each page.
        """
        written = 0
        with self._arrow.ipc.new_stream(str(self._path), self._schema) as file:
            for rows in pages_of(payloads, _PAGE):
                file.write_table(table_of(rows))
                written += len(rows)
                yield written

    def payloads(self) -> Iterator[list[ListedPayload]]:
        """The payloads, page by page."""
        for table in self.tables():
            columns = (column.to_pylist() for column in table.columns)
            yield [ListedPayload(*row) for row in zip(*columns, strict=True)]

    def tables(self) -> Iterator[Any]:
        """The pages, as ``pyarrow.Table``."""
        # A memory-mapped file would stay in memory as long as the kernel has room.
        with self._arrow.OSFile(str(self._path)) as source, self._arrow.ipc.open_stream(source) as file:
            for batch in file:
                yield self._arrow.Table.from_batches([batch])


def table_of(payloads: Sequence[ListedPayload]) -> Any:
    """Payloads as ``pyarrow.Table``: at least one."""
    arrow = require("pyarrow", "spark")
    return arrow.table([list(column) for column in zip(*payloads, strict=True)], schema=listed_schema())


def list_on_executors(spark: SparkSession, plan: ListingPlan, state: str | None) -> DataFrame:
    """List folders by one task for each part.

    Args:
        spark: The session.
        plan: The plan.
        state: The folder for the listing; None for Spark's disks.

    Returns:
        The complete listing: :data:`~serde_chain.spark.jobs.plan.LISTED`.

    Raises:
        JobError: A store could not be listed.
    """
    tasks = len(plan.parts)
    numbers = spark.range(0, tasks, 1, tasks)
    columns = f"{LISTED}, failure string"
    listed = map_batches(numbers, _WORK, plan, columns)
    if state is None:
        listed = listed.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    else:
        listed.write.mode("append").parquet(state)
        listed = spark.read.schema(columns).parquet(state)
    if failed := listed.where("failure is not null").limit(1).collect():
        failure = json.loads(failed[0]["failure"])
        raise store_failed("the store cannot be listed", **failure)
    return listed.drop("failure")
