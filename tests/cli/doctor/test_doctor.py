"""``serde-chain doctor`` on clusters that are configured wrongly, each in one way, and on one that is not."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import boto3
import confluent_kafka
import confluent_kafka.admin
import pytest

from payload_stores import (
    PayloadAccessDeniedError,
    PayloadInfo,
    PayloadStore,
    PayloadStoreUnavailableError,
    PublishContext,
    SupportsExpiration,
    open_store,
    references,
)
from payload_stores.buffers import Buffer
from payload_stores.local import LocalStore
from payload_stores.s3 import S3Store
from serde_chain import Producer
from serde_chain.cli.doctor.base import CheckContext
from serde_chain.cli.doctor.examine import examine
from serde_chain.cli.doctor.store_checks import file_system, stores
from serde_chain.cli.findings import Finding, Level
from serde_chain.config import resolve
from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry
from tests.cli.conftest import run, run_process
from tests.conftest import NewTopic

T = TypeVar("T")

DAY_MS = 86_400_000
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'


@dataclass(frozen=True)
class Cluster:
    """A topic and its store, with something to read, as :func:`cluster` makes it."""

    broker: KafkaBroker
    topic: str
    config: dict[str, object]
    folder: Path
    s3: dict[str, object] = field(default_factory=dict)

    def examined(self, *, tries: bool = True) -> list[Finding]:
        return list(examine(self.config, [self.topic], timeout_s=20, tries=tries))

    def wrong(self, *, tries: bool = True) -> list[Finding]:
        return [check for check in self.examined(tries=tries) if check.level is not Level.OK]

    def send(self, value: bytes | None, **more: Any) -> None:
        producer = confluent_kafka.Producer(self.broker.client_config())
        producer.produce(self.topic, value, **more)
        assert producer.flush(30) == 0


Make = Callable[..., Cluster]


def expire_after(s3: dict[str, object], topic: str, age: timedelta | None) -> None:
    """Give the topic's payloads a lifecycle rule, or none."""
    with closing(open_store("s3", s3)) as store:
        assert isinstance(store, SupportsExpiration)
        store.set_expiration(topic, age)


@pytest.fixture(autouse=True)
def _disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders for tests may be in memory, which is a warning."""
    monkeypatch.setattr("serde_chain.cli.doctor.store_checks.file_system", lambda _path: "ext4")


@pytest.fixture
def cluster(broker: KafkaBroker, new_topic: NewTopic, s3_server: S3Server, bucket: str, tmp_path: Path) -> Make:
    def make(topic: Mapping[str, str] | None = None, **config: object) -> Cluster:
        s3: dict[str, object] = {
            "s3.bucket": bucket,
            "s3.endpoint.url": s3_server.url,
            "s3.access.key": "key",
            "s3.secret.key": "secret",
        }
        sound = {
            **broker.client_config(),
            "value.serializers": "json, zstd, large-message",
            "value.deserializers": "large-message, zstd, json",
            "large.message.payload.store.class": "s3",
            **s3,
        }
        name = new_topic(1, {"retention.ms": str(7 * DAY_MS), **(topic or {})})
        with Producer({**sound, "large.message.threshold.bytes": 100}) as producer:
            for value in ({"small": 1}, {"large": os.urandom(1000).hex()}):
                producer.produce(name, value, key=b"a")
        if (topic or {}).get("cleanup.policy") != "compact":
            expire_after(s3, name, timedelta(days=9))
        changed = {key: value for key, value in {**sound, **config}.items() if value is not None}
        return Cluster(broker, name, changed, tmp_path, s3)

    return make


@pytest.mark.full
def test_nothing_is_found_on_a_sound_cluster(cluster: Make) -> None:
    sound = cluster()
    checks = sound.examined()
    assert [check for check in checks if check.level is not Level.OK] == []
    assert {check.name for check in checks} >= {
        *("configuration", "topic", "permissions", "limits", "ids", "store", "retention", "orphans", "clock"),
        *("deserializers", "records"),
    }
    store = open_store("s3", sound.s3)
    assert len(list(store.list(sound.topic))) == 1  # type: ignore[attr-defined]  # the probe is gone
    store.close()


@pytest.mark.full
def test_nothing_is_written_unasked(cluster: Make, tmp_path: Path) -> None:
    looked = cluster(**odd(tmp_path))
    assert looked.wrong(tries=False) == []
    assert [check.message for check in looked.examined(tries=False) if check.name == "store"] == [
        "the store Store answers; writing was not tested: --write does"
    ]
    assert [path.name for path in tmp_path.iterdir()] == [".payload-store"]
    away = replace(looked, config={**looked.config, "large.message.payload.store.class": "s3", "s3.bucket": "none"})
    [found] = [check for check in away.wrong(tries=False) if check.name == "store"]
    assert (found.level, found.change) == (Level.ERROR, "Check s3.bucket and s3.endpoint.url")


def test_a_folder_that_this_user_may_not_write_to(
    cluster: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = cluster(**odd(tmp_path))
    # Root, who runs tests in containers, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK or not str(path).startswith(str(tmp_path)))
    for tries in (False, True):
        [found] = looked.wrong(tries=tries)
        assert (found.name, found.level) == ("store", Level.ERROR)
        assert found.message == f"this user may not write to the folder {tmp_path}"


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:27 / /run rw,nosuid - tmpfs tmpfs rw
41 22 0:40 / /mnt/survey\\040data rw,relatime shared:9 - nfs4 nas:/data rw
"""


