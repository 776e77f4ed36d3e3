"""Listings of stores, in files and on Spark's disks: a store may have more payloads than fit into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from payload_stores.base import PayloadInfo
from payload_stores.plugins import require
from serde_chain.errors import JobError
from serde_chain.spark.plan.folders import LISTED, SHARES, ListingPlan
from serde_chain.spark.udfs import map_batches
from serde_chain.spark.worker.listing import listed_schema, rows_of

__all__ = ["Pages", "list_on_executors", "store_failed"]

_PAGE: Final = 20_000
_WORK: Final = "serde_chain.spark.worker.listing:list_payloads"


class Pages:
    """Payloads in a file, written once and read page by page.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._arrow = require("pyarrow", "spark")
        self._schema = listed_schema()

    def write(self, payloads: Iterable[tuple[int, int, PayloadInfo]]) -> Iterator[int]:
        """Write payloads.

        Args:
            payloads: The index of the payload's folder, its name, and the payload.

        Yields:
            The number of payloads written, after each page.
        """
        written = 0
        with self._arrow.ipc.new_stream(str(self._path), self._schema) as file:
            for rows in rows_of(payloads, _PAGE):
                file.write_batch(self._arrow.record_batch(list(map(list, zip(*rows, strict=True))), self._schema))
                written += len(rows)
                yield written

    def read(self) -> Iterator[Any]:
        """The pages, as ``pyarrow.Table``."""
        # A memory-mapped file would stay in memory as long as the kernel has room.
        with self._arrow.OSFile(str(self._path)) as source, self._arrow.ipc.open_stream(source) as file:
            for batch in file:
                yield self._arrow.Table.from_batches([batch])


def list_on_executors(spark: SparkSession, plan: ListingPlan) -> DataFrame:
    """List folders with one task per part.

    Returns:
        The complete listing, on Spark's disks: :data:`~serde_chain.spark.plan.folders.LISTED`.

    Raises:
        JobError: A store could not be listed.
    """
    tasks = len(plan.folders) * len(SHARES)
    numbers = spark.range(0, tasks, 1, tasks)
    listed = map_batches(numbers, _WORK, plan, f"{LISTED}, failure string").localCheckpoint(
        storageLevel=StorageLevel.DISK_ONLY
    )
    if failed := listed.where("failure is not null").limit(1).collect():
        failure = json.loads(failed[0]["failure"])
        raise store_failed("the store cannot be listed", **failure)
    return listed.drop("failure")


def store_failed(what: str, *, message: str, hint: str | None, store: object, transient: bool) -> JobError:
    """The error of a job that ends because of a store.

    Args:
        what: The failed operation.
        message: The store's error; the following arguments belong to it too.
        hint: Its hint.
        store: The store's scheme.
        transient: Whether a retry may succeed.
    """
    failure = JobError(f"{what}: {message}", hint=hint or "Run it again", store=store)
    failure.transient = transient
    return failure
