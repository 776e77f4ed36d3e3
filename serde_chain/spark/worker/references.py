"""Finding references in Spark's Python workers, for jobs."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

from payload_stores.plugins import require
from serde_chain.codec import Record
from serde_chain.jobs.finding import Found, ReferenceFinder
from serde_chain.jobs.references import open_readers
from serde_chain.spark.plan.jobs import FindPlan
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once

__all__ = ["find_references"]


def find_references(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Read the references in records.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.jobs.FindPlan`.
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
        texts = [json.dumps(list(map(_shown, entries))) if entries else None for entries in found]
        return self._arrow.array(texts, self._arrow.string())

    def _record(self, row: dict[str, Any]) -> Record:
        headers = [(header["key"], header["value"]) for header in row.pop("headers") or ()]
        return Record(**row, headers=headers)


def _shown(entry: Found) -> dict[str, object]:
    shown: dict[str, object] = {"field": entry.field, "names": entry.names}
    if entry.reference is not None:
        shown["reference"] = entry.reference.url
    if entry.kind is not None:
        shown |= {"kind": entry.kind, "message": entry.message, "malformed": entry.malformed}
    return shown
