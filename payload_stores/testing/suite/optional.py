"""Optional operations."""

# ruff: noqa: D102, S101  the name of a test says what it shows, assert is how pytest checks

from __future__ import annotations

import io
import itertools
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from payload_stores.base import (
    PayloadStore,
    PublishContext,
    SupportsClock,
    SupportsDelete,
    SupportsDeleteMany,
    SupportsInfo,
    SupportsLeftoverCount,
    SupportsLeftovers,
    SupportsList,
    SupportsListRange,
    SupportsRanges,
    SupportsStreaming,
)
from payload_stores.errors import PayloadNotFoundError, UntrustedReferenceError
from payload_stores.registry import open_store
from payload_stores.testing.suite.base import StoreTests, payload

_CONTENT: Final = PublishContext("content")
# Names that no reference can have, and some that one can; ids sort after the first.
_ODD_NAMES: Final = (
    *(
        "\x01",
        "a b",
        "..",
        ".",
        "../x",
        "x/../y",
        "x//y",
        "x/",
        "x\\y",
        "\x7f",
        "0\x7f",
        "x\ny",
        ".x",
        "ä",
        "%2e%2e",
        "x?y",
        "x#y",
    ),
    *("x" * 255, "/".join("x" * 100), "\udcff"),
)


class OptionalTests(StoreTests):
    """Delete, list, renew and stream; skipped if the store lacks the methods."""

    def test_delete(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsDelete):
            pytest.skip("the store cannot delete")
        gone, kept = (store.publish(self.topic, b"data") for _ in range(2))
        store.delete(gone)
        store.delete(gone)
        if isinstance(store, SupportsList):
            assert [info.reference for info in store.list(self.topic)] == [kept]
        if not self.deletes_later:
            with pytest.raises(PayloadNotFoundError):
                store.download(gone)
        assert store.download(kept) == b"data"

    def test_delete_follows_no_foreign_reference(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsDelete):
            pytest.skip("the store cannot delete")
        reference = store.publish(self.topic, b"data")
        prefix, _, payload_id = reference.rpartition("/")
        for foreign in ("other://host/t/1", f"{prefix}/../{self.topic}/{payload_id}", f"{reference}?x"):
            with pytest.raises(UntrustedReferenceError):
                store.delete(foreign)
        assert store.download(reference) == b"data"

    def test_delete_many(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsDeleteMany):
            pytest.skip("the store deletes one by one")
        gone = [store.publish(self.topic, b"data") for _ in range(3)]
        kept = store.publish(self.topic, b"data")
        if isinstance(store, SupportsDelete):
            store.delete(gone[0])
        with pytest.raises(UntrustedReferenceError):
            store.delete_many([gone[1], "other://host/t/1"])
        assert store.download(gone[1]) == b"data"
        assert not store.delete_many([])
        assert not store.delete_many([*gone, gone[1]])
        assert not store.delete_many(gone)
        if isinstance(store, SupportsList):
            assert [info.reference for info in store.list(self.topic)] == [kept]
        assert store.download(kept) == b"data"

    def test_clock(self, store: PayloadStore) -> None:
        if not (isinstance(store, SupportsClock) and isinstance(store, SupportsList)):
            pytest.skip("the store's server does not tell its time")
        store.publish(f"{self.topic}2", b"the first one may create the store")
        before = store.now()
        store.publish(self.topic, b"data")
        after = store.now()
        assert before.utcoffset() is not None
        (info,) = store.list(self.topic)
        second = timedelta(seconds=1)
        assert before - second <= info.modified <= after + second

    def test_info(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsInfo):
            pytest.skip("the store cannot look at one payload alone")
        reference = store.publish(self.topic, b"payload")
        info = store.info(reference)
        assert (info.reference, info.size) == (reference, 7)
        if isinstance(store, SupportsList):
            (listed,) = store.list(self.topic)
            assert (listed.reference, listed.size) == (reference, 7)
            # Of some servers, listings alone have fractions of a second.
            assert info.modified <= listed.modified < info.modified + timedelta(seconds=1)
        with pytest.raises(UntrustedReferenceError):
            store.info("other://host/t/1")
        if isinstance(store, SupportsDelete) and not self.deletes_later:
            store.delete(reference)
            with pytest.raises(PayloadNotFoundError):
                store.info(reference)

    def test_list(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsList):
            pytest.skip("the store cannot list")
        sizes = {store.publish(self.topic, payload(size)): size for size in (0, 1, 1000)}
        sizes[store.publish(self.topic, payload(10), PublishContext("keyed", key=b"key"))] = 10
        store.publish(f"{self.topic}2", b"of another topic")
        listed = list(store.list(self.topic))
        assert {info.reference: info.size for info in listed} == sizes
        assert len(listed) == len(sizes)
        assert all(abs(datetime.now(UTC) - info.modified) < timedelta(hours=1) for info in listed)
        assert list(store.list("nothing-here")) == []

    def test_a_list_of_several_pages(self, store: PayloadStore) -> None:
        """A sweep would never delete the payloads of a page that is not listed."""
        if not isinstance(store, SupportsList):
            pytest.skip("the store cannot list")
        if self.page_size is None:
            pytest.skip("`page_size`, the number of payloads that the store lists per request, is not set")
        published = sorted(store.publish(self.topic, b"data") for _ in range(2 * self.page_size + 1))
        listed = sorted(info.reference for info in store.list(self.topic))
        assert listed == published, f"{len(published)} payloads, and {len(listed)} listed, by pages of {self.page_size}"

    def test_what_is_listed_can_be_deleted(self, store: PayloadStore) -> None:
        """Objects of other programs too: an error for one of their names would end every sweep."""
        if not (isinstance(store, SupportsList) and isinstance(store, SupportsDelete)):
            pytest.skip("the store cannot list or delete")
        kept = store.publish(self.topic, b"data")
        for name in _ODD_NAMES:
            with suppress(ValueError):
                self.raw_write(kept, name, b"of another program")
        listed = [info.reference for info in store.list(self.topic)]
        assert kept in listed
        if isinstance(store, SupportsDeleteMany):
            assert not store.delete_many(listed[::2])
            del listed[::2]
        for reference in listed:
            store.delete(reference)
        assert not list(store.list(self.topic))

    @pytest.mark.usefixtures("asked_ids")
    def test_a_part_of_a_list(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsList):
            pytest.skip("the store cannot list")
        ids = ("abc", "abd", "ac/1", "ac/12", "ac/2", "acc", "b")
        references = {one: store.publish(self.topic, b"data", PublishContext(payload_id=one)) for one in ids}
        for prefix in ("", "a", "ab", "ac", "ac/", "ac/1", "abcd", "c", "ac/1/", "/"):
            wanted = {reference for one, reference in references.items() if one.startswith(prefix)}
            assert {info.reference for info in store.list(self.topic, prefix=prefix)} == wanted, prefix
        [oldest, *_rest] = sorted(info.modified for info in store.list(self.topic))
        assert list(store.list(self.topic, before=oldest)) == []
        assert len(list(store.list(self.topic, before=datetime.now(UTC) + timedelta(hours=1)))) == len(ids)

    @pytest.mark.usefixtures("asked_ids")
    def test_a_range_of_a_list(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsListRange):
            pytest.skip("the store lists from the first id on")
        ids = ("-x", "0", "1", "12", "2/1", "A", "a", "ab/1", "b", "z", "~")
        references = {one: store.publish(self.topic, b"data", PublishContext(payload_id=one)) for one in ids}
        store.publish(f"{self.topic}2", b"of another topic")
        store.publish(f"{self.topic}-2", b"of another topic")
        bounds = ("", "0", "1", "12", "2", "a", "ab/1", "az", "~", "~~")
        for after, until in itertools.combinations((*bounds, None), 2):
            listed = store.list_range(self.topic, after=after or "", until=until)
            wanted = [one for one in ids if one > (after or "") and (until is None or one <= until)]
            assert [info.reference for info in listed] == [references[one] for one in wanted], (after, until)
        oldest = min(info.modified for info in store.list_range(self.topic))
        assert list(store.list_range(self.topic, after="1", before=oldest)) == []
        assert list(store.list_range("nothing-here", after="1")) == []

    @pytest.mark.parametrize("size", [0, 1000, None], ids=["empty", "small", "large"])
    def test_ranges(self, store: PayloadStore, size: int | None) -> None:
        if not isinstance(store, SupportsRanges):
            pytest.skip("the store returns whole payloads only")
        data = payload(self.large_bytes if size is None else size)
        reference = store.publish(self.topic, data)
        middle = len(data) // 2
        for start, length in ((0, 0), (0, 1), (0, len(data)), (middle, 100), (middle, len(data)), (len(data), 10)):
            assert store.read_range(reference, start, length) == data[start : start + length]
        assert store.read_range(reference, len(data) + 1, 1 << 40) == b""
        for start, length in ((-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="at least 0"):
                store.read_range(reference, start, length)
        prefix = reference.rpartition("/")[0]
        with pytest.raises(PayloadNotFoundError):
            store.read_range(f"{prefix}/{uuid.uuid4()}", 0, 1)
        with pytest.raises(UntrustedReferenceError):
            store.read_range(f"{prefix}/../x", 0, 1)

    @pytest.mark.usefixtures("asked_ids")
    @pytest.mark.parametrize("size", [0, 1000, None], ids=["empty", "small", "large"])
    def test_content_that_is_old_is_renewed(
        self, store: PayloadStore, config: Mapping[str, object], size: int | None
    ) -> None:
        if not isinstance(store, SupportsList):
            pytest.skip("the store cannot list, so that no sweep deletes what is old")
        if not store.stable_references:
            pytest.skip("each payload of the store belongs to one record (stable_references)")
        data = payload(self.large_bytes if size is None else size)
        young, old = (
            open_store(self.store_class, {**config, PayloadStore.GRACE.name: grace}) for grace in (86_400_000, 0)
        )
        reference = young.publish(self.topic, data, _CONTENT)
        [first] = store.list(self.topic)
        # Written again or not: the store decides.
        assert young.publish(self.topic, data, _CONTENT) == reference
        [again] = store.list(self.topic)
        assert (again.reference, again.size) == (reference, len(data))
        until = time.monotonic() + 30
        renewed = first = again
        while renewed.modified == first.modified:  # S3 counts in seconds
            assert time.monotonic() < until
            assert old.publish(self.topic, data, _CONTENT) == reference
            [renewed] = store.list(self.topic)
        assert renewed.modified > first.modified
        assert (renewed.reference, renewed.size) == (reference, len(data))
        assert store.download(reference) == data
        young.close()
        old.close()

    def test_leftovers_are_no_payloads(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsLeftovers):
            pytest.skip("the store has no leftovers to remove")
        references = [store.publish(self.topic, data) for data in (b"", payload(self.large_bytes))]
        if isinstance(store, SupportsLeftoverCount):
            assert store.count_leftovers(0) == 0
        assert store.remove_leftovers(0) == 0
        assert [len(store.download(reference)) for reference in references] == [0, self.large_bytes]

    @pytest.mark.parametrize("size", [0, 1000, None], ids=["empty", "small", "large"])
    @pytest.mark.parametrize("strategy", ["random", "content"])
    def test_stream(self, store: PayloadStore, size: int | None, strategy: Any) -> None:
        if not isinstance(store, SupportsStreaming):
            pytest.skip("the store cannot stream")
        if strategy != "random" and not store.follows_context:
            pytest.skip("the store chooses its ids itself: its publish takes no context")
        data = payload(self.large_bytes if size is None else size)
        context = PublishContext(strategy)
        reference = store.publish_stream(self.topic, _Trickle(data), context)
        assert store.download(reference) == data
        with store.open(reference) as file:
            start = file.read(10)
            assert start + b"".join(iter(lambda: file.read(70_000), b"")) == data
            if isinstance(store, SupportsRanges):  # otherwise, seeking may read everything before
                assert file.seekable()
            for at in (len(data) // 2, 0, len(data)) if file.seekable() else ():
                assert file.seek(at) == file.tell() == at
                assert file.read(10) == data[at : at + 10]
        if strategy == "content" and store.stable_references:
            assert store.publish(self.topic, data, context) == reference

    @pytest.mark.parametrize("size", [0, 1000, None], ids=["at once", "early", "late"])
    def test_a_stream_that_breaks_off_leaves_nothing(self, store: PayloadStore, size: int | None) -> None:
        """The reader's own error propagates unchanged: the source is at fault, not the store."""
        if not isinstance(store, SupportsStreaming):
            pytest.skip("the store cannot stream")
        with pytest.raises(_BrokenOffError):
            store.publish_stream(self.topic, _BreaksOff(payload(self.large_bytes if size is None else size)))
        if isinstance(store, SupportsList):
            assert list(store.list(self.topic)) == []
        if isinstance(store, SupportsLeftovers):
            assert store.remove_leftovers(0) == 0

    def test_what_is_kept_of_a_stream_is_the_payload(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsStreaming):
            pytest.skip("the store cannot stream")
        data = payload(self.large_bytes)
        assert self.raw_read(store.publish_stream(self.topic, _Trickle(data))) == data

    def test_a_deleted_payload_is_not_kept(self, store: PayloadStore) -> None:
        if not isinstance(store, SupportsDelete):
            pytest.skip("the store cannot delete")
        if self.deletes_later:
            pytest.skip("the store's server removes payloads later (deletes_later)")
        reference = store.publish(self.topic, b"data")
        assert self.raw_read(reference) == b"data"
        store.delete(reference)
        with pytest.raises(Exception, match=r".*"):  # of whatever reads past the store
            self.raw_read(reference)

    def test_open_refuses_what_download_refuses(self, store: PayloadStore, config: Mapping[str, object]) -> None:
        if not isinstance(store, SupportsStreaming):
            pytest.skip("the store cannot stream")
        reference = store.publish(self.topic, b"data")
        prefix = reference.rpartition("/")[0]
        with pytest.raises(PayloadNotFoundError):
            store.open(f"{prefix}/{uuid.uuid4()}")
        with pytest.raises(UntrustedReferenceError):
            store.open(f"{prefix}/../x")
        limited = open_store(self.store_class, {**config, PayloadStore.MAX_PAYLOAD.name: 3})
        assert isinstance(limited, SupportsStreaming)
        self.refuse_too_large(lambda: limited.open(reference))
        limited.close()


class _Trickle(io.BytesIO):
    """Returns fewer bytes than requested, like pipes and sockets."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size, 1000) if size is not None and size > 0 else size)


class _BrokenOffError(Exception):
    """The source of a stream failed."""


class _BreaksOff(io.BytesIO):
    """Fails where it should end."""

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        if not block:
            raise _BrokenOffError
        return block
