"""The work of Spark's Python workers for jobs: what records refer to, without a download."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from payload_stores.plugins import require
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ContextualError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.plan.referring import ReferencePlan, open_readers
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once

__all__ = ["find_references", "keys_of"]


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


def keys_of(reference: str, topics: tuple[str, ...]) -> list[str]:
    """The names by which a payload in use is known.

    A payload may be in two stores, or be reached below two prefixes, under one topic and id: then a reference to one
    of them is one to the other.

    Args:
        reference: The reference.
        topics: The topics whose payloads matter.

    Returns:
        The reference, decoded, and all that may be a topic and an id in it.

    Example:
        >>> keys_of("s3://bucket/pre/alerts/1", ("alerts",))
        ['s3://bucket/pre/alerts/1', 'alerts/1']
    """
    plain = unquote(reference)
    keys = [plain]
    for topic in topics:
        segment = f"/{topic}/"
        at = plain.find(segment)
        while at >= 0:
            keys.append(plain[at + 1 :])
            at = plain.find(segment, at + 1)
    return keys


class _Finder:
    """A plan at work."""

    def __init__(self, pickled: bytes) -> None:
        self._plan: ReferencePlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
        self._readers = open_readers(self._plan.config)
        self._arrow = require("pyarrow", "spark")

    def close(self) -> None:
        """Close the chains."""
        for reader in self._readers.values():
            reader.close()

    def find(self, arrays: tuple[Any, ...]) -> Any:
        """What the records of one batch refer to."""
        columns = (array.to_pylist() for array in arrays)
        found = []
        for row in zip(*columns, strict=True):
            named = dict(zip(self._plan.columns, row, strict=True))
            referred = [
                entry
                for field, reader in self._readers.items()
                if (entry := self._in_field(named, field, reader)) is not None
            ]
            found.append(json.dumps(referred) if referred else None)
        return self._arrow.array(found, self._arrow.string())

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
            "size": reference.size,
            "digest": reference.digest,
            "keys": keys_of(reference.url, self._plan.topics),
        }
