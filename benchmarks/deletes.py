"""Listing and deletions of a sweep in S3: random ids together, others one by one after another look at each."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from benchmarks.harness import Row, Table, per_second
from payload_stores import PublishContext, open_store
from serde_chain.jobs.deleting import IN_FLIGHT, Deleter
from serde_chain.jobs.manifest import Manifest
from serde_chain.jobs.payload_folders import Folder, IdRange, ListedPayload, list_folders
from tests.servers.versitygw import VersityGateway

_PAYLOADS: Final = 2_000
_ROUNDS: Final = 2
_WAYS: Final[tuple[tuple[str, Literal["random", "content"]], ...]] = (
    ("s3", "random"),
    ("s3", "content"),
    ("objects", "random"),
    ("objects", "content"),
)


def run(*, quick: bool) -> Iterator[Table]:
    """Each way in turn, with a manifest; by wall time, and by CPU time of this process."""
    count = 200 if quick else _PAYLOADS
    wall: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    listing: dict[str, list[float]] = {}
    with VersityGateway() as server, tempfile.TemporaryDirectory() as folder:
        bucket = server.create_bucket()
        configs = {"s3": server.store_config(bucket), "objects": server.objects_config(bucket)}
        for number in range(1 if quick else _ROUNDS):
            for name, ids in _WAYS:
                topic = f"{name}-{ids}-{number}"
                _publish(configs["objects"], topic, ids, count)
                store = open_store(name, configs[name])
                own = Folder(store, topic, str(store.reference(topic, "-")).removesuffix("-"))
                before = datetime.now(UTC) + timedelta(hours=1)
                began = time.perf_counter(), time.process_time()
                listed = list(list_folders([own], [IdRange(0)], [store], before))
                listing.setdefault(name, []).append(time.process_time() - began[1])
                gc.collect()  # of boto3's models, once in five rounds, it takes as long as two deletions
                began = time.perf_counter(), time.process_time()
                gone = _delete(own, listed, before, Path(folder, topic))
                wall.setdefault((name, ids), []).append(time.perf_counter() - began[0])
                cpu.setdefault((name, ids), []).append(time.process_time() - began[1])
                if gone != count:
                    raise AssertionError(f"{gone} of {count} were deleted")
                store.close()
    note = f"{IN_FLIGHT} requests at a time; the server is on the same cores."
    yield Table("sweep-deletes", "Deletions of a sweep from S3", "payloads/s", _rows(count, wall), note=note)
    rows = [Row(name, per_second(count, seconds)) for name, seconds in listing.items()]
    yield Table("sweep-listing-cpu", "Listing of a sweep in S3 by its CPU time", "payloads/s", rows, note=note)
    title = "Deletions of a sweep from S3 by CPU time of the sweep"
    yield Table("sweep-deletes-cpu", title, "payloads/s", _rows(count, cpu), note=note)


def _rows(count: int, seconds: dict[tuple[str, str], list[float]]) -> list[Row]:
    return [Row(f"{name}, {ids} ids", per_second(count, seconds[name, ids])) for name, ids in _WAYS]


def _publish(config: dict[str, Any], topic: str, ids: Literal["random", "content"], count: int) -> None:
    store = open_store("objects", config)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: store.publish(topic, b"%d" % at, PublishContext(ids)), range(count)))
    store.close()


def _delete(folder: Folder, listed: list[ListedPayload], before: datetime, manifest: Path) -> int:
    with Deleter([folder], before, Manifest(manifest), IN_FLIGHT) as deleter:
        return sum(done.payloads for done in deleter.delete(listed))
