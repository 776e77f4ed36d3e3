"""Payloads that no record refers to go; all others stay, with either engine."""

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from payload_stores import open_store
from payload_stores.base import (
    Buffer,
    PayloadInfo,
    PayloadStore,
    PublishContext,
    SupportsDelete,
    SupportsInfo,
    SupportsListRange,
)
from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreUnavailableError
from payload_stores.local import LocalStore
from serde_chain import ConfigError, Consumer, Producer, RecordContext, SerializerChain
from serde_chain.errors import JobError
from serde_chain.jobs import shares
from serde_chain.jobs.local import sweeping
from serde_chain.jobs.manifest import Manifest
from serde_chain.jobs.payload_folders import names_in, names_of
from serde_chain.testing.services import KafkaBroker, S3Server
from serde_chain.wire.kip1159 import MARKER
from serde_chain.wire.large_fields import HEADER as FIELDS
from tests.jobs.conftest import Config, Send, Sweep, payload, stored

if TYPE_CHECKING:
    from tests.conftest import NewTopic


def test_orphans_go_and_what_is_in_use_stays(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, folder: Path
) -> None:
    """By Spark, it is often the first query of a session."""
    send(topic, b"small", *map(payload, range(3)), None)
    used = stored(store, topic)
    orphans = {store.publish(topic, payload(number)) for number in (10, 11)}
    dry = sweep(config, [topic], grace_ms=0)
    assert (dry.live, dry.listed, dry.orphans, dry.deleted, dry.bytes, dry.manifest) == (3, 5, 2, 0, 1200, None)
    assert stored(store, topic) == used | orphans
    assert not list(folder.iterdir())
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.orphans, report.deleted, report.bytes) == (3, 5, 2, 2, 1200)
    assert stored(store, topic) == used
    assert report.manifest is not None
    noted = [json.loads(line) for line in report.manifest.read_text().splitlines()]
    assert {entry["reference"] for entry in noted} == orphans
    assert {entry["size"] for entry in noted} == {600}
    assert sweep(config, topic, grace_ms=0, delete=True).orphans == 0


