"""The work of jobs in Spark's Python workers: find references in records, list payloads, copy partitions."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from payload_stores.errors import PayloadStoreError
from payload_stores.plugins import require
from serde_chain.codec import Record
from serde_chain.jobs.copying import Copied, copy_partition
from serde_chain.jobs.finding import Found, ReferenceFinder
from serde_chain.jobs.payload_folders import folders_of, list_folders, pages_of, stores_of
from serde_chain.jobs.reference_plan import open_readers
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.jobs.plan import CopyPlan, FindPlan, ListingPlan
from serde_chain.spark.udfs.memory import give_back_at_once

_ROWS: Final = 10_000


def find_references(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Read the references in records.

    Args:
        pickled: A :class:`~serde_chain.spark.jobs.plan.FindPlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns.

    Yields:
        ``pyarrow.StringArray``: for each record a JSON list of its references; null for none. An unreadable
        placeholder has the kind and message of its error, and whether it is malformed by itself.
    """
    give_back_at_once()
    with chains.use(pickled, _Finder) as finder:
        for batch in batches:
            yield finder.find(batch)


class _Finder:
    """Executes a plan."""

    def __init__(self, pickled: bytes) -> None:
        plan: FindPlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
        self._columns = plan.columns
        self._readers = open_readers(plan.reading.config)
        self._finder = ReferenceFinder(plan.reading, self._readers)
        self._arrow = require("pyarrow", "spark")

    def close(self) -> None:
        """Close the chains."""
        for reader in self._readers.values():
            reader.close()

    def find(self, arrays: tuple[Any, ...]) -> Any:
        """The references in the records of one batch."""
        rows = zip(*(array.to_pylist() for array in arrays), strict=True)
        found = self._finder.find(self._record(dict(zip(self._columns, row, strict=True))) for row in rows)
        texts = [json.dumps(list(map(_found_json, entries))) if entries else None for entries in found]
        return self._arrow.array(texts, self._arrow.string())

    def _record(self, row: dict[str, Any]) -> Record:
        headers = [(header["key"], header["value"]) for header in row.pop("headers") or ()]
        return Record(**row, headers=headers)


def _found_json(entry: Found) -> dict[str, object]:
    shown: dict[str, object] = {"field": entry.field, "names": entry.names}
    if entry.reference is not None:
        shown["reference"] = entry.reference.url
    if entry.kind is not None:
        shown |= {"kind": entry.kind, "message": entry.message, "malformed": entry.malformed}
    return shown


def list_payloads(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """List parts of folders.

    Args:
        pickled: A :class:`~serde_chain.spark.jobs.plan.ListingPlan`.
        batches: ``pyarrow.RecordBatch`` with one column: the indexes of the plan's parts.

    Yields:
        ``pyarrow.RecordBatch`` of :data:`~serde_chain.spark.jobs.plan.LISTED`, and ``failure``: JSON of ``message``,
        ``hint``, ``store`` and ``transient`` for an incomplete listing. The task itself succeeds, since the
        store has retried already.
    """
    give_back_at_once()
    with chains.use(pickled, _Lister) as lister:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from lister.part(number)


def listed_schema() -> Any:
    """The ``pyarrow.Schema`` of :data:`~serde_chain.spark.jobs.plan.LISTED`."""
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


def copy_partitions(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Copy partitions for a while, at most up to their ends.

    A retried or speculative task continues where the other one stopped.

    Args:
        pickled: A :class:`~serde_chain.spark.jobs.plan.CopyPlan`.
        batches: For each batch a tuple of ``pyarrow.Array``: partitions, and their ends.

    Yields:
        ``pyarrow.StringArray`` of JSON: the fields of a :class:`~serde_chain.jobs.copying.Copied`. The task itself
        succeeds, even if an error ended the copy: a retry would fail again.
    """
    give_back_at_once()
    plan: CopyPlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    arrow = require("pyarrow", "spark")
    for partitions, ends in batches:
        pairs = zip(partitions.to_pylist(), ends.to_pylist(), strict=True)
        copied = (copy_partition(plan.copying, partition, end) for partition, end in pairs)
        yield arrow.array(map(_copied_json, copied), arrow.string())


def _copied_json(copied: Copied) -> str:
    done, error = (None if part is None else asdict(part) for part in (copied.done, copied.error))
    return json.dumps({"partition": copied.partition, "done": done, "error": error})
