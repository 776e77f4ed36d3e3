"""Records and their payloads move from one topic, store or format to another: each once, in order."""

import itertools
import multiprocessing
import os
import shutil
import signal
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from payload_stores.base import PayloadStore
from serde_chain import ConfigError, Consumer, Producer
from serde_chain.errors import JobError
from serde_chain.jobs import MigrateReport, copying
from serde_chain.jobs import migrate as migrate_locally
from serde_chain.jobs.local.migrating import LocalCheckpoint
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.jobs.conftest import Config, Migrate, Send, payload, stored
from tests.jobs.test_sweep import refer, settings_of

if TYPE_CHECKING:
    from tests.conftest import NewTopic


@pytest.fixture
def target(config: Config, tmp_path: Path) -> Config:
    """The configuration to migrate to: another folder."""
    return {**config, "local.path": str(tmp_path / "target")}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def read(config: Config, topic: str) -> list[list[Any]]:
    """What readers see in each partition: keys, values, headers and timestamps."""
    with Consumer({**config, "enable.partition.eof": True}) as consumer:
        count = len(consumer.list_topics(topic, 30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
        partitions: list[list[Any]] = [[] for _ in range(count)]
        ended = 0
        while ended < count:
            message = consumer.poll(30)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended += 1
                continue
            at = partitions[message.partition() or 0]
            at.append((message.key(), message.value(), message.headers(), message.timestamp()))
        return partitions


def test_all_of_a_record_is_kept(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", checkpoint: Path
) -> None:
    """Three migrations of three partitions."""
    source, copy = new_topic(3), new_topic(3)
    moment = time.time_ns() // 1_000_000 - 3_600_000  # within retention, and not now
    with Producer(config) as producer:
        for number in range(40):
            value = [payload(number), b"small", None, b""][number % 4]
            headers: Any = [("n", b"%d" % number), ("n", None)] if number % 3 else None
            key = b"k%d" % number if number % 5 else None
            producer.produce(source, value, key, number % 3, timestamp=moment + number, headers=headers)
    report = migrate(config, target, source, copy, checkpoint=checkpoint)
    assert report == MigrateReport(records=40, payloads=10, skipped=0)
    copied = read(target, copy)
    assert copied == read(config, source)
    assert [len(partition) for partition in copied] == [14, 13, 13]
    # Nothing is left to do; what comes later is migrated later.
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(0, 0, 0)
    with Producer(config) as producer:
        producer.produce(source, payload(41), b"late", 1)
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(1, 1, 0)
    assert read(target, copy) == read(config, source)


@pytest.mark.full
def test_an_old_checkpoint_writes_nothing_twice(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", send: Send, checkpoint: Path
) -> None:
    source, copy = new_topic(1), new_topic(1)
    send(source, payload(0))
    assert migrate(config, target, source, copy, checkpoint=checkpoint).records == 1
    old = shutil.copytree(checkpoint, checkpoint.with_name("old"))
    send(source, payload(1))
    assert migrate(config, target, source, copy, checkpoint=checkpoint).records == 1
    migrate(config, target, source, copy, checkpoint=old)
    assert read(target, copy) == read(config, source)


@pytest.mark.full
def test_a_transaction_that_a_killed_task_has_left_open(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", send: Send, checkpoint: Path
) -> None:
    """Migrations before and after, the second of which waits for the broker."""
    source, copy = new_topic(1), new_topic(1)
    send(source, payload(0))
    migrate(config, target, source, copy, checkpoint=checkpoint)
    send(source, payload(1))
    state = LocalCheckpoint(checkpoint).read()
    assert state is not None
    name, servers = f"{state.name}-0", {"bootstrap.servers": config["bootstrap.servers"]}
    # Until it has ended, which takes the broker longer than a job waits, the group's position is not stable.
    with closing(confluent_kafka.Consumer({**servers, "group.id": name})) as group:
        task = confluent_kafka.Producer({**servers, "transactional.id": name, "transaction.timeout.ms": 300_000})
        task.init_transactions()
        task.begin_transaction()
        task.produce(copy, b"of the killed task")
        task.flush(30)
        place = TopicPartition(copy, 0, 2, "2 2 0")
        task.send_offsets_to_transaction([place], group.consumer_group_metadata())
    assert migrate(config, target, source, copy, checkpoint=checkpoint).records == 1
    assert read(target, copy) == read(config, source)


def migrate_and_be_killed(arguments: tuple[Any, ...], checkpoint: Path, commit: int, *, behind: bool) -> None:
    """Migrate in transactions of up to ten records, and be killed before or behind the commit of one of them."""
    real, count = copying._Copy._commit, 0

    def commit_or_die(self: copying._Copy) -> None:
        nonlocal count
        count += self._next != self.done
        if count == commit and not behind:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self)
        if count == commit:
            os.kill(os.getpid(), signal.SIGKILL)

    # By this clock, a transaction ends behind the first records.
    clock = SimpleNamespace(monotonic=itertools.count(step=0.1).__next__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "time", clock)
        patch.setattr(copying, "_TAKE", 10)
        patch.setattr(copying, "_TRANSACTION_S", 0.25)
        patch.setattr(copying._Copy, "_commit", commit_or_die)
        migrate_locally(*arguments, checkpoint=checkpoint)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_killed_migration_goes_on_where_it_was(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", send: Send, checkpoint: Path
) -> None:
    """With records that were written but not committed, and with commits that the checkpoint does not have.

    Four processes, one after the other.
    """
    source, copy = new_topic(1), new_topic(1)
    send(source, *map(payload, range(55)))
    reached = [0]
    for commit, behind in ((2, False), (2, True), (1, False), (1, True)):
        process = multiprocessing.get_context("spawn").Process(
            target=migrate_and_be_killed,
            args=((config, target, source, copy), checkpoint, commit),
            kwargs={"behind": behind},
        )
        process.start()
        process.join(100)
        assert process.exitcode == -signal.SIGKILL
        state = LocalCheckpoint(checkpoint).read()
        assert state is not None
        assert state.under_way
        settings = {"bootstrap.servers": config["bootstrap.servers"], "group.id": f"{state.name}-0"}
        with closing(confluent_kafka.Consumer({**settings, "isolation.level": "read_uncommitted"})) as group:
            [place] = group.committed([TopicPartition(copy, 0)], 30)
        reached.append(place.offset)
    none, one, three, same, four = reached
    assert none < one < three == same < four < 55
    report = migrate(config, target, source, copy, checkpoint=checkpoint)
    assert report == MigrateReport(55 - four, 55 - four, 0)
    assert read(target, copy) == read(config, source)


@pytest.mark.full
def test_a_topic_that_was_made_anew_is_not_taken_for_the_one_before(
    *,
    migrate: Migrate,
    config: Config,
    target: Config,
    new_topic: "NewTopic",
    send: Send,
    checkpoint: Path,
    broker: KafkaBroker,
) -> None:
    source, copy = new_topic(1), new_topic(1)
    send(source, payload(0), payload(1))
    assert migrate(config, target, source, copy, checkpoint=checkpoint).records == 2
    admin = broker.admin()
    admin.delete_topics([source], operation_timeout=30)[source].result(30)
    broker.create_topic(source)
    send(source, payload(2))
    with pytest.raises(JobError, match="ends at offset 1, but was copied up to 2: its topic was recreated"):
        migrate(config, target, source, copy, checkpoint=checkpoint)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["s3", "objects", "kafka"])
