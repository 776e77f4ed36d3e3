"""Folders are divided by their size, and every payload is in one part."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from payload_stores import PayloadStore, PublishContext, SupportsListRange, open_store
from payload_stores.memory import MemoryStore
from serde_chain.jobs import shares
from serde_chain.jobs.payload_folders import Folder, IdRange, list_folders
from serde_chain.testing.services import S3Server

LATER = datetime.now(UTC) + timedelta(days=1)
ODD = ("-x", "0", "8", "800", "A", "Zebra", "_", "a/1", "f", "fff", "g", "zebra/1", "~")


def digest(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def folder_of(store: PayloadStore, topic: str) -> Folder:
    return Folder(store, topic, str(store.reference(topic, "-")).removesuffix("-"))


def fill(store: PayloadStore, topic: str, count: int, ids: str) -> None:
    for number in range(count):
        key = f"{digest(number % 7)}/" if ids == "keyed" else ""
        store.publish(topic, b"x", PublishContext(payload_id=f"{key}{digest(number)}"))


@pytest.fixture
def memory() -> Iterator[MemoryStore]:
    MemoryStore.clear()
    yield MemoryStore()
    MemoryStore.clear()


def test_sizes_are_estimated_by_a_page(memory: MemoryStore) -> None:
    folder = folder_of(memory, "t")
    assert shares.estimate(folder) == 0
    fill(memory, "t", 1500, "content")
    assert shares.estimate(folder) == pytest.approx(1500, rel=0.1)
    fill(memory, "t", 20_000, "content")
    assert shares.estimate(folder) == pytest.approx(20_000, rel=0.1)


def test_many_payloads_of_one_key_are_an_overestimate_with_a_bound(memory: MemoryStore) -> None:
    for number in range(1000):
        memory.publish("t", b"x", PublishContext(payload_id=f"80/{number}"))
    parts = [*shares.parts_of([folder_of(memory, "t")], [0])]
    assert len(parts) == shares.MOST_PARTS
    assert (parts[0].after, parts[-1].until) == ("", None)


@pytest.mark.parametrize("ids", ["content", "keyed"])
@pytest.mark.parametrize("of_part", [1, 30, 100_000])
def test_every_payload_is_in_one_part(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, of_part: int, ids: str
) -> None:
    monkeypatch.setattr(shares, "_PAYLOADS_OF_PART", of_part)
    fill(memory, "t", 300, ids)
    for name in ODD:
        memory.publish("t", b"x", PublishContext(payload_id=name))
    folder = folder_of(memory, "t")
    parts = [*shares.parts_of([folder], [0])]
    assert (len(parts) == 1) is (of_part == 100_000)
    assert parts == sorted(parts, key=lambda part: part.after)
    listed = Counter(each.reference for each in list_folders([folder], parts, [memory], LATER))
    assert listed == Counter(info.reference for info in memory.list("t"))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["s3", "objects"])
def test_a_part_costs_its_own_payloads_only(
    monkeypatch: pytest.MonkeyPatch, s3_server: S3Server, bucket: str, kind: str
) -> None:
    """Some 300 uploads, and a listing for each part."""
    monkeypatch.setattr(shares, "_PAYLOADS_OF_PART", 20)
    config = s3_server.store_config(bucket) if kind == "s3" else s3_server.objects_config(bucket)
    with closing(open_store(kind, config)) as opened:
        store: Any = opened
        assert isinstance(opened, SupportsListRange)
        fill(store, "t", 300, "content")
        fill(store, "t2", 10, "content")
        for name in ODD:
            store.publish("t", b"x", PublishContext(payload_id=name))
        folder = folder_of(store, "t")
        names: list[str] = []
        if kind == "s3":
            store._client.meta.events.register("before-call.s3", lambda model, **_: names.append(model.name))
        parts = [*shares.parts_of([folder], [0])]
        assert names == (["ListObjectsV2"] if kind == "s3" else [])
        assert len(parts) == pytest.approx(16, abs=2)
        sizes: Counter[IdRange] = Counter()
        listed: Counter[str] = Counter()
        for part in parts:
            of_part = [each.reference for each in list_folders([folder], [part], [store], LATER)]
            sizes[part] += len(of_part)
            listed.update(of_part)
        assert len(names) == (1 + len(parts) if kind == "s3" else 0)
        assert max(sizes.values()) <= 60
        assert listed == Counter(info.reference for info in store.list("t"))
        assert len(listed) == 300 + len(ODD)


def test_directory_buckets_are_listed_whole() -> None:
    for name, is_sorted in (("payloads", True), ("payloads--usw2-az1--x-s3", False)):
        with closing(open_store("s3", {"s3.bucket": name, "s3.region": "us-west-2"})) as store:
            assert isinstance(store, SupportsListRange) is is_sorted
    with closing(open_store("objects", {"objects.url": "az://payloads", "objects.account_name": "a"})) as store:
        assert not isinstance(store, SupportsListRange)
