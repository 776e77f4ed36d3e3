"""The work of Spark's Python workers for jobs: what records refer to, without a download."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from payload_stores.base import PayloadStore
from payload_stores.plugins import require
from payload_stores.presence import see
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ContextualError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.plan.folders import names_of
from serde_chain.spark.plan.referring import END, WHOLE, ReferencePlan, open_readers
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once
from serde_chain.wire.reference_format import Reference

__all__ = ["check_end", "find_references"]

# As many payloads are in memory at once.
_CHECKS: Final = 8


def find_references(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Read what records refer to.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.referring.ReferencePlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns.

    Yields:
        ``pyarrow.StringArray``: for each record a JSON list of what it refers to; null for nothing. A placeholder that
        cannot be read has the kind and message of its error.
    """
    give_back_at_once()
    with chains.use(pickled, _Finder) as finder:
        for batch in batches:
            yield finder.find(batch)


def check_end(stores: Iterable[PayloadStore], reference: Reference) -> None:
    """See that a payload is there, and as large as its record says, by the byte at its end.

    Args:
        stores: The stores, of which one may have it.
        reference: The reference.

    Raises:
        PayloadStoreError: It is gone, of another size, in none of the stores, or out of reach.
    """
    store = max(stores, key=lambda each: each.claim(reference.url))
    if not see(store, reference.url, reference.size):
        store.download(reference.url)


class _Finder:
    """A plan at work."""

    def __init__(self, pickled: bytes) -> None:
        self._plan: ReferencePlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
        self._readers = open_readers(self._plan.config)
        self._topics = frozenset(self._plan.topics)
        self._arrow = require("pyarrow", "spark")

    def close(self) -> None:
        """Close the chains."""
        for reader in self._readers.values():
            reader.close()

    def find(self, arrays: tuple[Any, ...]) -> Any:
        """What the records of one batch refer to."""
        rows = zip(*(array.to_pylist() for array in arrays), strict=True)
        if self._plan.check is None:
            found = list(map(self._in_record, rows))
        else:
            with ThreadPoolExecutor(_CHECKS, "serde-chain-audit") as pool:
                found = list(pool.map(self._in_record, rows))
        return self._arrow.array(found, self._arrow.string())

    def _in_record(self, row: tuple[Any, ...]) -> str | None:
        named = dict(zip(self._plan.columns, row, strict=True))
        fields = (self._in_field(named, field, reader) for field, reader in self._readers.items())
        referred = [entry for entry in fields if entry is not None]
        return json.dumps(referred) if referred else None

    def _in_field(self, row: dict[str, Any], field: str, reader: DeserializerChain) -> dict[str, object] | None:
        data = row[field]
        if data is None:
            return None
        headers: Any = [(header["key"], header["value"]) for header in row["headers"] or ()]
        key = row[KEY] if field == VALUE else None
        ctx = RecordContext(row["topic"], field, headers, key, row["partition"], None, row["offset"])
        try:
            reference = reader.reference_in(data, ctx)
        except ContextualError as error:
            return {"field": field, "kind": type(error).__name__, "message": error.message}
        if reference is None:
            return None
        return {
            "field": field,
            "reference": reference.url,
            "names": names_of(reference.url, self._topics),
            **self._problem(reader, reference, data, ctx),
        }

    def _problem(
        self, reader: DeserializerChain, reference: Reference, data: Any, ctx: RecordContext
    ) -> dict[str, str]:
        """What is wrong with a payload, where that is asked for."""
        try:
            if self._plan.check == WHOLE:
                reader(data, ctx)
            elif self._plan.check == END:
                check_end(reader.stores, reference)
        except ContextualError as error:
            return {"kind": type(error).__name__, "message": error.message}
        return {}
