"""Sequences of calls, drawn by Hypothesis and compared with a dictionary as a model of the store."""

# ruff: noqa: D102, S101  a rule's name says what it does, assert is how pytest checks

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, ClassVar, Final, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from payload_stores.base import (
    PayloadStore,
    PublishContext,
    SupportsDelete,
    SupportsList,
    SupportsRanges,
    SupportsStreaming,
)
from payload_stores.errors import PayloadNotFoundError
from payload_stores.registry import open_store
from payload_stores.testing.suite.base import StoreTests, payload

_MOST_BEFORE: Final = 3  # some take longer to open than to store
_SIZES = st.sampled_from([0, 1, 255, 1000, 70_000])
_SEEDS = st.integers(0, 3)
_CONTEXTS = st.sampled_from(
    [
        PublishContext(),
        PublishContext("content"),
        PublishContext("keyed", key=b"one"),
        PublishContext("keyed", key=b"other"),
    ]
)


class StoreMachine(RuleBasedStateMachine):
    """A store, and its expected contents.

    Args:
        open_one: Opens the store once more.
        topic: A topic without payloads.
        large_bytes: Size of a payload that the store treats as large; at most one is published, since it is slow.
        deletes_later: Whether deleted payloads may remain for a while (:attr:`StoreTests.deletes_later`).
    """

    def __init__(
        self, open_one: Callable[[], PayloadStore], topic: str, large_bytes: int, *, deletes_later: bool = False
    ) -> None:
        super().__init__()
        self._open_one = open_one
        self._topic = topic
        self._large_bytes = large_bytes
        self._deletes_later = deletes_later
        self._store = open_one()
        self._before: list[PayloadStore] = []
        self._payloads: dict[str, bytes | None] = {}
        """Published payloads by reference; None if deleted."""

    @rule(size=_SIZES, seed=_SEEDS, context=_CONTEXTS)
    def publish(self, size: int, seed: int, context: PublishContext) -> None:
        data = payload(size, seed)
        self._published(self._store.publish(self._topic, data, context), data, context)

    @precondition(lambda self: self._large_bytes)
    @rule(context=_CONTEXTS)
    def publish_large(self, context: PublishContext) -> None:
        data = payload(self._large_bytes)
        self._large_bytes = 0
        self._published(self._store.publish(self._topic, data, context), data, context)

    @precondition(lambda self: isinstance(self._store, SupportsStreaming))
    @rule(size=_SIZES, seed=_SEEDS, context=_CONTEXTS)
    def publish_stream(self, size: int, seed: int, context: PublishContext) -> None:
        data, store = payload(size, seed), self._store
        assert isinstance(store, SupportsStreaming)
        self._published(store.publish_stream(self._topic, io.BytesIO(data), context), data, context)

    @rule(size=_SIZES, context=_CONTEXTS)
    def publish_from_several_threads(self, size: int, context: PublishContext) -> None:
        """Two threads write the same payload, and two others another one."""
        payloads = [payload(size, seed) for seed in (0, 0, 1, 2)]
        with ThreadPoolExecutor(len(payloads)) as threads:
            references = threads.map(lambda data: self._store.publish(self._topic, data, context), payloads)
        for data, reference in zip(payloads, references, strict=True):
            self._published(reference, data, context)

    @precondition(lambda self: self._payloads)
    @rule(data=st.data())
    def download(self, data: Any) -> None:
        reference = self._one(data)
        self._compare(lambda: self._store.download(reference), self._payloads[reference])

    @precondition(lambda self: self._payloads and isinstance(self._store, SupportsRanges))
    @rule(data=st.data(), start=st.integers(0, 80_000), length=st.integers(0, 80_000))
    def read_range(self, data: Any, start: int, length: int) -> None:
        reference, store = self._one(data), self._store
        assert isinstance(store, SupportsRanges)
        expected = self._payloads[reference]
        part = None if expected is None else expected[start : start + length]
        self._compare(lambda: store.read_range(reference, start, length), part)

    @precondition(lambda self: self._payloads and isinstance(self._store, SupportsStreaming))
    @rule(data=st.data(), moves=st.lists(st.integers(0, 80_000), max_size=3))
    def read_stream(self, data: Any, moves: list[int]) -> None:
        reference, store = self._one(data), self._store
        assert isinstance(store, SupportsStreaming)
        expected = self._payloads[reference]
        if expected is None:
            self._compare(lambda: store.open(reference).close(), None)
            return
        with store.open(reference) as file:
            for at in moves if file.seekable() else ():
                file.seek(at)
                assert _read(file, 1000) == expected[at : at + 1000]
            if moves and file.seekable():
                file.seek(0)
            assert _read(file, len(expected) + 1) == expected

    @precondition(lambda self: self._payloads and isinstance(self._store, SupportsDelete))
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        reference, store = self._one(data), self._store
        assert isinstance(store, SupportsDelete)
        store.delete(reference)
        self._payloads[reference] = None

    @precondition(lambda self: isinstance(self._store, SupportsList))
    @rule()
    def list_all(self) -> None:
        store = self._store
        assert isinstance(store, SupportsList)
        listed = {info.reference: info.size for info in store.list(self._topic)}
        assert listed == {name: len(data) for name, data in self._payloads.items() if data is not None}

    @precondition(lambda self: len(self._before) < _MOST_BEFORE)
    @rule(crash=st.booleans())
    def reopen(self, crash: bool) -> None:
        """Continue with a new store. After a crash the old one is not closed, like that of a killed process."""
        if not crash:
            self._store.close()
        self._before.append(self._store)
        self._store = self._open_one()

    def teardown(self) -> None:
        """Compare all published payloads, and close all stores."""
        for reference, data in self._payloads.items():
            self._compare(lambda at=reference: self._store.download(at), data)  # type: ignore[misc]
        for store in (self._store, *self._before):
            store.close()

    def _one(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(list(self._payloads))))

    def _published(self, reference: str, data: bytes, context: PublishContext) -> None:
        if not context.deterministic:
            assert reference not in self._payloads
        assert self._payloads.get(reference) in {None, data}
        self._payloads[reference] = data

    def _compare(self, read: Callable[[], Any], expected: bytes | None) -> None:
        if expected is not None:
            assert read() == expected
        elif not self._deletes_later:
            with pytest.raises(PayloadNotFoundError):
                read()


def _read(file: BinaryIO, size: int) -> bytes:
    """Read up to a size: a raw file may return less at a time."""
    blocks = []
    while size > 0 and (block := file.read(size)):
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


class MachineTests(StoreTests):
    """After any sequence of calls, the store contains the payloads published and not deleted.

    Attributes:
        machine_examples: Number of sequences; always the same ones.
        machine_steps: Maximum calls per sequence.
    """

    machine_examples: ClassVar[int] = 8
    machine_steps: ClassVar[int] = 20

    def test_any_sequence_of_calls(self, config: Mapping[str, object]) -> None:
        numbers = itertools.count()
        first = open_store(self.store_class, config)
        first.publish(self.topic, b"data")  # a store that waits for its file system is not there before
        first.close()

        def machine() -> StoreMachine:
            topic = f"{self.topic}-{next(numbers)}"
            return StoreMachine(
                lambda: open_store(self.store_class, config), topic, self.large_bytes, deletes_later=self.deletes_later
            )

        run_state_machine_as_test(
            cast("Any", machine),  # a function will do, by its documentation
            settings=settings(
                max_examples=self.machine_examples,
                stateful_step_count=self.machine_steps,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=[*HealthCheck],
            ),
        )
