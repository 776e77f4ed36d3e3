"""Listings of stores, kept in files: a store may have more payloads than fit into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from payload_stores.base import PayloadInfo, PayloadStore, SupportsDelete, SupportsInfo, SupportsList
from payload_stores.errors import PayloadNotFoundError
from payload_stores.plugins import require
from serde_chain.stages.large_message.stores import without_deadline

__all__ = ["Folder", "Pages", "folders_of"]

_PAGE: Final = 20_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ANY_ID: Final = "-"


@dataclass(frozen=True)
class Folder:
    """The payloads of one topic in one store.

    Attributes:
        store: The store.
        topic: The topic.
        root: What the references of these payloads begin with; None where only the store knows.
    """

    store: PayloadStore
    topic: str
    root: str | None

    def list(self, before: datetime, prefix: str = "") -> Iterator[PayloadInfo]:
        """List what was written earlier than this.

        Raises:
            PayloadStoreError: The listing is not complete.
        """
        # A listing has no deadline: it takes as long as there are pages.
        store = without_deadline(self.store)
        assert isinstance(store, SupportsList)  # noqa: S101, chosen by that
        yield from store.list(self.topic, prefix=prefix, before=before)

    def key(self, reference: str) -> str:
        """The name by which records that refer to a payload know it (``worker.references.keys_of``)."""
        if self.root is None or not reference.startswith(self.root):
            return unquote(reference)
        return f"{self.topic}/{unquote(reference.removeprefix(self.root))}"

    def is_old(self, reference: str, before: datetime) -> bool:
        """Whether a payload is still there, and was not renewed since it was listed.

        Raises:
            PayloadStoreError: The store does not say.
        """
        if not self.store.stable_references:
            return True  # each payload is one record's, and never renewed
        if isinstance(self.store, SupportsInfo):
            try:
                return self.store.info(reference).modified < before
            except PayloadNotFoundError:
                return False
        prefix = "" if self.root is None else unquote(reference.removeprefix(self.root))
        return any(info.reference == reference for info in self.list(before, prefix))

    def delete(self, reference: str) -> None:
        """Delete a payload.

        Raises:
            PayloadStoreError: It could not be deleted.
        """
        assert isinstance(self.store, SupportsDelete)  # noqa: S101, chosen by that
        self.store.delete(reference)


def folders_of(
    stores: Iterable[PayloadStore], topics: Iterable[str], *needed: type
) -> tuple[list[Folder], list[PayloadStore]]:
    """The folders of some topics in those stores that can do what is needed, and the other stores."""
    able: list[PayloadStore] = []
    unable: list[PayloadStore] = []
    for store in stores:
        (able if all(isinstance(store, capability) for capability in needed) else unable).append(store)
    return [Folder(store, topic, _root(store, topic)) for store in able for topic in topics], unable


def _root(store: PayloadStore, topic: str) -> str | None:
    example = store.reference(topic, _ANY_ID)
    return None if example is None else example.removesuffix(_ANY_ID)


class Pages:
    """Payloads in a file, written once and read page by page.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        arrow = self._arrow = require("pyarrow", "spark")
        self._schema = arrow.schema(
            [
                ("key", arrow.string()),
                ("reference", arrow.string()),
                ("size", arrow.int64()),
                ("modified", arrow.int64()),  # µs since the epoch
                ("folder", arrow.int32()),
            ]
        )

    def write(self, payloads: Iterable[tuple[int, str, PayloadInfo]]) -> Iterator[int]:
        """Write payloads.

        Args:
            payloads: The place of the folder among all, the key, and the payload.

        Yields:
            How many were written, after each page.
        """
        written = 0
        rows = iter(payloads)
        with self._arrow.ipc.new_stream(str(self._path), self._schema) as file:
            while page := list(islice(rows, _PAGE)):
                entries = [(key, info.reference, info.size, _micros(info.modified), at) for at, key, info in page]
                columns = list(map(list, zip(*entries, strict=True)))
                file.write_batch(self._arrow.record_batch(columns, schema=self._schema))
                written += len(page)
                yield written

    def read(self) -> Iterator[Any]:
        """The pages, as ``pyarrow.Table``."""
        with self._arrow.ipc.open_stream(str(self._path)) as file:
            for batch in file:
                yield self._arrow.Table.from_batches([batch])


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)
