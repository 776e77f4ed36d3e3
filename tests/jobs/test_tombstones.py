"""With tombstones, the payloads of deleted keys go before compaction (KIP-1159); all others stay, by either engine."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from payload_stores.base import PayloadStore
from serde_chain import Producer, RecordContext, SerializerChain
from serde_chain.errors import JobError
from serde_chain.jobs.local import dead_keys
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.kip1159 import MARKER
from tests.jobs.conftest import Config, Send, Sweep, payload, stored

if TYPE_CHECKING:
    from tests.conftest import NewTopic

COMPACT = {"cleanup.policy": "compact"}
HOUR_MS = 3_600_000


@pytest.fixture
def topic(new_topic: "NewTopic") -> str:
    return new_topic(1, COMPACT)


def sizes(store: PayloadStore, topic: str) -> list[int]:
    """The first bytes of the stored payloads, as numbers."""
    return sorted(int(bytes(store.download(reference))[:6]) for reference in stored(store, topic))


@pytest.mark.parametrize(
    "ids", ["keyed", *(pytest.param(ids, marks=pytest.mark.full) for ids in ("content", "random"))]
)
def test_payloads_of_deleted_keys_go(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, ids: str
) -> None:
    """Four sweeps, of which three look for tombstones first."""
    ids_of: Any = {"large_message_id": ids}
    send(topic, payload(0), payload(1), None, key=b"dead", **ids_of)
    send(topic, payload(2), payload(3), key=b"replaced", **ids_of)
    send(topic, payload(4), None, payload(5), key=b"back", **ids_of)
    send(topic, None, key=b"never there", **ids_of)
    kept = [2, 3, 4, 5]
    assert sizes(store, topic) == [0, 1, *kept]
    plain = sweep(config, topic, grace_ms=0, delete=True)
    assert (plain.deleted, plain.dead_keys) == (0, 0)
    dry = sweep(config, topic, grace_ms=0, tombstones=True)
    assert (dry.live, dry.listed, dry.orphans, dry.dead_keys) == (len(kept), len(kept) + 2, 2, 2)
    assert (dry.deleted, dry.bytes, dry.manifest) == (0, 1200, None)
    assert len(stored(store, topic)) == len(kept) + 2
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.orphans, report.deleted, report.bytes, report.dead_keys) == (2, 2, 1200, 2)
    assert sizes(store, topic) == kept
    assert report.manifest is not None
    assert len(report.manifest.read_text().splitlines()) == 2
    again = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (again.deleted, again.dead_keys) == (0, 2)


@pytest.mark.full
def test_records_without_keys_count(
    *, sweep: Sweep, config: Config, new_topic: "NewTopic", send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    """A topic may have them from the time before it was compacted; none replaces another."""
    topic = new_topic(1)
    send(topic, payload(0), None)
    send(topic, payload(1), None, key=b"")
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)],
    )
    admin = broker.admin()
    admin.incremental_alter_configs([resource])[resource].result(30)
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (1, 1)
    assert sizes(store, topic) == [0]


@pytest.mark.full
def test_shared_payloads_stay(
    *, sweep: Sweep, config: Config, topic: str, new_topic: "NewTopic", send: Send, store: PayloadStore
) -> None:
    by_content: Any = {"large_message_id": "content"}
    send(topic, payload(0), payload(1), payload(2), None, key=b"dead", **by_content)
    send(topic, payload(0), key=b"alive", **by_content)
    mirror = new_topic(1, COMPACT)  # its tombstone has not come yet
    with SerializerChain.from_config({**config, "large.message.id": "content"}) as chain:
        headers: Any = []
        data = chain(payload(1), RecordContext(topic, "value", headers))
    producer = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    producer.produce(mirror, data, b"dead", headers=headers)
    assert producer.flush(30) == 0
    report = sweep(config, [topic, mirror], grace_ms=0, delete=True, tombstones=True)
    assert (report.live, report.deleted, report.dead_keys) == (2, 1, 1)
    assert sizes(store, topic) == [0, 1]


def test_young_tombstones_do_not_count(*, sweep: Sweep, config: Config, topic: str, store: PayloadStore) -> None:
    """By Spark, each sweep is several queries."""
    now = time.time_ns() // 1_000_000
    with Producer({**config, "large.message.id": "content"}) as producer:
        for key, number, ages in ((b"young", 0, [5]), (b"old", 1, [-5]), (b"young again", 2, [-5, 5])):
            producer.produce(topic, payload(number), key, timestamp=now - 2 * HOUR_MS)
            for age in ages:
                producer.produce(topic, None, key, timestamp=now - HOUR_MS + age * 60_000)
    for path in Path(config["local.path"]).rglob("*"):
        os.utime(path, (now / 1000 - 7200, now / 1000 - 7200))
    report = sweep(config, topic, grace_ms=HOUR_MS, delete=True, tombstones=True)
    assert (report.live, report.listed, report.deleted, report.dead_keys) == (2, 3, 1, 1)
    assert sizes(store, topic) == [0, 2]


def test_uncommitted_tombstones_do_not_count(
    *, sweep: Sweep, config: Config, topic: str, store: PayloadStore, broker: KafkaBroker
) -> None:
    """Six transactions and two sweeps."""
    config["large.message.id"] = "keyed"

    def begin(name: str, *records: tuple[bytes, int | None]) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": f"{topic}-{name}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        with SerializerChain.from_config(config) as chain:
            for key, number in records:
                headers: Any = []
                data = None if number is None else payload(number)
                producer.produce(topic, chain(data, RecordContext(topic, "value", headers, key)), key, headers=headers)
        assert producer.flush(30) == 0
        return producer

    keys = (b"aborted", b"open", b"behind", b"committed", b"written", b"again")
    begin("values", *((key, number) for number, key in enumerate(keys))).commit_transaction(30)
    begin("committed", (b"committed", None), (b"written", None), (b"again", None)).commit_transaction(30)
    begin("again", (b"again", 6)).abort_transaction(30)  # one day the cleaner removes it
    begin("aborted", (b"aborted", None)).abort_transaction(30)
    under_way = begin("open", (b"open", None), (b"written", 7))
    begin("behind", (b"behind", None)).commit_transaction(30)
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (1, 1)
    assert sizes(store, topic) == [0, 1, 2, 4, 5, 6, 7]
    under_way.commit_transaction(30)
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (2, 3)
    assert sizes(store, topic) == [0, 4, 5, 6, 7]


@pytest.mark.full
@pytest.mark.parametrize("moment", ["records to search for tombstones", "records to read", "orphans so far"])
@pytest.mark.parametrize("value", [b"small", None, payload(9)], ids=["small", "tombstone", "large"])
def test_a_later_record_revives_its_key(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, moment: str, value: bytes | None
) -> None:
    """Also one that came after the tombstones were looked for, or after the comparison."""
    by_key: Any = {"large_message_id": "keyed"}
    send(topic, payload(0), payload(1), None, key=b"back", **by_key)
    send(topic, payload(2), None, key=b"dead", **by_key)

    def produce(what: str, _count: int) -> None:
        nonlocal moment
        if what == moment:
            moment = ""
            send(topic, value, key=b"back", **by_key)

    # The ends of what is read are known before each of these moments.
    orphans = 1 if moment == "records to search for tombstones" else 3
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True, progress=produce)
    assert (report.orphans, report.deleted) == (orphans, 1)
    assert [number for number in sizes(store, topic) if number != 9] == [0, 1]


@pytest.mark.full
def test_a_key_in_several_partitions_is_deleted_in_each(
    sweep: Sweep, config: Config, new_topic: "NewTopic", store: PayloadStore
) -> None:
    """A custom partitioner, or a topic with more partitions than before; two sweeps of three partitions."""
    topic = new_topic(3, COMPACT)
    with Producer({**config, "large.message.id": "keyed"}) as producer:
        for number, partition in enumerate((0, 1, 2)):
            producer.produce(topic, payload(number), b"moved", partition)
            producer.produce(topic, payload(10 + number), b"dead", partition)
            producer.produce(topic, None, b"dead", partition)
        producer.produce(topic, None, b"moved", 0)
        producer.produce(topic, None, b"moved", 2)
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (3, 1)
    assert sizes(store, topic) == [0, 1, 2]
    with Producer(config) as producer:
        producer.produce(topic, None, b"moved", 1)
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (3, 2)


@pytest.mark.full
def test_offloaded_keys_stay_with_their_tombstones(
    sweep: Sweep, config: Config, topic: str, store: PayloadStore
) -> None:
    config["key.serializers"] = "bytes, large-message"
    with Producer(config) as producer:
        for key, number in ((payload(7), 0), (payload(8), 1)):
            producer.produce(topic, payload(number), key)
        producer.produce(topic, None, payload(7))
    assert sizes(store, topic) == [0, 1, 7, 8]
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.live, report.deleted, report.dead_keys) == (3, 1, 1)
    assert sizes(store, topic) == [1, 7, 8]


@pytest.mark.full
def test_fields_and_other_formats(*, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore) -> None:
    send(topic, payload(0), key=b"dead", large_message_format="bakdata-headers")
    send(topic, payload(1), key=b"alive", large_message_format="bakdata-headers")
    fields: Config = {
        **config,
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "image",
        "large.fields.min.bytes": 100,
    }
    with Producer(fields) as producer:
        for key, number in ((b"dead", 2), (b"alive", 3), (b"shared", 2)):
            producer.produce(topic, {"image": payload(number).decode()}, key)
        producer.produce(topic, None, b"dead")
    report = sweep(fields, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (1, 1)
    assert sizes(store, topic) == [1, 2, 3]


@pytest.mark.full
def test_malformed_placeholders_of_a_deleted_key(sweep: Sweep, config: Config, topic: str, send: Send) -> None:
    send(topic, payload(0), payload(1), key=b"dead")
    producer = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    producer.produce(topic, b"x" * 20_000, b"dead", headers=[(MARKER, b"true")])
    producer.produce(topic, None, b"dead")
    assert producer.flush(30) == 0
    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert (report.deleted, report.dead_keys) == (2, 1)
    assert "1 unreadable placeholders" in report.warnings[-1]


def test_a_null_value_is_a_tombstone_in_compacted_topics_only(
    *, sweep: Sweep, config: Config, topic: str, new_topic: "NewTopic", send: Send, store: PayloadStore
) -> None:
    other = new_topic(1)
    for each in (topic, other):
        send(each, payload(0), None, key=b"key")
    with pytest.raises(JobError, match=r"none of the topics is compacted \(.*\), so a null value is no tombstone"):
        sweep(config, other, grace_ms=0, delete=True, tombstones=True)
    report = sweep(config, [other, topic], grace_ms=0, delete=True, tombstones=True)
    assert (report.live, report.deleted, report.dead_keys) == (1, 1, 1)
    assert f"tombstones do not count in topics that are not compacted: {other}" in report.warnings
    assert (sizes(store, topic), sizes(store, other)) == ([], [0])
    with pytest.raises(JobError, match="the topic cannot be read: it does not exist") as caught:
        sweep(config, [topic, "nowhere"], grace_ms=0, delete=True, tombstones=True)
    assert caught.value.topic == "nowhere"


@pytest.mark.full
def test_a_user_who_may_not_see_the_policy(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    send(topic, payload(0), None, key=b"dead")
    broker.allow("alice", ["READ", "DESCRIBE"], topic=topic)
    config |= broker.client_config("alice")
    with pytest.raises(JobError, match=r"may not see its settings.*DESCRIBE_CONFIGS") as caught:
        sweep(config, topic, grace_ms=0, delete=True, tombstones=True)
    assert caught.value.topic == topic
    broker.allow("alice", ["DESCRIBE_CONFIGS"], topic=topic)
    assert sweep(config, topic, grace_ms=0, delete=True, tombstones=True).deleted == 1
    assert sizes(store, topic) == []


@pytest.mark.full
def test_a_topic_made_anew_after_its_tombstones_were_read(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    """The offsets of old tombstones say nothing about new records."""
    send(topic, payload(0), payload(1), None, key=b"key")
    admin = broker.admin()

    def replace(what: str, _count: int) -> None:
        if what == "records to search for tombstones":
            admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
            broker.create_topic(topic)
            send(topic, payload(0), b"small", b"small", b"small", key=b"key")

    with pytest.raises(JobError):
        sweep(config, topic, grace_ms=0, delete=True, tombstones=True, progress=replace)
    assert {0, 1} <= {*sizes(store, topic)}


@pytest.mark.full
def test_more_keys_than_a_batch(
    *, sweep: Sweep, config: Config, topic: str, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_keys, "_PAGE", 3)
    with Producer({**config, "large.message.id": "keyed"}) as producer:
        for number in range(30):
            producer.produce(topic, payload(number), b"%d" % number)
            producer.produce(topic, payload(100 + number), b"%d" % number)
        for number in range(0, 30, 2):
            producer.produce(topic, None, b"%d" % number)
        for number in range(0, 30, 6):
            producer.produce(topic, payload(number), b"%d" % number)

    def produce(what: str, _count: int) -> None:
        if what == "orphans so far":
            with Producer(config) as late:
                late.produce(topic, b"small", b"2")
                late.produce(topic, None, b"8")

    report = sweep(config, topic, grace_ms=0, delete=True, tombstones=True, progress=produce)
    dead = {4, 10, 14, 16, 20, 22, 26, 28}
    assert (report.orphans, report.deleted, report.dead_keys) == (20, 16, 10)
    left = [number for number in range(30) if number not in dead]
    assert sizes(store, topic) == sorted([*left, *(100 + number for number in left)])
