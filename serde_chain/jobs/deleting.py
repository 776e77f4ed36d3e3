"""Deletes orphans: many per request if their ids are unique, all others one by one, each after another look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Self

from payload_stores.errors import PayloadStoreError
from payload_stores.threads import DaemonPool
from serde_chain.jobs.manifest import Manifest
from serde_chain.jobs.payload_folders import Folder, ListedPayload, pages_of

IN_FLIGHT: Final = 8
"""The default number of requests at a time."""

_AT_ONCE: Final = 1000


class Deleted(NamedTuple):
    """The outcome for some payloads.

    Attributes:
        payloads: Number of deleted payloads.
        bytes: Their total size.
        refused: The errors of refused ones, which another writer may have put there.
    """

    payloads: int = 0
    bytes: int = 0
    refused: tuple[PayloadStoreError, ...] = ()


class Deleter:
    """Deletes payloads with several requests at a time; a context manager.

    A payload with a random id belongs to one record, and is never renewed. Any other may be renewed until its deletion,
    by a producer that is about to send its reference again: it is looked at immediately before.

    Args:
        folders: The folders of the payloads.
        before: Payloads renewed since then stay.
        manifest: Lists each payload before its deletion.
        in_flight: Most requests at a time.
    """

    def __init__(self, folders: Sequence[Folder], before: datetime, manifest: Manifest, in_flight: int) -> None:
        self._folders, self._before, self._manifest, self._in_flight = folders, before, manifest, in_flight
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._manifest)
            self._pool = stack.enter_context(DaemonPool(self._in_flight))
            self._opened = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def delete(self, payloads: Sequence[ListedPayload]) -> Iterator[Deleted]:
        """Delete payloads.

        Yields:
            The outcome of up to a thousand requests at a time.

        Raises:
            PayloadStoreError: The store fails for now.
            JobError: The manifest is unwritable.
        """
        parts = self._parts(payloads)
        while group := list(islice(parts, _AT_ONCE)):
            done = self._pool.all(group)
            yield Deleted(
                sum(each.payloads for each in done),
                sum(each.bytes for each in done),
                tuple(error for each in done for error in each.refused),
            )

    def _parts(self, payloads: Sequence[ListedPayload]) -> Iterator[Callable[[], Deleted]]:
        """The deletions: many payloads by one request, or one payload after another look at it."""
        alone: list[ListedPayload] = []
        together: dict[int, list[ListedPayload]] = {}
        for payload in payloads:
            is_unique = self._folders[payload.folder].is_unique(payload.reference)
            (together.setdefault(payload.folder, []) if is_unique else alone).append(payload)
        for folder, of_folder in together.items():
            for page in pages_of(of_folder, _AT_ONCE):
                yield partial(self._delete_together, self._folders[folder], page)
        for payload in alone:
            yield partial(self._delete_alone, self._folders[payload.folder], payload)

    def _delete_together(self, folder: Folder, part: Sequence[ListedPayload]) -> Deleted:
        for payload in part:
            self._manifest.note(payload.reference, payload.size, payload.time)
        failed = folder.delete_many([payload.reference for payload in part])
        if (transient := next((error for error in failed.values() if error.transient), None)) is not None:
            raise transient
        gone = [payload.size for payload in part if payload.reference not in failed]
        return Deleted(len(gone), sum(gone), tuple(failed.values()))

    def _delete_alone(self, folder: Folder, payload: ListedPayload) -> Deleted:
        try:
            if not folder.is_old(payload.reference, self._before):
                return Deleted()
            self._manifest.note(payload.reference, payload.size, payload.time)
            folder.delete(payload.reference)
        except PayloadStoreError as error:
            if error.transient:
                raise
            return Deleted(refused=(error,))
        return Deleted(1, payload.size)