def test_the_grace_period_keeps_what_is_young(
    *,
    sweep: Sweep,
    config: Config,
    topic: str,
    send: Send,
    store: PayloadStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    send(topic, payload(0))
    store.publish(topic, payload(1))
    report = sweep(config, topic, delete=True)
    assert (report.listed, report.orphans, report.warnings, report.manifest) == (0, 0, (), None)
    assert len(stored(store, topic)) == 2
    caplog.clear()
    report = sweep({**config, "transaction.timeout.ms": 1234}, topic, grace_ms=301_000)
    assert "delivery.timeout.ms (300000) and transaction.timeout.ms (1234)" in report.warnings[0]
    assert "large.message.grace.ms (86400000)" in report.warnings[1]
    assert [record.getMessage() for record in caplog.records if record.name == "serde_chain"] == [
        f"sweep: {text}" for text in report.warnings
    ]


def test_open_aborted_and_committed_transactions_are_in_use(
    sweep: Sweep, config: Config, topic: str, store: PayloadStore, broker: KafkaBroker
) -> None:
    with SerializerChain.from_config(config) as chain:

        def begin(name: str, number: int) -> confluent_kafka.Producer:
            producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": f"{topic}-{name}"})
            producer.init_transactions(30)
            producer.begin_transaction()
            headers: Any = []
            data = chain(payload(number), RecordContext(topic, "value", headers))
            producer.produce(topic, data, headers=headers)
            assert producer.flush(30) == 0
            return producer

        begin("committed", 0).commit_transaction(30)
        begin("aborted", 1).abort_transaction(30)
        under_way = begin("open", 2)
        begin("behind", 3).commit_transaction(30)
    used = stored(store, topic)
    assert len(used) == 4
    orphan = store.publish(topic, payload(4))
    assert sweep(config, topic, grace_ms=0, delete=True).deleted == 1
    assert stored(store, topic) == used
    assert orphan not in used
    under_way.commit_transaction(30)


@pytest.mark.full
def test_keys_are_in_use_whatever_the_configuration_names(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    with_keys = {"key_serializers": "bytes, large-message"}
    send(topic, b"small", payload(1), key=payload(0), **with_keys)
    assert len(stored(store, topic)) == 3 - 1  # equal keys have one object
    store.publish(topic, payload(9))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.deleted) == (2, 1)
    both = {**config, "key.serializers": "bytes, large-message"}
    report = sweep(both, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.deleted) == (2, 2, 0)


@pytest.mark.full
def test_what_compaction_has_not_removed_yet_is_in_use(
    sweep: Sweep, config: Config, new_topic: "NewTopic", send: Send, store: PayloadStore
) -> None:
    topic = new_topic(1, {"cleanup.policy": "compact"})
    send(topic, payload(0), payload(1), None, key=b"key")
    assert sweep(config, topic, grace_ms=0, delete=True).live == 2
    assert len(stored(store, topic)) == 2


def test_what_was_renewed_after_the_listing_stays(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    config["large.message.grace.ms"] = 0  # ids of the content renew whatever is there
    store = open_store("local", config)
    send(topic, payload(0))
    by_content = PublishContext("content")
    renewed, gone = (store.publish(topic, payload(number), by_content) for number in (1, 2))

    def renew(what: str, _count: int) -> None:
        if what == "orphans so far":
            assert store.publish(topic, payload(1), by_content) == renewed

    report = sweep(config, topic, grace_ms=0, delete=True, progress=renew)
    assert (report.orphans, report.deleted, report.bytes) == (2, 1, 600)
    left = stored(store, topic)
    assert renewed in left
    assert gone not in left
    assert report.manifest is not None
    assert [json.loads(line)["reference"] for line in report.manifest.read_text().splitlines()] == [gone]


def test_what_came_to_the_topic_after_it_was_read_stays(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    before = stored(store, topic)
    late, _gone = (store.publish(topic, payload(number)) for number in (1, 2))

    def produce(what: str, _count: int) -> None:
        if what == "orphans so far":
            refer(config, topic, late)

    report = sweep(config, topic, grace_ms=0, delete=True, progress=produce)
    assert (report.orphans, report.deleted) == (2, 1)
    assert stored(store, topic) == {*before, late}


def refer(config: Config, topic: str, reference: str, partition: int = -1) -> None:
    """Produce a placeholder for a payload that is there already, as a record that waited long does."""
    producer = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    producer.produce(topic, reference.encode(), headers=[(MARKER, b"true")], partition=partition)
    assert producer.flush(30) == 0


def test_an_emptied_topic_ends_the_sweep(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    send(topic, payload(0))
    admin = broker.admin()  # held until the answer is there
    admin.delete_records([TopicPartition(topic, 0, -1)])[TopicPartition(topic, 0)].result(30)
    with pytest.raises(JobError, match="no records but 1 payloads") as caught:
        sweep(config, topic, grace_ms=0, delete=True)
    assert caught.value.topic == topic
    assert len(stored(store, topic)) == 1
    assert copy(caught.value).topic == topic


def test_a_topic_that_is_not_there_ends_the_sweep(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    store.publish(topic, payload(1))
    with pytest.raises(JobError, match="cannot be read") as caught:
        sweep(config, [topic, "nowhere"], grace_ms=0, delete=True)
    assert caught.value.topic == "nowhere"
    assert len(stored(store, topic)) == 2


def test_a_topic_that_is_made_anew_meanwhile_ends_the_sweep(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    send(topic, payload(0))
    store.publish(topic, payload(1))

    admin = broker.admin()

    def empty(what: str, _count: int) -> None:
        if what == "orphans so far":
            admin.delete_topics([topic], operation_timeout=30)[topic].result(30)

    with pytest.raises(JobError) as caught:
        sweep(config, topic, grace_ms=0, delete=True, progress=empty)
    assert caught.value.topic == topic
    assert len(stored(store, topic)) == 2


def test_a_topic_made_anew_with_as_many_records_ends_the_sweep(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    send(topic, payload(0))
    store.publish(topic, payload(1))
    admin = broker.admin()

    def replace(what: str, _count: int) -> None:
        if what == "orphans so far":
            admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
            broker.create_topic(topic)
            send(topic, b"small", b"small", b"small")

    with pytest.raises(JobError, match="created anew") as caught:
        sweep(config, topic, grace_ms=0, delete=True, progress=replace)
    assert caught.value.topic == topic
    assert len(stored(store, topic)) == 2


def test_malformed_placeholders_keep_nothing_and_end_no_sweep(
    sweep: Sweep, config: Config, new_topic: "NewTopic", store: PayloadStore
) -> None:
    """Any writer can make some; where most are, the configuration is more likely to be wrong."""
    topic = new_topic(2)
    refer(config, topic, store.publish(topic, payload(0)), 1)
    used = stored(store, topic)
    store.publish(topic, payload(1))
    refer(config, topic, "x" * 20_000, 1)
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.deleted) == (1, 1)
    assert stored(store, topic) == used
    [warning] = [text for text in report.warnings if "placeholders" in text]
    assert warning.startswith("1 unreadable placeholders")
    assert f"one is the value of the record at offset 1 of {topic}[1]: the large-message reference is" in warning
    store.publish(topic, payload(1))
    refer(config, topic, "y" * 20_000)
    with pytest.raises(JobError, match="DecodeError: the large-message reference is malformed") as caught:
        sweep(config, topic, grace_ms=0, delete=True)
    assert caught.value.topic == topic
    assert len(stored(store, topic)) == 2


MALFORMED: dict[str, Any] = {
    "size below 0": lambda url: (url, [(MARKER, b"true"), ("large-message-size", b"-1")]),
    "size that is no number": lambda url: (url, [(MARKER, b"true"), ("large-message-size", b"ten")]),
    "digest": lambda url: (url, [(MARKER, b"true"), ("large-message-digest", b"md5:0")]),
    "blanks": lambda url: (b" " + url + b"\n", [(MARKER, b"true")]),
    "in JSON": lambda url: (json.dumps({"url": url.decode()}).encode(), [(MARKER, b"true")]),
    "escaped": lambda url: (json.dumps({"url": url.decode()}).replace("/", "\\/").encode(), [(MARKER, b"true")]),
    "behind text": lambda url: (b"\xff\x10" + url + b"Hmore text" + b"x" * 20_000, [(MARKER, b"true")]),
    "in a header": lambda url: (b"x" * 20_000, [(MARKER, b"true"), ("moved-to", url)]),
    # Readers that parse it as a URL, or leave it to a file system, find it.
    "query": lambda url: (url + b"?versionId=1", [(MARKER, b"true")]),
    "fragment": lambda url: (url + b"#part", [(MARKER, b"true")]),
    "slash": lambda url: (url + b"/", [(MARKER, b"true")]),
    "two slashes": lambda url: (b"//".join(url.rsplit(b"/", 1)), [(MARKER, b"true")]),
    "dot": lambda url: (b"/./".join(url.rsplit(b"/", 1)), [(MARKER, b"true")]),
    "dots": lambda url: (b"/a/b/../../".join(url.rsplit(b"/", 1)), [(MARKER, b"true")]),
    "escaped in JSON": lambda url: (json.dumps(url.decode()).replace("/", r"\u002F").encode(), [(MARKER, b"true")]),
    "in a header beside a short text": lambda url: (b"x", [(MARKER, b"true"), ("moved-to", url)]),
    "in the header of large fields": lambda url: (b"x", [(FIELDS, url)]),
    "in one of two headers of large fields": lambda url: (b"x", [(FIELDS, b"[]"), (FIELDS, url)]),
    "two sizes": lambda url: (url, [(MARKER, b"true"), ("large-message-size", b"600"), ("large-message-size", b"-1")]),
    "marker of another encoding": lambda url: (url, [(MARKER, "true".encode("utf-16"))]),
    "escaped as URL": lambda url: (url.replace(b"-", b"%2D") + b"\xff", [(MARKER, b"true")]),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_a_malformed_placeholder_names_stays(  # noqa: PLR0917, fixtures
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, kind: str
) -> None:
    """Other readers may follow it: a plain one of KIP-1159 reads neither size nor digest."""
    send(topic, payload(0))
    named = store.publish(topic, payload(1))
    used = {*stored(store, topic), named}
    orphan = store.publish(topic, payload(2))
    value, headers = MALFORMED[kind](named.encode())
    producer = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    producer.produce(topic, value, headers=headers)
    assert producer.flush(30) == 0
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert report.deleted == 1
    assert orphan not in stored(store, topic)
    assert stored(store, topic) == used


def test_a_malformed_placeholder_is_counted_but_no_live_reference(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    named = store.publish(topic, payload(1))
    producer = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    producer.produce(topic, named.encode(), headers=[(MARKER, b"true"), ("large-message-size", b"-1")])
    assert producer.flush(30) == 0
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.deleted) == (1, 0)
    [warning] = [text for text in report.warnings if "placeholders" in text]
    assert warning.startswith("1 unreadable placeholders keep only the payloads that they name")


@pytest.mark.full
def test_names_are_found_in_linear_time() -> None:
    begun = time.monotonic()
    for data in (b"x" * 4_000_000, b"t/" * 2_000_000, b"t/%s/" % (b"0" * 64) * 50_000, b"/ " * 2_000_000):
        assert len(names_in(data, {"t"})) < 200_000
    assert time.monotonic() - begun < 60


class Refusing(LocalStore):
    """Has a payload that this user may not delete."""

    scheme = "file"
    refused = ""

    def delete(self, reference: str) -> None:
        if reference == Refusing.refused:
            raise PayloadAccessDeniedError("it is another's", store="local")
        super().delete(reference)


def test_payloads_that_cannot_be_deleted_end_no_sweep(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    used = stored(store, topic)
    Refusing.refused = store.publish(topic, payload(1))
    store.publish(topic, payload(2))
    config["large.message.payload.store.class"] = Refusing
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.orphans, report.deleted) == (2, 1)
    assert stored(store, topic) == {*used, Refusing.refused}
    assert "1 payloads could not be deleted" in report.warnings[-1]
    with pytest.raises(JobError, match="it is another's"):
        sweep(config, topic, grace_ms=0, delete=True)


def test_a_reference_has_a_few_names() -> None:
    assert len(names_of("s3://b/" + "t/" * 4_000 + "1", {"t"})) == 64


@pytest.mark.full
def test_formats_that_the_configuration_leaves_out_are_in_use(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    send(topic, payload(1), large_message_format="bakdata-headers")
    store.publish(topic, payload(2))
    config["large.message.accept"] = "kip1159"
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.deleted) == (2, 3, 1)


def test_objects_of_other_systems_in_a_topics_folder_are_in_use(
    *, sweep: Sweep, broker: KafkaBroker, s3_server: S3Server, topic: str
) -> None:
    """Another system may put its objects where this one's are."""
    bucket = s3_server.create_bucket()
    for key in (
        f"{topic}/used",
        f"{topic}/lfs/used",
        f"{topic}/event",
        f"{topic}/both",
        f"{topic}/orphan",
        "elsewhere/orphan",
    ):
        s3_server.client().put_object(Bucket=bucket, Key=key, Body=b"payload")
    pointer = ["software.amazon.payloadoffloading.PayloadS3Pointer", {"s3BucketName": bucket, "s3Key": f"{topic}/used"}]
    envelope = {"kfs_lfs": 1, "bucket": bucket, "key": f"{topic}/lfs/used", "sha256": "0" * 64}
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, json.dumps(pointer))
    producer.produce(topic, json.dumps(envelope))
    producer.produce(topic, b"", headers=[("ce_dataref", f"s3://{bucket}/{topic}/event".encode())])
    producer.produce(topic, b"data", headers=[("ce_dataref", f"s3://{bucket}/{topic}/both".encode())])
    assert producer.flush(30) == 0
    config: Config = {
        **broker.client_config(),
        **s3_server.store_config(bucket),
        "value.deserializers": "large-message, bytes",
        "large.message.accept": "kip1159, aws-extended, cloudevents, kafscale",
        "large.message.payload.store.class": "s3",
    }
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.orphans) == (4, 1)
    found = s3_server.client().list_objects_v2(Bucket=bucket)["Contents"]
    assert {each["Key"] for each in found} == {
        *(f"{topic}/used", f"{topic}/lfs/used", f"{topic}/event", f"{topic}/both", "elsewhere/orphan"),
    }


def test_a_manifest_that_cannot_be_written_ends_the_sweep(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    store.publish(topic, payload(1))
    with pytest.raises(JobError, match=r"cannot be written to /dev/full: [^/]*\. .*--manifest"):
        sweep(config, topic, grace_ms=0, delete=True, manifest="/dev/full")
    assert len(stored(store, topic)) == 2


def test_a_manifest_in_a_missing_folder_ends_the_sweep_before_it_reads(
    sweep: Sweep, config: Config, topic: str, send: Send, tmp_path: Path
) -> None:
    send(topic, payload(0))
    done: list[str] = []
    with pytest.raises(JobError, match=r"cannot be written to .*missing.*: a folder, in no folder, .*--manifest"):
        sweep(
            config, topic, delete=True, manifest=tmp_path / "missing" / "list", progress=lambda *at: done.append(at[0])
        )
    assert not done


def test_manifests_that_cannot_be_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "missing" / "list")
    for path in (tmp_path, file / "list", dangling, tmp_path / "missing" / "list"):
        with pytest.raises(JobError, match="cannot be written"):
            Manifest(path)
    with pytest.raises(JobError, match="File name too long"):
        Manifest(tmp_path / ("x" * 300)).note("memory:///t/1", 1, datetime.now(UTC))
    named = tmp_path / "named"
    named.symlink_to(tmp_path / "new")
    for path in (file, named, Path("/dev/full")):
        Manifest(path)
    assert not (tmp_path / "new").exists()


def test_all_named_topics_count_for_all_of_them(
    sweep: Sweep, config: Config, new_topic: "NewTopic", send: Send, store: PayloadStore
) -> None:
    topic, mirror = new_topic(2), new_topic(1)
    send(topic, payload(0))
    send(mirror, b"small")
    shared, gone = store.publish(topic, payload(1)), store.publish(topic, payload(2))
    elsewhere = store.publish(f"{topic}-other", payload(3))
    refer(config, mirror, shared)
    assert sweep(config, [topic, mirror], grace_ms=0, delete=True).deleted == 1
    left = stored(store, topic)
    assert shared in left
    assert gone not in left
    assert stored(store, f"{topic}-other") == {elsewhere}


def test_a_listing_of_several_pages(
    *, config: Config, topic: str, send: Send, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "_PAGE", 2)
    send(topic, *map(payload, range(5)), payload(0))
    used = stored(store, topic)
    for number in range(5, 10):
        store.publish(topic, payload(number))
    counts: list[int] = []

    def note(what: str, count: int) -> None:
        if what == "payloads deleted":
            counts.append(count)

    report = sweeping.sweep(config, topic, grace_ms=0, delete=True, progress=note)
    assert (report.live, report.listed, report.orphans, report.deleted) == (len(used), len(used) + 5, 5, 5)
    assert counts == [2, 4, 5]
    assert stored(store, topic) == used


def settings_of(kind: str, server: S3Server, bucket: str) -> Config:
    settings: dict[str, Config] = {
        "s3": {
            "s3.bucket": bucket,
            "s3.prefix": "pre",
            "s3.endpoint.url": server.url,
            "s3.region": "us-east-1",
            "s3.access.key": "test",
            "s3.secret.key": "test",
        },
        "objects": {
            "objects.url": f"s3://{bucket}/pre",
            "objects.endpoint": server.url,
            "objects.allow_http": "true",
            "objects.region": "us-east-1",
            "objects.access_key_id": "test",
            "objects.secret_access_key": "test",
        },
    }
    return settings.get(kind, {})


@pytest.mark.parametrize(
    "kind", ["kafka", pytest.param("s3", marks=pytest.mark.full), pytest.param("objects", marks=pytest.mark.full)]
)
def test_other_stores(
    *, sweep: Sweep, config: Config, topic: str, send: Send, kind: str, s3_server: S3Server, bucket: str
) -> None:
    config |= {"large.message.payload.store.class": kind, **settings_of(kind, s3_server, bucket)}
    store = open_store(kind, config)
    send(topic, payload(0), payload(1))
    used = stored(store, topic)
    store.publish(topic, payload(2))
    orphan = store.publish(topic, payload(3))
    assert isinstance(store, SupportsDelete)
    store.delete(orphan)
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.deleted) == (2, 3, 1)
    assert stored(store, topic) == used
    store.close()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["s3", "objects"])
def test_ids_may_begin_with_anything(
    *,
    sweep: Sweep,
    config: Config,
    topic: str,
    send: Send,
    kind: str,
    s3_server: S3Server,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Spark, each sweep is several queries."""
    monkeypatch.setattr(shares, "_PAYLOADS_OF_PART", 2)
    config |= {"large.message.payload.store.class": kind, **settings_of(kind, s3_server, bucket)}
    with closing(open_store(kind, config)) as store:
        assert isinstance(store, SupportsListRange)
        send(topic, payload(0))
        used = stored(store, topic)
        for payload_id in ("f0", "Zebra", "zebra/1", "-x", "~x", "_x", *map(str, range(10))):
            store.publish(topic, b"x", PublishContext(payload_id=payload_id))
        counts: Counter[str] = Counter()
        report = sweep(config, topic, grace_ms=0, delete=True, progress=counts.__setitem__)
        assert (report.live, report.listed, report.deleted) == (1, 17, 16)
        assert counts["payloads listed"] == 17
        assert stored(store, topic) == used


@pytest.mark.full
def test_a_store_that_cannot_be_listed(sweep: Sweep, config: Config, topic: str, s3_server: S3Server) -> None:
    config |= {"large.message.payload.store.class": "s3", **settings_of("s3", s3_server, "no-such-bucket")}
    with pytest.raises(JobError, match=r"the store cannot be listed: .*NoSuchBucket") as caught:
        sweep(config, topic, grace_ms=0, delete=True)
    assert caught.value.context["store"] == "s3"
    assert not caught.value.transient


@pytest.mark.full
def test_a_producers_configuration_will_do(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    config["value.serializers"] = ["bytes", {"class": "large-message", "large.message.format": "bakdata-flag"}]
    config["value.serializers"].append("entry-metadata")
    del config["value.deserializers"]
    send(topic, b"small", payload(0))
    store.publish(topic, payload(1))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.deleted) == (1, 2, 1)


@pytest.mark.full
def test_chains_that_describe_themselves(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    config |= {"serde.chain.describe": True, "value.serializers": "bytes, zstd, large-message"}
    config |= {"value.deserializers": "auto", "serde.chain.allow": "bytes, zstd, large-message"}
    config["large.message.threshold.bytes"] = 10
    send(topic, payload(0))
    store.publish(topic, payload(1))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.deleted) == (1, 2, 1)


def test_a_store_that_cannot_be_swept(sweep: Sweep, config: Config, topic: str, send: Send) -> None:
    send(topic, payload(0))
    config["large.message.payload.store.class"] = WriteOnly
    with pytest.raises(ConfigError, match=r"the payload stores \(void\) do not support both listing and deletion"):
        sweep(config, topic)
    config |= {"large.message.payload.store.class": "local", "large.message.payload.store.classes": [WriteOnly]}
    report = sweep(config, topic)
    assert report.warnings == ("the store void is skipped: it does not support both listing and deletion",)
    with pytest.raises(ConfigError, match="no stage of the configuration"):
        sweep({"bootstrap.servers": "x", "value.serializers": "json"}, topic)


class WriteOnly(PayloadStore):
    scheme = "void"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return f"void:///{topic}/1"

    def download(self, reference: str) -> bytes:
        return b""


def test_a_store_that_fails_leaves_the_rest(
    sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore
) -> None:
    send(topic, payload(0))
    for number in range(1, 4):
        store.publish(topic, payload(number))
    (Path(config["local.path"]) / topic / "x").mkdir()
    (Path(config["local.path"]) / topic / "x" / "y").symlink_to("/nowhere")
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert report.deleted == 3
    config["local.path"] = __file__
    with pytest.raises(ConfigError, match="not a folder"):
        sweep(config, topic, grace_ms=0, delete=True)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
def test_rounds_of_producing_deleting_and_sweeping(
    *, sweep: Sweep, config: Config, new_topic: "NewTopic", store: PayloadStore, broker: KafkaBroker, seed: int
) -> None:
    random = Random(seed)
    topic = new_topic(2)
    admin = broker.admin()
    for _ in range(4):
        with Producer({**config, "large.message.id": random.choice(["random", "content"])}) as producer:
            for _ in range(random.randrange(1, 12)):
                producer.produce(topic, payload(random.randrange(20)), partition=random.randrange(2))
        for _ in range(random.randrange(4)):
            store.publish(topic, payload(random.randrange(100)), PublishContext(random.choice(["random", "content"])))
        with Producer({**config, "large.message.id": "content"}) as late:

            def meanwhile(what: str, _count: int) -> None:
                if what == "orphans so far":
                    refer(config, topic, random.choice(sorted(stored(store, topic))))

            sweep(config, topic, grace_ms=0, delete=True, progress=meanwhile)
            late.produce(topic, payload(0), partition=0)
        assert_readable(config, topic)
        place = TopicPartition(topic, random.randrange(2))
        reader = confluent_kafka.Consumer({**broker.client_config(), "group.id": "bounds"})
        low, high = reader.get_watermark_offsets(place, 30)
        reader.close()
        if high - low > 2:
            place.offset = random.randrange(low, high - 1)
            admin.delete_records([place])[place].result(30)


def assert_readable(config: Config, topic: str) -> None:
    reader = confluent_kafka.Consumer({"bootstrap.servers": config["bootstrap.servers"], "group.id": "bounds"})
    places = [TopicPartition(topic, partition) for partition in range(2)]
    bounds = {place.partition: reader.get_watermark_offsets(place, 30) for place in places}
    reader.close()
    wanted = sum(high - low for low, high in bounds.values())
    with Consumer({**config, "large.message.reference.topics": "any"}) as consumer:
        consumer.assign([TopicPartition(topic, partition, low) for partition, (low, _) in bounds.items()])
        got = 0
        until = time.monotonic() + 60
        while got < wanted and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None
                assert len(message.value() or b"") == 600
                got += 1
    assert got == wanted


class Breaking(LocalStore):
    """Goes away while it is deleted from."""

    scheme = "file"
    left = 2

    def delete(self, reference: str) -> None:
        if Breaking.left == 0:
            raise PayloadStoreUnavailableError("the disk is gone", store="local")
        Breaking.left -= 1
        super().delete(reference)


@pytest.mark.full
def test_a_store_that_goes_away_while_it_is_deleted_from(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, tmp_path: Path
) -> None:
    send(topic, payload(0))
    used = stored(store, topic)
    orphans = {store.publish(topic, payload(number)) for number in range(1, 6)}
    config["large.message.payload.store.class"] = Breaking
    Breaking.left = 2
    manifest = tmp_path / "manifest.jsonl"
    with pytest.raises(JobError, match="the sweep ended after at least 0 deletions: the disk is gone") as caught:
        sweep(config, topic, grace_ms=0, delete=True, manifest=manifest)
    assert caught.value.transient
    left = stored(store, topic)
    assert len(left) == 4
    # What is gone is in the list.
    assert orphans - left <= noted(manifest) <= orphans
    Breaking.left = 100
    assert sweep(config, topic, grace_ms=0, delete=True, manifest=manifest).deleted == 3
    assert stored(store, topic) == used
    assert noted(manifest) == orphans


def noted(manifest: Path) -> set[str]:
    return {json.loads(line)["reference"] for line in manifest.read_text().splitlines()}


class Late(LocalStore):
    """Lists what has been there a while ago: one payload less, and one that is gone."""

    gone: PayloadInfo

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        yield Late.gone
        yield from sorted(super().list(topic, prefix=prefix, before=before), key=lambda info: info.size)[1:]


def test_a_store_that_lists_late(sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore) -> None:
    send(topic, payload(0))
    missed = store.publish(topic, b"x" * 10)
    gone, orphan = store.publish(topic, payload(1)), store.publish(topic, payload(2))
    assert isinstance(store, SupportsDelete)
    assert isinstance(store, SupportsInfo)
    Late.gone = store.info(gone)
    store.delete(gone)
    config["large.message.payload.store.class"] = Late
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.orphans, report.deleted) == (2, 1)
    assert orphan not in stored(store, topic)
    # What it did not list yet is for the next sweep.
    assert missed in stored(store, topic)


@pytest.mark.full
@pytest.mark.parametrize("moment", ["records to read", "orphans so far"])
def test_a_topic_that_is_emptied_meanwhile(
    *,
    sweep: Sweep,
    config: Config,
    topic: str,
    send: Send,
    store: PayloadStore,
    broker: KafkaBroker,
    moment: str,
) -> None:
    send(topic, *map(payload, range(3)))
    used = stored(store, topic)
    orphan = store.publish(topic, payload(9))
    admin = broker.admin()

    def empty(what: str, _count: int) -> None:
        if what == moment:
            admin.delete_records([TopicPartition(topic, 0, -1)])[TopicPartition(topic, 0)].result(30)

    if moment == "records to read":
        with pytest.raises(JobError, match="no records but 4 payloads"):
            sweep(config, topic, grace_ms=0, delete=True, progress=empty)
        assert stored(store, topic) == {*used, orphan}
    else:  # what was read is in use until the next sweep
        assert sweep(config, topic, grace_ms=0, delete=True, progress=empty).deleted == 1
        assert stored(store, topic) == used


def test_records_that_go_while_they_are_read(
    *, sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    send(topic, *map(payload, range(2)))
    gone = stored(store, topic)
    send(topic, *map(payload, range(2, 4)))
    kept = stored(store, topic) - gone
    admin = broker.admin()

    def shorten(what: str, _count: int) -> None:
        if what == "records to read":
            admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(30)

    report = sweep(config, topic, grace_ms=0, delete=True, progress=shorten)
    assert (report.live, report.listed, report.deleted) == (2, 4, 2)
    assert stored(store, topic) == kept


def test_a_log_that_ends_with_a_mark_that_is_no_record(
    sweep: Sweep, config: Config, topic: str, store: PayloadStore
) -> None:
    with Producer({**config, "transactional.id": topic}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, payload(0))
        producer.commit_transaction(30)
    store.publish(topic, payload(1))
    report = sweep(config, topic, grace_ms=0, delete=True)
    assert (report.live, report.deleted) == (1, 1)


def sweep_up_to(config: Config, topic: str, manifest: Path, most: int | None) -> None:
    """Sweep pages of two, without a grace period, and be killed behind a number of deletions."""

    def kill(what: str, count: int) -> None:
        if what == "payloads deleted" and count == most:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "_PAGE", 2)
        sweeping.sweep(config, topic, grace_ms=0, delete=True, manifest=manifest, progress=kill)


@pytest.mark.full
def test_a_local_sweep_that_is_killed_between_pages(
    *, config: Config, topic: str, send: Send, store: PayloadStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    send(topic, *map(payload, range(3)))
    used = stored(store, topic)
    orphans = {store.publish(topic, payload(number)) for number in range(10, 20)}
    manifest = tmp_path / "manifest"
    for most, left in ((2, 8), (4, 4), (None, 0)):
        process = multiprocessing.get_context("spawn").Process(target=sweep_up_to, args=(config, topic, manifest, most))
        process.start()
        process.join(60)
        assert process.exitcode == (0 if most is None else -signal.SIGKILL)
        assert used <= stored(store, topic)
        assert len(stored(store, topic) - used) == left
        assert noted(manifest) == orphans - stored(store, topic)
        assert not list(temporary.iterdir())


def test_a_client_with_small_answers(sweep: Sweep, config: Config, topic: str, send: Send, store: PayloadStore) -> None:
    """librdkafka refuses answers larger than ``receive.message.max.bytes``."""
    send(topic, payload(0))
    store.publish(topic, payload(1))
    small = {"message.max.bytes": 1_000_000, "fetch.max.bytes": 1_000_000, "receive.message.max.bytes": 1_000_512}
    report = sweep({**config, **small}, topic, grace_ms=0, delete=True)
    assert (report.live, report.deleted) == (1, 1)
