"""Fetching the references in one column within values, in Spark's Python workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch
from serde_chain.arrow.columns import cast
from serde_chain.chain import DeserializerChain
from serde_chain.clients.window_reader import marker_headers
from serde_chain.spark.plan.arguments import FAILFAST
from serde_chain.spark.plan.field_columns import FetchPlan
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once
from serde_chain.spark.worker.steps import Steps
from serde_chain.wire.large_fields import HEADER

__all__ = ["fetch_batches"]

# As for whole values.
_PART_BYTES: Final = 8 << 20

_POSITIONS: Final = ("partition", "offset")


def fetch_batches(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Replace references in a column by their payloads.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.field_columns.FetchPlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns.

    Yields:
        ``pyarrow.Array`` of all rows in order.

    Raises:
        SerializationError: A field cannot be fetched, in the mode FAILFAST; in all modes if the record is not at
            fault.
    """
    give_back_at_once()
    with chains.use(pickled, _open) as fetcher:
        steps = fetcher.steps()
        for batch in batches:
            yield from fetcher.fetch(batch, steps)


def _open(pickled: bytes) -> _Fetcher:
    plan: FetchPlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    return _Fetcher(plan)


class _Fetcher:
    """Executes a plan."""

    def __init__(self, plan: FetchPlan) -> None:
        self._plan = plan
        self._arrow = require("pyarrow", "spark")
        self._chain = chains.chain(plan.config, is_key=False)
        label = self._chain.labels[-1].partition(" (")[0]
        self._run = DeserializerChain(self._chain.stages[-1:], labels=[label])

    def close(self) -> None:
        """Release the chain."""
        chains.let_go(self._chain)

    def steps(self) -> Steps:
        """The steps of a task."""
        return Steps(marker_headers(self._run))

    def fetch(self, arrays: tuple[Any, ...], steps: Steps) -> Iterator[Any]:
        """Fetch the fields of one batch, in one or several parts."""
        columns = dict(zip(self._plan.columns, arrays, strict=True))
        name, header = self._plan.column.name, columns["header"]
        if header.null_count == len(header):
            yield cast(columns["value"], self._plan.column.arrow_type)
            return
        batch = Batch(
            self._arrow.nulls(len(header), self._arrow.binary()),
            [None if value is None else [(HEADER, value)] for value in header.to_pylist()],
            topic=columns.get("topic"),
            keys=columns.get("key"),
            positions={name: columns[name] for name in _POSITIONS if name in columns},
            columns=[name],
        )
        batch.take(self._wrapped(columns["value"]))
        for part in (part for step in steps.cut(batch) for part in self._run.read_parts(step, _PART_BYTES)):
            for row in sorted(part.errors):
                if self._plan.mode == FAILFAST or not part.errors[row].about_record:
                    raise part.errors[row]
            column = part.column
            for step in self._plan.column.path:
                column = self._arrow.compute.struct_field(column, step)  # null where the record failed
            yield cast(column, self._plan.column.arrow_type)

    def _wrapped(self, column: Any) -> Any:
        """The column as a value with only this one."""
        for step in reversed(self._plan.column.path):
            column = self._arrow.StructArray.from_arrays([column], names=[step])
        return column
