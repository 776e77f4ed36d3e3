"""Many payloads are deleted per request, if nothing can have renewed them."""

import json
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from payload_stores import PayloadInfo, PublishContext, open_store
from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from payload_stores.s3 import S3Store
from payload_stores.testing import FaultyStore
from serde_chain import jobs
from serde_chain.clients.confluent import partitions
from serde_chain.errors import JobError
from serde_chain.jobs import topic_bounds
from serde_chain.jobs.local import sweeping
from serde_chain.jobs.payload_folders import Folder
from serde_chain.testing.services import S3Server
from tests.jobs.conftest import Config, Send, Sweep, payload, stored

RANDOM = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def memory(config: Config) -> FaultyStore:
    MemoryStore.clear()
    store = FaultyStore(MemoryStore())
    config["large.message.payload.store.class"] = store
    return store


def test_random_ids_go_together_and_all_others_one_by_one(
    config: Config, memory: FaultyStore, topic: str, send: Send
) -> None:
    send(topic, payload(0))
    kept = stored(memory, topic)
    for number in range(2_500):
        memory.publish(topic, payload(number))
    for number in range(3):
        memory.publish(topic, payload(number), PublishContext("content"))
    memory.calls.clear()
    report = jobs.sweep(config, topic, grace_ms=0, delete=True)
    assert (report.deleted, report.bytes) == (2_503, 2_503 * 600)
    assert Counter(memory.calls) == {"list": 1, "delete_many": 3, "info": 3, "delete": 3}
    assert stored(memory, topic) == kept
    assert report.manifest is not None
    noted = [json.loads(line)["reference"] for line in report.manifest.read_text().splitlines()]
    assert len(noted) == len(set(noted)) == 2_503


@pytest.mark.parametrize(
    ("payload_id", "is_unique"),
    [
        (RANDOM, True),
        (RANDOM.replace("-469f-", "-569f-"), False),  # of a name (version 5)
        (RANDOM.upper(), False),
        (RANDOM + "0", False),
        ("0" + RANDOM, False),
        ("ab" * 32, False),
        (f"{'ab' * 32}/{RANDOM}", True),
        (f"{RANDOM}/1", False),
    ],
)
def test_random_ids(payload_id: str, *, is_unique: bool) -> None:
    folder = Folder(MemoryStore(), "alerts", "memory:///alerts/")
    assert folder.is_unique(f"memory:///alerts/{payload_id}") is is_unique


def test_stores_that_delete_one_by_one(sweep: Sweep, config: Config, topic: str, send: Send) -> None:
    send(topic, payload(0))
    store = open_store("local", config)
    store.publish(topic, payload(1))
    assert sweep(config, topic, grace_ms=0, delete=True, deletes_in_flight=1).deleted == 1


def test_on_s3(*, sweep: Sweep, config: Config, topic: str, send: Send, s3_server: S3Server, bucket: str) -> None:
    config |= {"large.message.payload.store.class": "s3", **s3_server.store_config(bucket)}
    send(topic, payload(0))
    store = open_store("s3", config)
    kept = stored(store, topic)
    for number in range(12):
        store.publish(topic, payload(number), PublishContext("content" if number % 3 == 0 else "random"))
    report = sweep(config, topic, grace_ms=-2000, delete=True)
    assert (report.orphans, report.deleted) == (12, 12)
    assert stored(store, topic) == kept


def test_one_question_for_each_content_id(
    config: Config, topic: str, send: Send, s3_server: S3Server, bucket: str
) -> None:
    settings = s3_server.store_config(bucket)
    with closing(S3Store()) as store:
        store.configure({**config, **settings})
        config |= {"large.message.payload.store.class": store, **settings}
        send(topic, payload(0))
        orphans = [store.publish(topic, payload(number), PublishContext("content")) for number in range(1, 4)]
        names: list[str] = []
        store._client.meta.events.register("before-call.s3", lambda model, **_: names.append(model.name))
        assert jobs.sweep(config, topic, grace_ms=-2000, delete=True).deleted == len(orphans)
    counts = Counter(names)
    assert (counts["ListObjectsV2"], counts["HeadObject"], counts["DeleteObject"]) == (1, 3, 3)