def test_the_file_system_of_a_folder(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    for folder, kind in (("/srv/payloads", "ext4"), ("/run/payloads", "tmpfs"), ("/mnt/survey data/x", "nfs4")):
        assert file_system(Path(folder), mounts) == kind
    assert file_system(tmp_path, tmp_path / "not Linux") is None


@pytest.mark.parametrize(
    ("kind", "servers", "said"),
    [
        ("ext4", "broker-1:9092,broker-2:9092", "is on a disk of this machine (ext4), and the brokers are elsewhere"),
        ("nfs4", "broker-1:9092", None),
        ("ext4", "localhost:9092", None),
        ("tmpfs", "localhost:9092", "is in memory (tmpfs)"),
    ],
)
def test_folders_that_other_machines_do_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, servers: str, said: str | None
) -> None:
    config: dict[str, object] = {
        "bootstrap.servers": servers,
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }
    monkeypatch.setattr("serde_chain.cli.doctor.store_checks.file_system", lambda _path: kind)
    checks = list(stores(CheckContext(resolve(config), (), missing=("images",))))
    messages = [check.message for check in checks if check.level is Level.WARNING]
    assert [said in message for message in messages if said] == [True] * (said is not None)
    assert bool(messages) is (said is not None)


@pytest.mark.full
def test_problems_of_records_as_rows(cluster: Make, tmp_path: Path) -> None:
    looked = cluster()
    producer = confluent_kafka.Producer(looked.broker.client_config())
    for _ in range(22):
        producer.produce(looked.topic, b"\x1b[31mnot the chain's", b"a")
    assert producer.flush(30) == 0
    path = write(looked.config, tmp_path)
    lines = run("doctor", path, looked.topic, "--quiet", code=1, columns=None).stdout.splitlines()
    at = lines.index(f"error    records ({looked.topic}): the newest 20 records are unreadable")
    assert lines[at + 1].split() == ["partition", "offset", "time", "problem,", "and", "what", "to", "do"]
    partition, offset, when, *problem = lines[at + 2].split()
    assert (partition, offset, when[-1], problem[:2]) == ("0", "4", "Z", ["the", "data"])
    told = " ".join(" ".join(lines[at + 2 : -1]).split())
    assert told.endswith("The same with 19 more records, up to offset 23 of partition 0.")
    assert "\x1b" not in "".join(lines)
    found = json.loads(run("doctor", path, looked.topic, "--quiet", "--json", code=1).stdout.splitlines()[-1])
    assert [row["offset"] for row in found["records"]] == list(range(4, 24))
    keys = {"partition", "offset", "timestamp_ms", "message", "change", "reference"}
    assert found["records"][0].keys() >= keys


@pytest.mark.full
def test_a_single_record_is_not_counted(cluster: Make) -> None:
    looked = cluster()
    looked = replace(looked, topic=f"{looked.topic}-single")
    looked.broker.create_topic(looked.topic)
    looked.send(None, key=b"a")
    assert records_check(looked.examined()) == (Level.OK, "the newest record of 1 partition is readable")
    wrong = replace(looked, config={**looked.config, "key.deserializer": "long"})
    assert records_check(wrong.examined()) == (Level.ERROR, "the newest record is unreadable")