def test_to_other_stores_and_formats(
    *,
    migrate: Migrate,
    config: Config,
    new_topic: "NewTopic",
    send: Send,
    checkpoint: Path,
    kind: str,
    s3_server: S3Server,
    bucket: str,
) -> None:
    source, copy = new_topic(1), new_topic(1)
    send(source, b"small", payload(1), None)
    of_format = {"s3": "kip1159", "objects": "bakdata-flag", "kafka": "bakdata-headers"}[kind]
    target = {
        **config,
        **settings_of(kind, s3_server, bucket),
        "large.message.payload.store.class": kind,
        "large.message.format": of_format,
        "large.message.accept": of_format,
    }
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(3, 1, 0)
    assert read(target, copy) == read(config, source)


@pytest.mark.full
def test_keys_and_stages_inside_stay_as_they_are(
    migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", checkpoint: Path
) -> None:
    source, copy = new_topic(2), new_topic(1)
    stages = {
        "key.serializers": "bytes, large-message",
        "key.deserializers": "large-message, bytes",
        "value.serializers": "json, zstd, large-message, entry-metadata",
        "value.deserializers": "entry-metadata, large-message, zstd, json",
        "large.message.threshold.bytes": 30,
    }
    config, target = {**config, **stages}, {**target, **stages}
    with Producer(config) as producer:
        for number in range(10):
            producer.produce(source, list(range(number, number + 100)), payload(number), partition=number % 2)
    report = migrate(config, target, source, copy, checkpoint=checkpoint)
    assert (report.records, report.payloads) == (10, 10)
    [copied] = read(target, copy)
    expected = [record for partition in read(config, source) for record in partition]
    assert sorted(copied, key=lambda record: record[0]) == sorted(expected, key=lambda record: record[0])


@pytest.mark.full
def test_what_is_not_committed_is_not_migrated(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", checkpoint: Path
) -> None:
    source, copy = new_topic(1), new_topic(1)
    for number, commits in enumerate((True, False, True)):
        with Producer({**config, "transactional.id": f"{source}-{number}"}) as producer:
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce(source, payload(number))
            (producer.commit_transaction if commits else producer.abort_transaction)(30)
    # The log ends with a mark that is no record.
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(2, 2, 0)
    assert [value for _, value, _, _ in read(target, copy)[0]] == [payload(0), payload(2)]
    assert migrate(config, target, source, copy, checkpoint=checkpoint).records == 0


