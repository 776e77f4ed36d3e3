"""The relay on a real broker: what it copies, and that it copies it exactly once, killed or not."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from serde_chain import ConfigError
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.errors import StampError
from serde_chain.stamp import check, stamp
from serde_chain.wire.entry_metadata import frame, peek, strip
from tests.conftest import NewTopic
from tests.refusing_broker import refusing
from tests.stamp.conftest import Fill

COMMAND = [sys.executable, "-c", "from serde_chain.cli import main; main()", "stamp"]
PAYLOAD = b"\x0e\x02 a payload that looks like a frame"


def read(config: dict[str, Any], topic: str) -> list[Any]:
    with PartitionReader(config, "tests", failure=StampError) as reader:
        for number in range(reader.count(topic)):
            wait_for_markers(config, topic, number)
        return [
            message
            for number in range(reader.count(topic))
            for message in reader.read(topic, number, *reader.bounds(topic, number))
        ]


def wait_for_markers(config: dict[str, Any], topic: str, partition: int) -> None:
    """Wait until a committed transaction can be read: brokers write its markers after they have answered."""
    place, until = confluent_kafka.TopicPartition(topic, partition), time.monotonic() + 30
    consumers = [
        confluent_kafka.Consumer({**config, "group.id": "tests", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    ]
    try:
        while True:
            stable, end = (consumer.get_watermark_offsets(place, 30)[1] for consumer in consumers)
            if stable == end:
                return
            assert time.monotonic() < until
    finally:
        for consumer in consumers:
            consumer.close()


def test_records_are_copied_with_time_and_index(config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
    source, target = new_topic(3), new_topic(3)
    records: list[dict[str, Any]] = [
        {
            "value": b"%d" % number,
            "key": b"k%d" % number,
            "partition": number % 3,
            "timestamp": 1_700_000_000_000 + number,
        }
        for number in range(30)
    ]
    records += [
        {"value": None, "key": b"dead", "partition": 0},
        {"value": PAYLOAD, "partition": 0, "headers": [("a", b"1"), ("a", None)]},
        {"value": b"", "partition": 0},
    ]
    fill(source, records)
    before = time.time_ns() // 1_000_000
    told: list[int] = []
    assert stamp(config, source, target, until_end=True, progress=told.append) == 33
    assert told[-1] == 33
    written, copied = read(config, source), read(config, target)
    assert [(m.partition(), m.key(), m.headers(), m.timestamp()) for m in copied] == [
        (m.partition(), m.key(), m.headers(), m.timestamp()) for m in written
    ]
    assert [None if m.value() is None else bytes(strip(m.value())) for m in copied] == [m.value() for m in written]
    for number in range(3):
        found = [peek(m.value()) for m in copied if m.partition() == number and m.value() is not None]
        assert [item.index for item in found if item] == list(range(len(found)))
        assert all(item and item.broker_timestamp and before <= item.broker_timestamp for item in found)
    report = check(config, target)
    assert (report.records, report.counts) == (33, {})


@pytest.mark.full
def test_it_goes_on_where_it_was(config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
    source, target = new_topic(), new_topic()
    assert stamp(config, source, target, until_end=True) == 0
    for start in range(0, 40, 10):
        fill(source, [{"value": b"%d" % number} for number in range(start, start + 10)])
        assert stamp(config, source, target, until_end=True) == 10
    fill(source, [{"value": None, "key": b"x"}] * 50)  # the last frame lies far back
    assert stamp(config, source, target, until_end=True) == 50
    fill(source, [{"value": b"40"}])
    assert stamp(config, source, target, until_end=True) == 1
    values = [message.value() for message in read(config, target) if message.value() is not None]
    assert [bytes(strip(value)) for value in values] == [b"%d" % number for number in range(41)]
    assert [found.index for value in values if (found := peek(value))] == list(range(41))


@pytest.mark.full
def test_killed_again_and_again_there_is_no_gap_and_no_repeat(
    config: dict[str, Any], new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    """Five processes, one after the other; enough records that each is killed amid its work."""
    source, target = new_topic(2), new_topic(2)
    count = 60_000
    fill(source, [{"value": b"%d" % number, "partition": number % 2} for number in range(count)])
    file = tmp_path / "client.toml"
    file.write_text("".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items()))
    command = [*COMMAND, "--config", str(file), "--from", source, "--to", target]
    killed = 0
    with PartitionReader(config, "tests", failure=StampError) as reader:
        for _ in range(4):
            before = sum(reader.bounds(target, number)[1] for number in (0, 1))
            process = subprocess.Popen([*command, "--until-end"], stderr=subprocess.PIPE)
            try:
                wait_for(
                    lambda seen=before, running=process: (  # type: ignore[misc]
                        sum(reader.bounds(target, number)[1] for number in (0, 1)) > seen or running.poll() is not None
                    )
                )
                killed += process.poll() is None
            finally:
                process.kill()
                _, said = process.communicate(timeout=30)
            assert b"Error" not in said, said
    assert killed >= 3
    assert stamp(config, source, target, until_end=True) < count
    report = check(config, target)
    assert (report.records, report.counts) == (count, {})
    for number in (0, 1):
        values = [message.value() for message in read(config, target) if message.partition() == number]
        assert [int(bytes(strip(value))) for value in values] == list(range(number, count, 2))
        assert [found.index for value in values if (found := peek(value))] == list(range(count // 2))


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_it_stops_on_request(config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
    source, target = new_topic(), new_topic()
    fill(source, [{"value": b"1"}])
    stop = threading.Event()
    assert stamp(config, source, target, stop=stop, progress=lambda _: stop.set()) == 1


def test_a_newer_relay_takes_over(config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
    source, target = new_topic(), new_topic()
    fill(source, [{"value": b"1"}])
    errors: list[StampError] = []
    started = threading.Event()

    def older() -> None:
        try:
            stamp(config, source, target, progress=lambda _: started.set())
        except StampError as error:
            errors.append(error)

    thread = threading.Thread(target=older)
    thread.start()
    assert started.wait(60)
    assert stamp(config, source, target, until_end=True) == 0
    fill(source, [{"value": b"2"}])
    thread.join(60)
    assert not thread.is_alive()
    assert "another relay of this name has taken over" in str(errors[0])
    assert stamp(config, source, target, until_end=True) == 1
    assert check(config, target).counts == {}


@pytest.mark.full
def test_an_emptied_target_keeps_its_index(config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
    source, target = new_topic(), new_topic()
    fill(source, [{"value": b"%d" % number} for number in range(5)])
    stamp(config, source, target, until_end=True)
    with PartitionReader(config, "tests", failure=StampError) as reader:
        _, end = reader.bounds(target, 0)
    admin = AdminClient(config)
    (future,) = admin.delete_records([confluent_kafka.TopicPartition(target, 0, end)]).values()
    future.result(30)
    fill(source, [{"value": b"5"}])
    stamp(config, source, target, until_end=True)
    (message,) = read(config, target)
    found = peek(message.value())
    assert found is not None
    assert found.index == 5


class TestWhatIsRefused:
    def test_a_target_with_foreign_records(self, config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
        source, target = new_topic(), new_topic()
        fill(target, [{"value": b"not framed"}])
        with pytest.raises(StampError, match="its last record has no index"):
            stamp(config, source, target, until_end=True)

    def test_a_target_whose_source_is_unknown(self, config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
        source, target = new_topic(), new_topic()
        fill(source, [{"value": b"1"}])
        stamp(config, source, target, until_end=True)
        with pytest.raises(StampError, match="up to index 0, but the offset to continue from is unknown"):
            stamp(config, source, target, until_end=True, transactional_id=f"other-{source}")

    def test_an_index_of_another_writer(self, config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
        source, target = new_topic(), new_topic()
        fill(source, [{"value": b"1"}])
        stamp(config, source, target, until_end=True)
        fill(target, [{"value": frame(b"foreign", index=9)}])
        with pytest.raises(StampError, match="its last index is 9, but this relay wrote up to 0"):
            stamp(config, source, target, until_end=True)

    def test_topics_that_do_not_fit(self, config: dict[str, Any], new_topic: NewTopic) -> None:
        source = new_topic(2)
        for target, message in (
            (source, "into itself"),
            (new_topic(1), "has 1 partitions"),
            ("no-such", "cannot be read"),
        ):
            with pytest.raises(StampError, match=message):
                stamp(config, source, target, until_end=True)

    def test_a_record_that_does_not_fit(self, config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
        source, target = new_topic(), new_topic(1, {"max.message.bytes": "2000"})
        fill(source, [{"value": b"small"}, {"value": os.urandom(3000)}])
        with pytest.raises(StampError, match="a record is too large"):
            stamp(config, source, target, until_end=True)
        assert read(config, target) == []

    @pytest.mark.full
    def test_a_transaction_is_not_left_open(
        self, config: dict[str, Any], new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source, target = new_topic(), new_topic()
        fill(source, [{"value": b"1"}])

        def fail(_relay: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("serde_chain.stamp.relay._Relay._commit", fail)
            with pytest.raises(KeyboardInterrupt):
                stamp(config, source, target, until_end=True)
        with PartitionReader(config, "tests", failure=StampError) as reader:
            # A reader of committed records would wait here for an open transaction.
            wait_for(lambda: reader.bounds(target, 0)[1] == 2)
        assert read(config, target) == []
        assert stamp(config, source, target, until_end=True) == 1
        assert check(config, target).counts == {}

    def test_a_broker_that_does_not_answer(self) -> None:
        with pytest.raises(StampError, match=r"the broker did not answer: .*Check bootstrap\.servers"):
            stamp({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, "a", "b", until_end=True, timeout_s=1)

    def test_a_wrong_configuration(self) -> None:
        with pytest.raises(ConfigError, match=r"bootstrap\.servres"):
            stamp({"bootstrap.servres": "127.0.0.1:1"}, "a", "b", until_end=True, timeout_s=1)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.full
def test_the_command(config: dict[str, Any], new_topic: NewTopic, fill: Fill, tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    fill(source, [{"value": b"%d" % number} for number in range(10)])
    file = tmp_path / "client.toml"
    file.write_text("".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items()))
    done = run("--config", file, "--from", source, "--to", target, "--until-end")
    assert (done.returncode, done.stdout) == (0, "10 records relayed\n"), done.stderr
    assert run("--config", file, "--check", target).stdout == "10 records, 0 findings\n"
    fill(target, [{"value": frame(b"", index=12)}, {"value": b"unframed"}])
    checked = run("--config", file, "--check", target, "--json")
    assert checked.returncode == 1
    assert json.loads(checked.stdout)["counts"] == {"gap": 1, "unframed": 1}
    assert "the index is 12, expected 10" in run("--config", file, "--check", target).stdout
    for wrong in (("--from", source), ("--check", target, "--to", target), ()):
        assert run("--config", file, *wrong).returncode == 2


@pytest.mark.full
def test_a_record_that_the_broker_refuses_at_first(config: dict[str, Any], new_topic: NewTopic, fill: Fill) -> None:
    source, target = new_topic(1), new_topic(1)
    fill(source, [{"value": b"%d" % number} for number in range(5)])
    with refusing(config["bootstrap.servers"], target) as servers:
        batches = {"linger.ms": 0, "batch.num.messages": 1}  # each record is one
        assert stamp({**config, **batches, "bootstrap.servers": servers}, source, target, until_end=True) == 5
    assert [bytes(strip(message.value())) for message in read(config, target)] == [
        b"%d" % number for number in range(5)
    ]
    assert check(config, target).counts == {}
