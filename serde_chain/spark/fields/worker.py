"""Fetching the references in one column within values, in Spark's Python workers."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch
from serde_chain.arrow.columns import cast
from serde_chain.chain import DeserializerChain
from serde_chain.clients.window_reader import marker_headers
from serde_chain.spark.arguments import FAILFAST
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.fields.plan import FetchPlan
from serde_chain.spark.udfs.growing_steps import Steps
from serde_chain.spark.udfs.memory import give_back_at_once
from serde_chain.wire.large_fields import HEADER

# As for whole values.
_PART_BYTES: Final = 8 << 20

_POSITIONS: Final = ("partition", "offset")


def fetch_batches(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Replace references in a column by their payloads.

    Args:
        pickled: A :class:`~serde_chain.spark.fields.plan.FetchPlan`.
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
        values, records = arrays
        if records.null_count == len(records):
            yield cast(values, self._plan.column.arrow_type)
            return
        facts = [{} if record is None else json.loads(record) for record in records.to_pylist()]
        headers = _bytes_of(facts, "headers")
        batch = Batch(
            self._arrow.nulls(len(facts), self._arrow.binary()),
            [None if header is None else [(HEADER, header)] for header in headers],
            topic=[record.get("topic") for record in facts] if "topic" in self._plan.context else None,
            keys=_bytes_of(facts, "key") if "key" in self._plan.context else None,
            positions={
                name: [record.get(name) for record in facts] for name in _POSITIONS if name in self._plan.context
            },
            columns=[self._plan.column.name],
        )
        batch.take(self._wrapped(values))
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


def _bytes_of(records: Sequence[Mapping[str, Any]], name: str) -> list[bytes | None]:
    """Bytes of records, of which Spark makes base64; None where they are null."""
    texts = (record.get(name) for record in records)
    return [None if text is None else b64decode(text) for text in texts]
