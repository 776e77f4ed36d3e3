"""Finds the references in records, and checks that they lead to payloads.

A placeholder is read without a download. A record whose header names fields is decoded, and its payload fetched if it
is a placeholder as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

from payload_stores.base import PayloadStore
from payload_stores.errors import PayloadNotFoundError
from payload_stores.probes import see
from payload_stores.threads import DaemonPool
from serde_chain.base import Data, Deserializer, SupportsReferences
from serde_chain.chain import DeserializerChain
from serde_chain.clients.window_reader import prefetch_for
from serde_chain.codec import Record
from serde_chain.errors import ContextualError, DecodeError
from serde_chain.jobs.payload_folders import is_plain, names_in, names_of
from serde_chain.jobs.reference_plan import END, WHOLE, ReferencePlan
from serde_chain.record import VALUE, RecordContext, remove_headers
from serde_chain.self_describing import AutoDeserializer
from serde_chain.stages.large_fields.read import LargeFieldsDeserializer, moved_fields
from serde_chain.transfer import Transfer
from serde_chain.wire.large_fields import HEADER, FieldEntry
from serde_chain.wire.reference_format import Reference

# Concurrent requests for the last byte of payloads.
_CHECKS: Final = 8


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


class ReferenceFinder:
    """Finds references as a plan says.

    Args:
        plan: The plan.
        readers: Its chains, by field; the caller closes them.
    """

    def __init__(self, plan: ReferencePlan, readers: Mapping[str, DeserializerChain]) -> None:
        self._plan, self._readers = plan, readers
        self._topics = frozenset(plan.topics)

    def find(self, records: Iterable[Record]) -> list[list[Found]]:
        """The references in records, checked if the plan says so.

        Args:
            records: Records with the bytes and headers from the broker.

        Returns:
            For each record its references and unreadable placeholders.
        """
        found = [list(self._in_record(record)) for record in records]
        referred = [each for entries in found for each in entries if each.reference is not None]
        if self._plan.check == WHOLE:
            self._check_whole(referred)
        elif self._plan.check == END and referred:
            DaemonPool(_CHECKS).all(entry.check_end for entry in referred)
        return found

    def _in_record(self, record: Record) -> Iterator[Found]:
        headers: Any = [*(record.headers or ())]
        received = tuple(headers)
        for field, reader in self._readers.items():
            data = record.value if field == VALUE else record.key
            if data is None:
                continue
            key = record.key if field == VALUE else None
            ctx = RecordContext(record.topic, field, headers, key, record.partition, None, record.offset)
            moved: Sequence[FieldEntry] = ()
            if field == VALUE:
                entry = Found(reader, data, ctx)
                with entry.noting():
                    moved = moved_fields(ctx) or ()
                if entry.kind is not None:
                    # Readers without large-fields pass over the header, and follow the reference of the whole value.
                    remove_headers(ctx, (HEADER,))
                    names = set(self._names_in(data, received))
                    with entry.noting():
                        names.update(self._names_in(_undone(reader, data, ctx), ()))
                    entry.names = sorted(names)
                    yield entry
            entry = Found(reader, data, ctx, moved)
            references: tuple[Reference, ...] = ()
            with entry.noting():
                references = reader.references_in(data, ctx)
                _check_complete(moved, references)
            if entry.kind is not None:
                entry.names = self._names_in(data, received)
                yield entry
            for reference in references:
                entry = Found(reader, data, ctx, moved)
                entry.reference, entry.names = reference, names_of(reference.url, self._topics)
                if not is_plain(reference.url) or self._topics.isdisjoint(reference.url.split("/")):
                    entry.names = sorted({*entry.names, *self._names_in(data, received)})
                yield entry

    def _names_in(self, data: Any, headers: Iterable[tuple[str, bytes | None]]) -> list[int]:
        """The names of what a placeholder may refer to that our readers cannot follow, but others perhaps can."""
        parts = (data, *(value for _, value in headers if value is not None))
        return sorted(set().union(*(names_in(part, self._topics) for part in parts)))

    def _check_whole(self, referred: list[Found]) -> None:
        """Download payloads, within the download limits of the readers' stages."""
        prefetch = prefetch_for(*self._readers.values())
        begun = deque[tuple[Found, Transfer[Any]]]()
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


class Found:
    """A field of a record that refers to a payload, or whose reference is unreadable.

    Attributes:
        field: The field: ``key`` or ``value``.
        moved: The record's fields that its header names.
        reference: The reference, once read.
        names: The names of its payload (:func:`~serde_chain.jobs.payload_folders.names_of`); of an unreadable
            placeholder, those of all payloads to which it may refer.
        kind: The class of the error, if the placeholder is unreadable or the payload has a problem.
        message: Its message.
        malformed: Whether the placeholder itself is unreadable, to any reader.
    """

    def __init__(
        self, reader: DeserializerChain, data: Any, ctx: RecordContext, moved: Sequence[FieldEntry] = ()
    ) -> None:
        self._reader = reader
        self._data = data
        self._ctx = ctx
        self.field = ctx.field
        self.moved = moved
        self.reference: Reference | None = None
        self.names: list[int] = []
        self.kind: str | None = None
        self.message: str | None = None
        self.malformed = False

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note an error of the field."""
        try:
            yield
        except ContextualError as error:
            # A record with fields in a store may be readable by another schema, unless the rest of it is gone.
            is_unreadable = isinstance(error, PayloadNotFoundError) or (error.about_record and not self.moved)
            self.malformed = self.reference is None and is_unreadable
            self.kind, self.message = type(error).__name__, error.message

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


def _undone(reader: DeserializerChain, data: Any, ctx: RecordContext) -> Any:
    """A value as it was before it was compressed, encrypted or moved as a whole: an object as bytes.

    Raises:
        SerializationError: One of the stages failed.
    """
    [first, *rest] = reader.stages
    if isinstance(first, AutoDeserializer) and not rest:
        reader = first.chain_of(ctx)
    bare = takewhile(lambda stage: isinstance(stage, Deserializer) and stage.gives is Data.BYTES, reader.stages)
    return DeserializerChain(list(bare))(data, RecordContext(ctx.topic, ctx.field, [*(ctx.headers or ())], ctx.key))


def _up_to_payload(reader: DeserializerChain) -> DeserializerChain:
    """The stages of a chain up to the one that fetches whole values."""
    last = next(at for at, stage in enumerate(reader.stages, 1) if isinstance(stage, SupportsReferences))
    return DeserializerChain(reader.stages[:last])