class Unreadable(MemoryStore):
    """For a login without the permission to read."""

    def info(self, reference: str) -> PayloadInfo:
        raise PayloadAccessDeniedError("forbidden", reference=reference)


def test_a_login_that_may_list_and_delete_but_not_read(config: Config, topic: str, send: Send) -> None:
    MemoryStore.clear()
    store = config["large.message.payload.store.class"] = FaultyStore(Unreadable())
    send(topic, payload(0))
    store.publish(topic, payload(1), PublishContext("content"))
    store.calls.clear()
    assert jobs.sweep(config, topic, grace_ms=0, delete=True).deleted == 1
    assert Counter(store.calls) == {"list": 2, "info": 1, "delete": 1}


def test_clients_are_made_once_per_sweep(
    config: Config, memory: FaultyStore, topic: str, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(kind: type, *arguments: Any) -> Any:
        made.append(kind.__name__)
        return partitions.make_client(kind, *arguments)

    monkeypatch.setattr(sweeping, "_PAGE", 1)
    monkeypatch.setattr(topic_bounds, "make_client", make)
    monkeypatch.setattr(topic_bounds, "PartitionReader", partial(Counted, made))
    send(topic, payload(0))
    for number in range(3):
        memory.publish(topic, payload(number))
    assert jobs.sweep(config, topic, grace_ms=0, delete=True).deleted == 3
    assert made == ["AdminClient", "Consumer"]


class Counted(partitions.PartitionReader):
    def __init__(self, made: list[str], *arguments: Any, **options: Any) -> None:
        made.append("Consumer")
        super().__init__(*arguments, **options)


class Refusing(MemoryStore):
    """Refuses to delete some payloads."""

    refused: tuple[str, ...] = ()
    error: PayloadStoreError = PayloadAccessDeniedError("locked")

    def delete_many(self, references: Any) -> Any:
        failed = dict.fromkeys(self.refused, self.error)
        super().delete_many([reference for reference in references if reference not in failed])
        return failed


def test_refused_payloads_are_warned_of(config: Config, topic: str, send: Send) -> None:
    MemoryStore.clear()
    store = config["large.message.payload.store.class"] = Refusing()
    send(topic, payload(0))
    orphans = [store.publish(topic, payload(number)) for number in range(5)]
    store.refused = tuple(orphans[:2])
    report = jobs.sweep(config, topic, grace_ms=0, delete=True)
    assert (report.orphans, report.deleted, report.bytes) == (5, 3, 1800)
    assert any("2 payloads could not be deleted; one of them: locked" in text for text in report.warnings)


def test_a_store_that_is_down_for_some_ends_the_sweep(config: Config, topic: str, send: Send) -> None:
    MemoryStore.clear()
    store = config["large.message.payload.store.class"] = Refusing()
    send(topic, payload(0))
    store.refused = (store.publish(topic, payload(1)), *(store.publish(topic, payload(2)) for _ in range(3)))[:1]
    store.error = PayloadStoreUnavailableError("slow down")
    with pytest.raises(JobError, match="ended after at least 0 deletions: slow down"):
        jobs.sweep(config, topic, grace_ms=0, delete=True)


class Late(MemoryStore):
    """A server whose clock is an hour behind."""

    def now(self) -> datetime:
        return datetime.now(UTC) - timedelta(hours=1)


class Silent(MemoryStore):
    """A server that does not tell its time."""

    def now(self) -> datetime:
        raise PayloadStoreUnavailableError("down")


def test_ages_are_measured_by_the_stores_clock(config: Config, topic: str, send: Send) -> None:
    MemoryStore.clear()
    config["large.message.payload.store.class"] = Late()
    send(topic, payload(0))
    MemoryStore().publish(topic, payload(1))
    report = jobs.sweep(config, topic, grace_ms=0, delete=True)
    assert report.listed == 0
    assert any("clock is 3600 s ahead of the store memory's" in text for text in report.warnings)
    config["large.message.payload.store.class"] = Silent()
    assert jobs.sweep(config, topic, grace_ms=0, delete=True).deleted == 1