@pytest.mark.full
def test_a_wrong_store_is_an_error_though_small_records_are_readable(cluster: Make, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    looked = cluster(**{"large.message.payload.store.class": "local", "local.path": str(wrong)})
    looked = replace(looked, topic=(topic := f"{looked.topic}-large"))
    looked.broker.create_topic(topic)
    writer = {**looked.config, "large.message.threshold.bytes": 100, "local.path": str(right)}
    with Producer(writer) as producer:
        for size in (1000, 1, 1000, 1000, 1):
            producer.produce(topic, {"x": os.urandom(size).hex()}, key=b"a")
    told = run("doctor", write(looked.config, tmp_path), topic, "--quiet", code=1, columns=None).stdout
    assert (
        f"error    records ({topic}): 3 of the newest 5 records are unreadable: each whose payload is in the store (3)"
        in told
    )
    words = " ".join(told.split())
    assert words.count("the reference is not followed") == 1
    assert words.count("Its reference: file:///") == 1  # in the middle, long ones are cut
    assert "The same with 2 more records, up to offset 3 of partition 0" in words


@pytest.mark.full
def test_one_payload_says_nothing_about_the_store(cluster: Make, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    wrong.mkdir()
    looked = cluster(**{"large.message.payload.store.class": "local", "local.path": str(wrong)})
    looked = replace(looked, topic=(topic := f"{looked.topic}-large"))
    looked.broker.create_topic(topic)
    writer = {**looked.config, "large.message.threshold.bytes": 100, "local.path": str(right)}
    with Producer(writer) as producer:
        for size in (1000, 1):
            producer.produce(topic, {"x": os.urandom(size).hex()}, key=b"a")
    [found] = [check for check in looked.wrong() if check.name == "records"]
    assert found.level is Level.WARNING
    assert found.message == "1 of the newest 2 records is unreadable, but not the last one of a partition"


@pytest.mark.full
def test_payloads_of_a_chain_that_gives_bytes_are_looked_for(cluster: Make, tmp_path: Path) -> None:
    chains = {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes"}
    looked = cluster(**{**chains, "large.message.payload.store.class": "local", "local.path": str(tmp_path)})
    looked = replace(looked, topic=f"{looked.topic}-large")
    looked.broker.create_topic(looked.topic)
    with Producer({**looked.config, "large.message.threshold.bytes": 100}) as producer:
        for size in (1000, 1, 1000):
            producer.produce(looked.topic, os.urandom(size))
    assert records_check(looked.examined())[0] is Level.OK
    for payload in (tmp_path / looked.topic).iterdir():
        payload.unlink()
    message = "2 of the newest 3 records are unreadable: each whose payload is in the store (2)"
    assert records_check(looked.examined()) == (Level.ERROR, message)


@pytest.mark.full
def test_a_store_that_is_away_is_no_problem_of_records(cluster: Make) -> None:
    looked = cluster(**{"s3.endpoint.url": "http://127.0.0.1:1", "value.serializers": None})
    [found] = [check for check in looked.wrong() if check.name == "records"]
    assert found.message.startswith("the newest records cannot be read: ")
    assert found.records == ()


@pytest.mark.full
@pytest.mark.parametrize("store", ["kafka", "local"])
def test_nothing_is_found_with_other_stores(cluster: Make, tmp_path: Path, store: str) -> None:
    (tmp_path / "payloads").mkdir()
    sound = cluster(**{"large.message.payload.store.class": store, "local.path": str(tmp_path / "payloads")})
    with Producer({**sound.config, "large.message.threshold.bytes": 100}) as producer:
        producer.produce(sound.topic, {"large": os.urandom(1000).hex()}, key=b"a")
    [wrong] = sound.wrong()  # the record from before the change of stores
    assert (wrong.name, wrong.level) == ("records", Level.WARNING)
    assert wrong.message == "1 of the newest 3 records is unreadable, but not the last one of a partition"
    [row] = wrong.records
    assert (row.where["partition"], row.where["offset"]) == (0, 1)
    assert "large.message.payload.store.classes" in str(row.change)


def test_a_folder_that_is_no_store_yet_is_left_as_it_is(cluster: Make, tmp_path: Path) -> None:
    mount_point = tmp_path / "not mounted"
    mount_point.mkdir()
    for path in (mount_point, tmp_path / "not there"):
        looked = cluster(**{"large.message.payload.store.class": "local", "local.path": str(path)})
        [said] = [check for check in looked.examined() if check.name == "store"]
        assert said.level is Level.OK
        assert (
            said.message
            == f"not tested: the first payload creates the folder {path}/.payload-store, which does not exist yet"
        )
    assert [*tmp_path.iterdir()] == [mount_point]
    assert [*mount_point.iterdir()] == []


# One mistake each: what is changed in the configuration, the topic, and the check that finds it, with its figures.
WRONG: dict[str, tuple[dict[str, object], dict[str, str], str, Level, str]] = {
    "a threshold above the topic's limit": (
        {"large.message.threshold.bytes": 500_000},
        {"max.message.bytes": "300000"},
        "threshold",
        Level.ERROR,
        "values up to 500,000 bytes stay in their records, but the topic accepts 299,9",
    ),
    "no threshold, and a topic that takes little": (
        {},
        {"max.message.bytes": "300000"},
        "threshold",
        Level.ERROR,
        "values up to 999,964 bytes stay",
    ),
    "batches above the topic's limit": (
        {"large.message.threshold.bytes": 1000},
        {"max.message.bytes": "300000"},
        "batch.size",
        Level.ERROR,
        "batches of up to 1,000,000 bytes, but the topic accepts 300,000",
    ),
    "a topic whose batches the client cannot receive": (
        {"receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_900_000, "message.max.bytes": 1_000_000},
        {"max.message.bytes": "5000000"},
        "receive.message.max.bytes",
        Level.ERROR,
        "up to 2,000,000 bytes at a time, but the topic's batches may have 5,000,000",
    ),
    "random ids in a compacted topic": (
        {"large.message.id": "random"},
        {"cleanup.policy": "compact"},
        "ids",
        Level.WARNING,
        "the topic is compacted",
    ),
    "ids that depend on the client": (
        {"large.message.id": None},
        {"cleanup.policy": "compact"},
        "ids",
        Level.WARNING,
        "the topic is compacted, and large.message.id is unset, so ids depend on the client",
    ),
    "keyed ids in a topic that is not compacted": (
        {"large.message.id": "keyed"}, {}, "ids", Level.WARNING, "suits compacted topics",
    ),
    "a bucket that is not there": (
        {"s3.bucket": "no-such-bucket"}, {}, "store", Level.ERROR, "cannot publish to the store",
    ),
    "a folder that cannot be made": (
        {"large.message.payload.store.class": "local", "local.path": "/proc/payloads", "value.deserializers": None},
        {}, "store", Level.ERROR, "no folder can be created at /proc/payloads",
    ),
    "a store of one process": (
        {"large.message.payload.store.class": "memory", "value.deserializers": None},
        {}, "store", Level.ERROR, "private to one process",
    ),
    "a registry that is not there": (
        {"schema.registry.url": "http://127.0.0.1:1", "avro.schema": SCHEMA, "value.serializers": "avro",
         "value.deserializers": "avro"},
        {}, "registry", Level.ERROR, "the schema registry did not answer: ",
    ),
    "one schema for keys and values": (
        {"avro.schema": SCHEMA, "key.deserializer": "avro", "value.deserializers": "large-message, zstd, avro",
         "value.serializers": "avro, zstd, large-message"},
        {}, "schemas", Level.WARNING, "avro.schema names one record schema for the deserializers of keys and of values",
    ),
    "an idempotent producer that gives up soon": (
        {"enable.idempotence": "true", "delivery.timeout.ms": "30000"},
        {}, "delivery", Level.WARNING, "an outage of more than delivery.timeout.ms (30 s) writes",
    ),
    "deserializers that do not undo the serializers": (
        {"value.deserializers": "large-message, json"},
        {}, "deserializers", Level.ERROR, "json, zstd, large-message",
    ),
    "records of other stages than the readers'": (
        {"value.serializers": None, "value.deserializers": "large-message, json"},
        {}, "records", Level.ERROR, "the newest 2 records are unreadable",
    ),
    "uploads that may last longer than produce may": (
        {"large.message.store.timeout.ms": 50_000, "max.block.ms": 40_000},
        {}, "configuration", Level.ERROR, "longer than max.block.ms (40000 ms)",
    ),
    "downloads that may last longer than a consumer may": (
        {"large.message.store.timeout.ms": 50_000, "max.poll.interval.ms": 45_000, "session.timeout.ms": 10_000},
        {}, "configuration", Level.ERROR, "longer than max.poll.interval.ms (45000 ms)",
    ),
    "a dead-letter topic that is not there": (
        {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": "nowhere-dead"},
        {}, "dead letters", Level.ERROR, "does not exist",
    ),
    "a misspelt key": (
        {"s3.bukket": "payloads"}, {}, "configuration", Level.ERROR, "'s3.bukket' is not a configuration key",
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("mistake", WRONG)
def test_each_mistake_is_found(cluster: Make, mistake: str) -> None:
    config, topic, name, level, text = WRONG[mistake]
    wrong = cluster(topic, **config).wrong()
    [found] = [check for check in wrong if check.name == name]
    assert found.level is level
    assert text in found.message
    assert found.change or all(record.change for record in found.records)


@pytest.mark.full
def test_dead_letters_need_room(cluster: Make, new_topic: NewTopic) -> None:
    for more, level in ((0, Level.WARNING), (4096, Level.OK)):
        dead = new_topic(1, {"max.message.bytes": f"{2_000_000 + more}"})
        policy = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead}
        looked = cluster({"max.message.bytes": "2000000"}, **policy)
        [found] = [check for check in looked.examined() if check.name == "dead letters"]
        assert (found.level, found.topic) == (level, dead)
        if level is Level.WARNING:
            assert "records 2,000,000" in found.message
            assert "2004096" in str(found.change)


@pytest.mark.full
@pytest.mark.parametrize(
    ("policy", "age_days", "level", "text", "change"),
    [
        ({"retention.ms": str(10 * DAY_MS)}, 3, Level.ERROR, "3 days, but the topic keeps records for 10", "12 days"),
        ({"retention.ms": str(10 * DAY_MS)}, 11, Level.WARNING, "after 11 days, shortly after", "12 days"),
        ({"retention.ms": "-1"}, 30, Level.ERROR, "keeps records indefinitely", "serde-chain sweep"),
        ({"cleanup.policy": "compact"}, 30, Level.ERROR, "indefinitely (it is compacted)", "serde-chain sweep"),
        ({"cleanup.policy": "compact,delete"}, 9, Level.OK, "payloads live for 9 days", None),
        ({"retention.ms": str(10 * DAY_MS)}, 12, Level.OK, "payloads live for 12 days", None),
        ({"retention.ms": str(10 * DAY_MS)}, None, Level.WARNING,
         "only on request, but the topic deletes records after 10 days", "12 days"),
        ({"retention.ms": str(10 * DAY_MS)}, 90, Level.WARNING,
         "after 90 days, much later than the topic deletes records, after 10 days", "12 days"),
        # The oldest record of a segment of a week is deleted with its newest.
        ({"retention.ms": str(10 * DAY_MS)}, 17, Level.OK, "payloads live for 17 days", None),
        ({"retention.ms": str(10 * DAY_MS), "segment.ms": str(DAY_MS)}, 17, Level.WARNING, "much later", "12 days"),
        ({"retention.ms": "3600000", "segment.ms": "3600000"}, 1, Level.OK, "payloads live for 1 day", None),
        ({"cleanup.policy": "compact,delete"}, None, Level.WARNING, "only on request", "sweep CONFIG"),
        ({"cleanup.policy": "compact"}, None, Level.OK, "request, and the topic keeps records indefinitely (it", None),
        ({"retention.ms": "-1"}, None, Level.OK, "request, and the topic keeps records indefinitely", None),
        ({"retention.ms": str(2**63 - 1)}, None, Level.OK, "the topic keeps records indefinitely", None),
    ],
)  # fmt: skip
def test_lifetimes_of_payloads_and_records_are_compared(  # noqa: PLR0917, a row of the table
    cluster: Make, policy: dict[str, str], age_days: int | None, level: Level, text: str, change: str | None
) -> None:
    looked = cluster(policy, **{"large.message.id": "content"})
    expire_after(looked.s3, looked.topic, None if age_days is None else timedelta(days=age_days))
    [check] = [check for check in looked.examined() if check.name == "retention"]
    assert check.level is level
    assert text in check.message
    assert check.change == change or (change and check.change and change in check.change)


class Kept(PayloadStore):
    """Keeps what it gets, as hop's servers do: it has no way to delete."""

    scheme = "kept"
    payloads: ClassVar[dict[str, bytes]] = {}

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        reference = references.to_url(self.scheme, "", references.object_path(self, topic, data, context))
        self.payloads[reference] = bytes(data)
        return reference

    def download(self, reference: str) -> bytes:
        return self.payloads[reference]


def rule(**settings: Any) -> Any:
    return {"ID": "other", "Status": "Enabled", "Expiration": {"Days": 9}, **settings}


# Rules that delete no payload of the topic by its age.
IRRELEVANT: dict[str, Any] = {
    "disabled": rule(Status="Disabled", Filter={"Prefix": ""}),
    "for another topic": rule(Filter={"Prefix": "other-topic/"}),
    "for a tag": rule(Filter={"Tag": {"Key": "a", "Value": "b"}}),
    "for noncurrent versions": {
        "ID": "other",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
    },
}


@pytest.mark.full
@pytest.mark.parametrize("rules", [None, *IRRELEVANT])
def test_a_bucket_that_keeps_the_payloads_of_deleted_records(
    cluster: Make, s3_server: S3Server, tmp_path: Path, rules: str | None
) -> None:
    looked = cluster()
    expire_after(looked.s3, looked.topic, None)
    if rules is not None:
        client = boto3.client(
            "s3",
            endpoint_url=s3_server.url,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        client.put_bucket_lifecycle_configuration(
            Bucket=str(looked.s3["s3.bucket"]), LifecycleConfiguration={"Rules": [IRRELEVANT[rules]]}
        )
    path = write(looked.config, tmp_path)
    found: dict[str, Any] = {}
    for more, code in (((), 0), (("--strict",), 1)):
        said = run("doctor", path, looked.topic, "--quiet", "--json", *more, code=code).stdout.splitlines()
        [found] = map(json.loads, said)
        assert (found["name"], found["level"], found["topic"]) == ("retention", "warning", looked.topic)
        assert "only on request, but the topic deletes records after 7 days" in found["message"]
    # The advice is followed.
    assert f'open_store("s3", config).set_expiration("{looked.topic}", timedelta(days=9))' in found["change"]
    expire_after(looked.s3, looked.topic, timedelta(days=9))
    assert looked.wrong() == []


@pytest.mark.full
def test_topics_with_different_retentions_in_one_bucket(cluster: Make, new_topic: NewTopic) -> None:
    looked = cluster()
    longer = new_topic(1, {"retention.ms": str(60 * DAY_MS)})
    for topic in (looked.topic, longer):
        expire_after(looked.s3, topic, None)
    with closing(open_store("s3", looked.s3)) as store:
        assert isinstance(store, S3Store)
        store._client.put_bucket_lifecycle_configuration(
            Bucket=str(looked.s3["s3.bucket"]),
            LifecycleConfiguration={"Rules": [rule(Filter={"Prefix": ""}, Expiration={"Days": 72})]},
        )
    checks = {
        check.topic: check for check in examine(looked.config, [looked.topic, longer]) if check.name == "retention"
    }
    assert checks[longer].level is Level.OK
    assert checks[looked.topic].level is Level.WARNING
    assert "if no other topic's payloads need the longer one" in str(checks[looked.topic].change)


@pytest.mark.full
def test_a_payload_topic_that_keeps_the_payloads_of_deleted_records(cluster: Make) -> None:
    looked = cluster(**{"large.message.payload.store.class": "kafka", "value.deserializers": None})
    with closing(open_store("kafka", looked.config)) as store:
        assert isinstance(store, SupportsExpiration)
        store.publish(looked.topic, b"payload")
        assert looked.wrong() == []
        store.set_expiration(looked.topic, None)
    [found] = looked.wrong()
    assert (found.name, found.level) == ("retention", Level.WARNING)
    assert "deletes payloads only on request" in found.message


@pytest.mark.parametrize(
    ("store", "message", "change"),
    [
        ("local", "only a sweep deletes payloads from a folder", "Run serde-chain sweep CONFIG"),
        (Kept, "the store Kept does not report", "Use a rule of the server that deletes payloads after 9 days"),
    ],
)
def test_advice_for_stores_whose_expiration_cannot_be_read(
    cluster: Make, tmp_path: Path, store: Any, message: str, change: str
) -> None:
    (tmp_path / "payloads" / ".payload-store").mkdir(parents=True)
    own = {"large.message.payload.store.class": store, "local.path": str(tmp_path / "payloads")}
    checks = cluster(**own, **{"value.deserializers": None}).examined()
    [found] = [check for check in checks if check.name == "retention"]
    assert found.level is Level.OK
    assert found.message.startswith(message)
    assert str(found.change).startswith(change)


@pytest.mark.full
def test_a_topic_that_is_not_there(cluster: Make) -> None:
    sound = cluster()
    checks = list(examine(sound.config, ["no-such-topic", sound.topic], timeout_s=20))
    [wrong] = [check for check in checks if check.level is not Level.OK]
    assert (wrong.name, wrong.topic, wrong.level) == ("topic", "no-such-topic", Level.ERROR)
    # Its store is tried.
    assert [check.topic for check in checks if check.name == "store"] == [sound.topic, "no-such-topic"]


def test_a_name_that_no_topic_can_have(cluster: Make) -> None:
    sound = cluster()
    checks = list(examine(sound.config, ["M 51", sound.topic], timeout_s=20))
    wrong = [(check.name, check.topic) for check in checks if check.level is not Level.OK]
    assert wrong == [("topic", "M 51"), ("store", "M 51")]
    assert {check.name for check in checks if check.topic == sound.topic} >= {"topic", "store", "records"}


def test_a_package_that_is_missing(cluster: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = cluster(**{"value.serializers": "json, encrypt, large-message", "value.deserializers": None})
    looked.config.update({"encryption.key.id": "k", "encryption.keys": "k = env:SERDE_CHAIN_KEY"})
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    [wrong] = looked.wrong()
    assert (wrong.name, wrong.level) == ("extras", Level.ERROR)
    assert "serde-chain[encryption]" in f"{wrong.message} {wrong.change}"


def test_no_topic_that_is_there(cluster: Make) -> None:
    config = cluster(**{"s3.bucket": "no-such-bucket"}).config
    wrong = [check for check in examine(config, ["no-such-topic"], timeout_s=20) if check.level is not Level.OK]
    assert [(check.name, check.level) for check in wrong] == [("topic", Level.ERROR), ("store", Level.ERROR)]


def test_a_bucket_that_is_not_there_needs_no_permission(cluster: Make) -> None:
    wrong = cluster(**{"s3.bucket": "no-such-bucket", "value.deserializers": None}).wrong()
    assert [(check.name, check.change) for check in wrong] == [("store", "Check s3.bucket and s3.endpoint.url")]


def test_no_payload_topic_is_created(broker: KafkaBroker, cluster: Make) -> None:
    looked = cluster(**{"large.message.payload.store.class": "kafka", "value.deserializers": None})
    checks = looked.examined()
    assert [check for check in checks if check.level is not Level.OK] == []
    [store] = [check for check in checks if check.name == "store"]
    assert f"creates the payload topic {looked.topic}.payloads" in store.message
    topics = confluent_kafka.admin.AdminClient(broker.client_config()).list_topics(timeout=30).topics
    assert looked.topic in topics
    assert f"{looked.topic}.payloads" not in topics


def test_a_probe_that_cannot_be_deleted_is_not_called_deleted(cluster: Make) -> None:
    Kept.payloads.clear()
    checks = cluster(**{"large.message.payload.store.class": Kept}).examined()
    assert [check.message for check in checks if check.name == "store"] == [
        "a payload was written to the store Kept and read; it remains, since the store does not support deletion"
    ]
    assert len(Kept.payloads) == 1


class Odd(LocalStore):
    """A folder whose clock is wrong, that refuses a step, or that is away: as its class says."""

    refuses: ClassVar[frozenset[str]] = frozenset()
    ahead = timedelta()
    expires = timedelta(days=9)
    is_away = False
    asked = 0

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return self._asked("publish", super().publish, topic, data, context)

    def download(self, reference: str) -> bytes:
        return self._asked("download", super().download, reference)

    def delete(self, reference: str) -> None:
        self._asked("delete", super().delete, reference)

    def info(self, reference: str) -> PayloadInfo:
        info = super().info(reference)
        return replace(info, modified=info.modified + self.ahead)

    def expiration(self, topic: str) -> timedelta | None:
        return self._asked("expiration", lambda: self.expires)

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        raise NotImplementedError

    def count_leftovers(self, older_than_ms: int = DAY_MS) -> int:
        return self._asked("count_leftovers", super().count_leftovers, older_than_ms)

    def _asked(self, name: str, operation: Callable[..., T], *args: Any) -> T:
        type(self).asked += 1
        if self.is_away:
            raise PayloadStoreUnavailableError("the store did not answer", hint="Start it", store="odd")
        if name in self.refuses:
            hint = "Check the user and the password"
            raise PayloadAccessDeniedError("the credentials are refused", hint=hint, store="odd")
        return operation(*args)


def odd(folder: Path, **facts: Any) -> dict[str, object]:
    """A configuration with that store; the record of the cluster is in another one."""
    (folder / ".payload-store").mkdir(exist_ok=True)
    return {
        "large.message.payload.store.class": type("Store", (Odd,), facts),
        "local.path": str(folder),
        "value.deserializers": None,
    }


@pytest.mark.parametrize(
    ("refuses", "step", "change"),
    [
        ({"publish", "download", "delete", "expiration", "count_leftovers"}, "publish to", "permit writing"),
        ({"download", "expiration", "delete"}, "download from", "permit reading"),
        ({"delete"}, "delete from", "permit deletion"),
    ],
)
def test_credentials_that_a_store_refuses_are_reported_once(
    cluster: Make, tmp_path: Path, refuses: set[str], step: str, change: str
) -> None:
    [wrong] = cluster(**odd(tmp_path, refuses=refuses)).wrong()
    assert (wrong.name, wrong.level) == ("store", Level.ERROR)
    assert wrong.message == f"cannot {step} the store: the credentials are refused"
    assert wrong.change is not None
    assert wrong.change.startswith(f"Check the user and the password. If they are right: {change}")


def test_a_store_that_is_away_is_asked_once(cluster: Make, tmp_path: Path) -> None:
    config = cluster(**odd(tmp_path, is_away=True)).config
    checks = list(examine(config, ["no-such-topic", "nor-this"], timeout_s=20, tries=True))
    told = [(check.topic, check.message, check.change) for check in checks if check.name == "store"]
    text = "cannot publish to the store: the store did not answer"
    assert told == [("no-such-topic", text, "Start it"), ("nor-this", text, "Start it")]
    kind: Any = config["large.message.payload.store.class"]
    assert kind.asked == 1


@pytest.mark.parametrize(("seconds", "said"), [(-600, "600 s behind"), (600, "600 s ahead of"), (30, None)])
def test_a_store_whose_clock_is_wrong(cluster: Make, tmp_path: Path, seconds: int, said: str | None) -> None:
    wrong = cluster(**odd(tmp_path, ahead=timedelta(seconds=seconds))).wrong()
    assert [check.name for check in wrong] == ([] if said is None else ["store clock"])
    assert all(f"{said} this machine's" in check.message for check in wrong)


def test_a_look_that_is_interrupted_leaves_no_probe(cluster: Make, tmp_path: Path) -> None:
    def interrupted(*_arguments: object) -> bytes:
        raise KeyboardInterrupt

    looked = cluster(**odd(tmp_path, download=interrupted))
    with pytest.raises(KeyboardInterrupt):
        looked.examined()
    assert not list((tmp_path / looked.topic).iterdir())


@pytest.mark.full
def test_what_a_user_may_not_do(broker: KafkaBroker, cluster: Make) -> None:
    looked = cluster(**broker.client_config("alice"))
    broker.allow("alice", ["READ"], topic=looked.topic)
    wrong = {check.name: check for check in looked.wrong()}
    assert wrong["permissions"].message == "this user may not WRITE"
    assert wrong["limits"].level is Level.WARNING
    assert "if it is compacted, ids of payloads are random all the same" in wrong["limits"].message
    assert wrong.keys() == {"permissions", "limits"}
    broker.allow("alice", ["WRITE", "DESCRIBE_CONFIGS"], topic=looked.topic)
    assert looked.wrong() == []


@pytest.mark.full
def test_records_of_the_future(cluster: Make) -> None:
    looked = cluster()
    looked.send(b"{}", timestamp=int(time.time() * 1000) + 3_000_000)
    [clock] = [check for check in looked.wrong() if check.name == "clock"]
    assert "ahead of this machine's clock" in clock.message


@pytest.mark.full
def test_records_that_list_other_stages(cluster: Make) -> None:
    looked = cluster()
    with Producer(
        {**looked.config, "value.serializers": "json, large-message", "serde.chain.describe": True}
    ) as producer:
        producer.produce(looked.topic, {})
    wrong, records = looked.wrong()
    assert (wrong.name, wrong.level) == ("deserializers", Level.ERROR)
    assert (records.name, records.level) == ("records", Level.ERROR)
    assert wrong.change == "Set value.deserializers = large-message, json"


def records_check(checks: list[Finding]) -> tuple[Level, str]:
    [found] = [check for check in checks if check.name == "records"]
    return found.level, found.message


@pytest.mark.full
def test_keys_are_read_where_a_topic_ends_with_tombstones(cluster: Make) -> None:
    looked = cluster(**{"key.deserializer": "long"})  # keys are text
    looked.send(None, key=b"a")
    [check] = [check for check in looked.examined() if check.name == "records"]
    assert (check.level, check.message) == (Level.ERROR, "the newest 3 records are unreadable")
    assert all("long (1 of 1)" in found.message for found in check.records)
    sound = replace(looked, config={**looked.config, "key.deserializer": "string"})
    assert records_check(sound.examined()) == (Level.OK, "the newest 3 records of 1 partition are readable")


@pytest.mark.full
def test_values_in_front_of_tombstones_are_read(cluster: Make) -> None:
    looked = cluster()
    looked.send(b"not what the chain reads", key=b"a")
    for _ in range(3):
        looked.send(None, key=b"a")
    level, message = records_check(looked.examined())
    assert level is Level.ERROR
    assert message.startswith("1 of the newest ")


@pytest.mark.full
def test_values_in_front_of_a_transactions_marker_are_read(cluster: Make) -> None:
    looked = cluster()
    producer = confluent_kafka.Producer({**looked.broker.client_config(), "transactional.id": looked.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(looked.topic, b"not what the chain reads", key=b"a")
    producer.commit_transaction(30)
    level, message = records_check(looked.examined())
    assert level is Level.ERROR
    assert message.startswith("1 of the newest ")


def test_payloads_that_no_record_can_need(broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(1, {"retention.ms": str(DAY_MS)})
    config: dict[str, object] = {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }
    with Producer({**config, "large.message.threshold.bytes": 10}) as producer:
        producer.produce(topic, bytes(5000))
        producer.flush(30)
    [payload] = (tmp_path / "payloads" / topic).iterdir()
    assert [check for check in examine(config, [topic]) if check.level is not Level.OK] == []
    long_ago = time.time() - 30 * 86_400
    os.utime(payload, (long_ago, long_ago))
    checks = list(examine(config, [topic], tries=True))
    assert "a payload was written to the store local, read and deleted" in [check.message for check in checks]
    [wrong] = [check for check in checks if check.level is not Level.OK]
    assert (wrong.name, wrong.level) == ("orphans", Level.WARNING)
    assert "the store has 1 payload (5,000 bytes)" in wrong.message


@pytest.mark.full
def test_uploads_that_were_never_finished(cluster: Make) -> None:
    looked = cluster()
    store = open_store("s3", looked.s3)
    assert isinstance(store, S3Store)
    # moto dates all uploads to the year 2010.
    store._client.create_multipart_upload(Bucket=str(looked.s3["s3.bucket"]), Key=f"{looked.topic}/1")
    store.close()
    [wrong] = looked.wrong()
    assert (wrong.name, wrong.level) == ("leftovers", Level.WARNING)
    assert "1 upload to the store s3 started more than a day ago" in wrong.message
    assert 'open_store("s3", config).remove_leftovers()' in str(wrong.change)


@pytest.mark.full
def test_what_a_killed_producer_has_left(cluster: Make, tmp_path: Path) -> None:
    from serde_chain.clients.journal import Journal

    path = tmp_path / "journal"
    looked = cluster(**{"large.message.journal.path": str(path)})
    assert looked.wrong() == []
    with Journal(path, fsync=True) as journal:
        journal.intend("s3://payloads/images/1")
    [wrong] = looked.wrong()
    assert (wrong.name, wrong.level) == ("journal", Level.WARNING)
    with Journal(path, fsync=True) as journal:
        assert journal.left == ("s3://payloads/images/1",)  # a look leaves it


def test_a_registry_that_answers(cluster: Make, registry: SchemaRegistry) -> None:
    looked = cluster(**{
        "schema.registry.url": registry.url,
        "avro.schema": SCHEMA,
        "value.serializers": "avro",
        "value.deserializers": None,
    })  # fmt: skip
    [found] = [check for check in looked.examined() if check.name == "registry"]
    assert found.level is Level.OK


@pytest.mark.full
def test_registries_of_other_types(
    cluster: Make, registry: SchemaRegistry, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = registry.url.removesuffix("/apis/ccompat/v7")
    glue = {"schema.registry.type": "glue", "glue.region": "eu-west-1", "glue.endpoint.url": s3_server.url}
    # moto's default registry exists once it has a schema.
    boto3.client("glue", region_name="eu-west-1", endpoint_url=s3_server.url).create_registry(RegistryName="doctor")
    glue["glue.registry.name"] = "doctor"
    apicurio = {"schema.registry.type": "apicurio", "schema.registry.url": f"{server}/apis/registry/v3"}
    for settings, level, message in (
        (glue, Level.OK, "it answers"),
        ({**glue, "glue.registry.name": "none"}, Level.ERROR, "Glue refused the registry none: Registry is not found"),
        (apicurio, Level.OK, "it answers"),
        (
            {**apicurio, "schema.registry.url": "http://127.0.0.1:1"},
            Level.ERROR,
            "the schema registry did not answer on",
        ),
    ):
        looked = cluster(**{**settings, "avro.schema": SCHEMA, "value.serializers": "avro"})
        [found] = [check for check in looked.examined() if check.name == "registry"]
        assert (found.level, found.message[: len(message)]) == (level, message)


@pytest.mark.full
def test_another_path_of_the_registrys_server(cluster: Make, registry: SchemaRegistry) -> None:
    url = registry.url.removesuffix("/apis/ccompat/v7")
    for path in ("", "/apis/ccompat", "/elsewhere"):
        looked = cluster(**{"schema.registry.url": url + path, "avro.schema": SCHEMA, "value.serializers": "avro"})
        [found] = [check for check in looked.examined() if check.name == "registry"]
        assert (found.level, found.message) == (
            Level.ERROR, "schema.registry.url has no schema registry at its path",
        )  # fmt: skip
        assert "/apis/ccompat/v7" in str(found.change)


# The command


def write(config: Mapping[str, object], folder: Path) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
    return path


@pytest.mark.full
def test_exit_codes_and_output(cluster: Make, tmp_path: Path) -> None:
    looked = cluster({"cleanup.policy": "compact"})
    path = write(looked.config, tmp_path)
    shown = run("doctor", path, looked.topic).stdout
    assert f"warning  ids ({looked.topic}): the topic is compacted" in shown
    assert shown.splitlines()[-1].endswith(" ok, 1 warning, 0 errors")
    lines = run("doctor", path, looked.topic, "--strict", "--json", "--quiet", code=1).stdout.splitlines()
    [warning] = map(json.loads, lines)
    assert warning["level"] == "warning"
    run("doctor", path, "no-such-topic", code=1)
    run("doctor", path, code=2)


def test_mistakes_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = write({"bootstrap.servers": "127.0.0.1:1", "value.serializers": "byts"}, tmp_path)
    assert run("doctor", path, "t", code=1).stdout.startswith(
        "error    configuration: line 2: there is no stage 'byts'"
    )


@pytest.mark.full
def test_a_broker_that_is_not_there_is_one_check(tmp_path: Path) -> None:
    path = write({"bootstrap.servers": "127.0.0.1:1", "value.serializers": "bytes"}, tmp_path)
    done = run_process("doctor", path, "t", "--timeout", 2, code=1)
    assert done.stderr == ""
    _, broker, _ = done.stdout.splitlines()
    assert broker.startswith("error    broker: the broker did not answer")
    assert "Connection refused" in broker


@pytest.mark.full
def test_the_store_of_fields_is_checked_as_that_of_values(cluster: Make) -> None:
    chains: dict[str, object] = {
        "value.serializers": "large-fields, json, zstd",
        "value.deserializers": "zstd, json, large-fields",
        "large.fields.paths": "large",
        "large.fields.min.bytes": 100,
        # Not of this stage, and too large for the topic.
        "large.message.threshold.bytes": 900_000,
    }
    fields = cluster({"max.message.bytes": "500000"}, **chains, **{"batch.size": 400_000})
    with Producer(fields.config) as producer:
        producer.produce(fields.topic, {"large": "x" * 1000}, key=b"a")
    checks = fields.examined()
    # The payload of the other chain's record.
    assert [check.name for check in checks if check.level is not Level.OK] == ["records"]
    assert {check.name for check in checks} >= {"ids", "store", "retention", "deserializers", "records"}
    compacted = cluster({"cleanup.policy": "compact"}, **chains)
    assert [check.name for check in compacted.wrong() if check.name == "ids"] == ["ids"]
    away = replace(fields, config={**fields.config, "s3.bucket": "no-such-bucket"})
    assert "store" in {check.name for check in away.wrong()}