@pytest.fixture
def unreadable(config: Config, new_topic: "NewTopic", send: Send) -> str:
    """A topic whose second record has a reference to nothing."""
    topic = new_topic(1)
    send(topic, payload(0))
    refer(config, topic, f"file://{config['local.path']}/{topic}/{'0' * 36}")
    send(topic, payload(2))
    return topic


@pytest.mark.full
def test_a_record_that_cannot_be_read_ends_it(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", checkpoint: Path, unreadable: str
) -> None:
    """Two migrations."""
    copy = new_topic(1)
    with pytest.raises(JobError, match="No such file") as caught:
        migrate(config, target, unreadable, copy, checkpoint=checkpoint)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (unreadable, 0, 1)
    assert [value for _, value, _, _ in read(target, copy)[0]] == [payload(0)]
    # The operator decides, and it goes on.
    skipping = {**config, "serde.error.policy": "skip"}
    report = migrate(skipping, target, unreadable, copy, checkpoint=checkpoint)
    assert (report.records, report.skipped) == (1, 1)
    assert [value for _, value, _, _ in read(target, copy)[0]] == [payload(0), payload(2)]


@pytest.mark.full
def test_a_record_that_cannot_be_read_is_a_dead_letter(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", checkpoint: Path, unreadable: str
) -> None:
    copy, dead = new_topic(1), new_topic(1)
    config |= {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead}
    report = migrate(config, target, unreadable, copy, checkpoint=checkpoint)
    assert (report.records, report.skipped) == (2, 1)
    plain = {"bootstrap.servers": config["bootstrap.servers"], "group.id": "dead"}
    [[(_, _, headers, _)]] = read(plain, dead)
    assert ("serde-chain-error-offset", b"1") in headers


def test_what_cannot_be_migrated(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", send: Send, checkpoint: Path
) -> None:
    source, copy = new_topic(1), new_topic(1)
    send(source, payload(0))
    with pytest.raises(ConfigError, match="into itself"):
        migrate(config, target, source, source, checkpoint=checkpoint)
    with pytest.raises(ConfigError, match="no stage of the target creates references"):
        migrate(config, {**target, "value.serializers": "bytes"}, source, copy, checkpoint=checkpoint)
    auto = {"value.deserializers": "auto", "serde.chain.allow": "bytes, large-message"}
    with pytest.raises(ConfigError, match="auto cannot be migrated"):
        migrate({**config, **auto}, target, source, copy, checkpoint=checkpoint)
    with pytest.raises(JobError, match="cannot be read"):
        migrate(config, target, source, f"{copy}-nowhere", checkpoint=checkpoint)
    assert migrate(config, target, source, copy, checkpoint=checkpoint).records == 1
    with pytest.raises(ConfigError, match=f"from {source} to {copy}"):
        migrate(config, target, source, new_topic(1), checkpoint=checkpoint)


@pytest.mark.full
def test_a_store_that_fails_ends_it_and_it_goes_on(
    *,
    migrate: Migrate,
    config: Config,
    target: Config,
    new_topic: "NewTopic",
    send: Send,
    checkpoint: Path,
    store: PayloadStore,
) -> None:
    """By Spark, tasks are repeated before the first migration ends."""
    source, copy = new_topic(1), new_topic(1)
    send(source, *map(payload, range(5)))
    blocked = Path(target["local.path"])
    blocked.mkdir()
    (blocked / copy).write_text("in the way")
    with pytest.raises(JobError) as caught:
        migrate(config, target, source, copy, checkpoint=checkpoint)
    assert caught.value.topic == source
    (blocked / copy).unlink()
    assert migrate(config, target, source, copy, checkpoint=checkpoint) == MigrateReport(5, 5, 0)
    assert read(target, copy) == read(config, source)
    assert len(stored(store, source)) == 5


@pytest.mark.full
def test_a_target_broker_that_goes_down_and_comes_back(
    *, migrate: Migrate, config: Config, target: Config, new_topic: "NewTopic", send: Send, checkpoint: Path
) -> None:
    """While payloads are on their way to it."""
    source, copy = new_topic(1), "copy"
    with KafkaBroker() as elsewhere:
        elsewhere.create_topic(copy)
        target |= elsewhere.client_config()
        send(source, *(payload(number) * 100 for number in range(100)))
        went_down = threading.Thread(target=restart_at_first_payload, args=(elsewhere, Path(target["local.path"])))
        went_down.start()
        report = MigrateReport(0, 0, 0)
        with suppress(JobError):
            report = migrate(config, target, source, copy, checkpoint=checkpoint)
        went_down.join(60)
        assert not went_down.is_alive()
        again = migrate(config, target, source, copy, checkpoint=checkpoint)
        assert report.records in {0, 100 - again.records}
        assert read(target, copy) == read(config, source)


def restart_at_first_payload(broker: KafkaBroker, folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(path.is_file() for path in folder.rglob("*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    broker.kill()
    broker.restart()
