"""Finding references in Spark's Python workers, for jobs.

A placeholder is read without a download. A record whose header names fields is decoded, and its payload fetched if it
is a placeholder as well.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from payload_stores.base import PayloadStore
from payload_stores.errors import PayloadNotFoundError
from payload_stores.plugins import require
from payload_stores.probes import see
from serde_chain.base import SupportsReferences
from serde_chain.chain import DeserializerChain
from serde_chain.clients.window_reader import prefetch_for
from serde_chain.errors import ContextualError, DecodeError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.plan.folders import names_of
from serde_chain.spark.plan.references import END, WHOLE, ReferencePlan, open_readers
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once
from serde_chain.stages.large_fields.read import LargeFieldsDeserializer, moved_fields
from serde_chain.transfer import Transfer
from serde_chain.wire.large_fields import HEADER, FieldEntry
from serde_chain.wire.reference_format import Reference

__all__ = ["check_end", "find_references"]

# Concurrent requests for the last byte of payloads.
_CHECKS: Final = 8


def find_references(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Read the references in records.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.references.ReferencePlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns.

    Yields:
        ``pyarrow.StringArray``: for each record a JSON list of its references; null for none. An unreadable
        placeholder has the kind and message of its error, and whether it is malformed by itself.
    """
    give_back_at_once()
    with chains.use(pickled, _Finder) as finder:
        for batch in batches:
            yield finder.find(batch)


def check_end(stores: Iterable[PayloadStore], reference: Reference) -> None:
    """Check by its last byte that a payload exists and has the size stated in its record.

    Args:
        stores: The stores, one of which may have it.
        reference: The reference.

    Raises:
        PayloadStoreError: The payload is gone, has another size, is in none of the stores, or is unreachable.
    """
    store = max(stores, key=lambda each: each.claim(reference.url))
    if not see(store, reference.url, reference.size):
        store.download(reference.url)


class _Finder:
    """Executes a plan."""

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
        """The references in the records of one batch."""
        rows = zip(*(array.to_pylist() for array in arrays), strict=True)
        found = [list(self._in_record(dict(zip(self._plan.columns, row, strict=True)))) for row in rows]
        referred = [each for entries in found for each in entries if each.reference is not None]
        if self._plan.check == WHOLE:
            self._check_whole(referred)
        elif self._plan.check == END:
            with ThreadPoolExecutor(_CHECKS, "serde-chain-audit") as pool:
                list(pool.map(_Entry.check_end, referred))
        texts = [json.dumps([each.shown for each in entries]) if entries else None for entries in found]
        return self._arrow.array(texts, self._arrow.string())

    def _in_record(self, row: dict[str, Any]) -> Iterator[_Entry]:
        headers: Any = [(header["key"], header["value"]) for header in row["headers"] or ()]
        for field, reader in self._readers.items():
            data = row[field]
            if data is None:
                continue
            key = row[KEY] if field == VALUE else None
            ctx = RecordContext(row["topic"], field, headers, key, row["partition"], None, row["offset"])
            entry = _Entry(reader, data, ctx)
            references: tuple[Reference, ...] = ()
            with entry.noting():
                entry.moved = (moved_fields(ctx) if field == VALUE else None) or ()
                references = reader.references_in(data, ctx)
                _check_complete(entry.moved, references)
                if not references:
                    continue
            if "kind" in entry.shown:
                yield entry
            for reference in references:
                entry = _Entry(reader, data, ctx, entry.moved)
                entry.reference = reference
                entry.shown |= {"reference": reference.url, "names": names_of(reference.url, self._topics)}
                yield entry

    def _check_whole(self, referred: list[_Entry]) -> None:
        """Download payloads, within the download limits of the readers' stages."""
        prefetch = prefetch_for(*self._readers.values())
        begun = deque[tuple[_Entry, Transfer[Any]]]()
        for entry in referred:
            with entry.noting():
                step = entry.begin()
                if isinstance(step, Transfer):
                    begun.append((entry, step))
        if prefetch is None:
            return
        under_way = deque(prefetch.add(step for _, step in begun))
        for entry, _ in begun:
            with entry.noting():
                prefetch.finish(under_way.popleft())
            prefetch.go_on()


class _Entry:
    """A field of a record that refers to a payload, or whose reference is unreadable.

    Attributes:
        moved: The record's fields that its header names.
        reference: The reference, once read.
        shown: The entry for the driver.
    """

    def __init__(
        self, reader: DeserializerChain, data: Any, ctx: RecordContext, moved: Sequence[FieldEntry] = ()
    ) -> None:
        self._reader = reader
        self._data = data
        self._ctx = ctx
        self.moved = moved
        self.reference: Reference | None = None
        self.shown: dict[str, object] = {"field": ctx.field}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note an error of the field."""
        try:
            yield
        except ContextualError as error:
            # A record with fields in a store may be readable by another schema, unless the rest of it is gone.
            is_unreadable = isinstance(error, PayloadNotFoundError) or (error.about_record and not self.moved)
            malformed = self.reference is None and is_unreadable
            self.shown |= {"kind": type(error).__name__, "message": error.message, "malformed": malformed}

    def begin(self) -> Any:
        """Start the verified download of the payload; returns a transfer, or None if its store is switched off."""
        reference = self.reference
        fields = next((stage for stage in self._reader.stages if isinstance(stage, LargeFieldsDeserializer)), None)
        if fields is None or reference is None:
            return self._reader.begin(self._data, self._ctx)
        if any((each.size, each.digest) == (reference.size, reference.digest) for each in self.moved):
            return fields.follow(reference, self._ctx)
        return _up_to_payload(self._reader).begin(self._data, self._ctx)

    def check_end(self) -> None:
        """Check that the payload exists."""
        if self.reference is not None:
            with self.noting():
                check_end(self._reader.stores, self.reference)


def _check_complete(moved: Sequence[FieldEntry], references: Iterable[Reference]) -> None:
    """Check that the references of all fields were found.

    Raises:
        DecodeError: The chain has no stage for them.
    """
    found = {(reference.size, reference.digest) for reference in references}
    if any((each.size, each.digest) not in found for each in moved):
        raise DecodeError(
            f"the header {HEADER} names fields, whose references no stage of the configuration reads",
            hint="Name large-fields in value.deserializers, behind the stage that reads the value",
        )


def _up_to_payload(reader: DeserializerChain) -> DeserializerChain:
    """The stages of a chain up to the one that fetches whole values."""
    last = next(at for at, stage in enumerate(reader.stages, 1) if isinstance(stage, SupportsReferences))
    return DeserializerChain(reader.stages[:last])
