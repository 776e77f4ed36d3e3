"""Listing stores in Spark's Python workers: each task lists a part of one folder."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any, Final

from payload_stores.errors import PayloadStoreError
from payload_stores.plugins import require
from serde_chain.jobs.folders import folders_of, list_folders, pages_of, stores_of
from serde_chain.jobs.references import open_readers
from serde_chain.spark.plan.jobs import ListingPlan
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once

__all__ = ["list_payloads", "listed_schema"]

_ROWS: Final = 10_000


def list_payloads(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """List parts of folders.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.jobs.ListingPlan`.
        batches: ``pyarrow.RecordBatch`` with one column: the indexes of the plan's parts.

    Yields:
        ``pyarrow.RecordBatch`` of :data:`~serde_chain.spark.plan.jobs.LISTED`, and ``failure``: JSON of ``message``,
        ``hint``, ``store`` and ``transient`` for an incomplete listing. The task itself succeeds, since the
        store has retried already.
    """
    give_back_at_once()
    with chains.use(pickled, _Lister) as lister:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from lister.part(number)


def listed_schema() -> Any:
    """The ``pyarrow.Schema`` of :data:`~serde_chain.spark.plan.jobs.LISTED`."""
    arrow = require("pyarrow", "spark")
    return arrow.schema(
        [
            ("name", arrow.int64()),
            ("reference", arrow.string()),
            ("size", arrow.int64()),
            ("modified", arrow.int64()),
            ("folder", arrow.int32()),
        ]
    )


class _Lister:
    """Executes a plan."""

    def __init__(self, pickled: bytes) -> None:
        self._plan: ListingPlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
        self._readers = open_readers(self._plan.reading.config)
        self._stores = stores_of(self._plan.reading, self._readers)
        self._folders, _ = folders_of(self._stores, self._plan.reading.topics)
        arrow = self._arrow = require("pyarrow", "spark")
        self._schema = listed_schema().append(arrow.field("failure", arrow.string()))

    def close(self) -> None:
        """Close the chains."""
        for reader in self._readers.values():
            reader.close()

    def part(self, number: int) -> Iterator[Any]:
        """List one part."""
        parts = (self._plan.parts[number],)
        listed = list_folders(self._folders, parts, self._stores, self._plan.before)
        try:
            for rows in pages_of(listed, _ROWS):
                yield self._batch([(*row, None) for row in rows])
        except PayloadStoreError as error:
            store = error.context.get("store")
            failure = {"message": error.message, "hint": error.hint, "store": store, "transient": error.transient}
            yield self._batch([(None, None, None, None, None, json.dumps(failure))])

    def _batch(self, rows: list[tuple[Any, ...]]) -> Any:
        columns = (
            self._arrow.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), self._schema, strict=True)
        )
        return self._arrow.record_batch(list(columns), schema=self._schema)
