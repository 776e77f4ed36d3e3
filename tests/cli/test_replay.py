"""``serde-chain replay``: dead letters back into their topics."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from serde_chain import ConfigError, Consumer
from serde_chain.clients.confluent.replay import replay
from serde_chain.errors import ReplayError
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run, run_process
from tests.refusing_broker import refusing

if TYPE_CHECKING:
    from tests.conftest import NewTopic

VALUES = [b"bad 0", b"1", b"bad 2", b"3", b"bad 4"]


def records(broker: KafkaBroker, topic: str, count: int) -> list[Any]:
    """The records of a topic, partition by partition; a few more than expected, if there are."""
    consumer = confluent_kafka.Consumer({**broker.client_config(), "group.id": "look", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Any] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume(count, 0.5)
    found += consumer.consume(10, 0.3)
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def send(broker: KafkaBroker, topic: str, *values: bytes | None, partition: int = 0, headers: Any = None) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50})
    for number, value in enumerate(values):
        own = [("n", b"%d" % number)] if headers is None else headers
        producer.produce(topic, value, b"key", partition=partition, headers=own, timestamp=1_000_000 + number)
    assert producer.flush(30) == 0


def bury(broker: KafkaBroker, topic: str, dead: str, count: int) -> None:
    """Read a topic, with dead letters."""
    config = {
        **broker.client_config(),
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "value.deserializer": "json",
        "serde.error.policy": "dead-letter",
        "serde.dead.letter.topic": dead,
    }
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        until = time.monotonic() + 60
        while consumer.skipped < count and time.monotonic() < until:
            consumer.poll(0.5)
        assert consumer.skipped == count


@pytest.fixture
def file(broker: KafkaBroker, tmp_path: Path) -> Path:
    path = tmp_path / "client.toml"
    path.write_text(
        "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in broker.client_config().items())
        + '"value.deserializer" = "json"\n'
    )
    return path


def test_dead_letters_go_back_as_they_were(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    topic, dead = new_topic(2), new_topic(1)
    send(broker, topic, *VALUES, partition=1)
    bury(broker, topic, dead, 3)
    shown = run_process("replay", file, dead, "--dry-run").stdout
    assert f"3 would go back in {topic}" in shown
    assert "nothing was written" in shown
    assert json.loads(run_process("replay", file, dead, "--to", topic, "--limit", 1, "--json").stdout) == {
        "replayed": {topic: 1}, "left": [], "dry_run": False
    }  # fmt: skip
    one = run_process("replay", file, dead, "--to", topic, "--limit", 1)
    assert (one.stdout, one.stderr) == (f"1 is back in {topic}\n1 dead letter replayed\n", "")
    assert "1 dead letter replayed" in run_process("replay", file, dead, "--to", topic).stdout  # it goes on
    assert "0 dead letters replayed" in run_process("replay", file, dead, "--to", topic).stdout
    came = records(broker, topic, 8)[5:]
    assert [(each.partition(), each.key(), each.value(), each.headers(), each.timestamp()[1]) for each in came] == [
        (1, b"key", b"bad %d" % number, [("n", b"%d" % number)], 1_000_000 + number) for number in (0, 2, 4)
    ]


def test_what_does_not_say_where_it_came_from_is_left(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    topic, dead = new_topic(1), new_topic(1)
    send(broker, dead, b"stray")
    send(broker, dead, b"no number", headers=[
        ("serde-chain-error-topic", topic), ("serde-chain-error-partition", "x"), ("serde-chain-error-offset", "1"),
    ])  # fmt: skip
    send(broker, dead, b"its own", headers=[
        ("serde-chain-error-topic", dead), ("serde-chain-error-partition", "0"), ("serde-chain-error-offset", "1"),
    ])  # fmt: skip
    send(broker, dead, None, headers=[
        ("serde-chain-error-topic", topic), ("serde-chain-error-partition", "7"), ("serde-chain-error-offset", "1"),
    ])  # fmt: skip
    shown = json.loads(run("replay", file, dead, "--to", topic, "--json", code=1).stdout)
    assert shown["replayed"] == {topic: 1}
    assert [(left["offset"], left["why"]) for left in shown["left"]] == [
        (0, "there is no header serde-chain-error-topic"),
        (1, "the header serde-chain-error-partition is 'x' instead of a number"),
        (2, "it comes from this topic itself"),
    ]
    [tombstone] = records(broker, topic, 1)  # of a partition that is no longer there
    assert (tombstone.value(), tombstone.headers()) == (None, None)
    assert len(records(broker, dead, 4)) == 4


def test_another_topic_is_called_into_question(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    topic = new_topic(1)
    send(broker, topic, b"a record", b"another")
    assert f"is {topic} the dead-letter topic?" in run("replay", file, topic, "--dry-run", code=1).stdout


def letter(broker: KafkaBroker, dead: str, to: str, value: bytes, **more: str) -> None:
    """A dead letter of another writer."""
    said = {"topic": to, "partition": "0", "offset": "1", **more}
    send(broker, dead, value, headers=[(f"serde-chain-error-{name}", text) for name, text in said.items()])


@pytest.mark.full
def test_the_operator_names_the_topics(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    """Otherwise a writer of dead letters would write wherever the operator may."""
    topic, other, payments, dead = new_topic(1), new_topic(1), new_topic(1), new_topic(1)
    for number, to in enumerate((topic, payments, other, topic)):
        letter(broker, dead, to, b"%d" % number)
    assert "no topic is named" in run("replay", file, dead, code=1).stderr
    assert json.loads(run("replay", file, dead, "--dry-run", "--json").stdout)["replayed"] == {
        topic: 2, payments: 1, other: 1
    }  # fmt: skip
    dry = json.loads(run("replay", file, dead, "--to", topic, "--dry-run", "--json", code=1).stdout)
    assert (dry["replayed"], len(dry["left"])) == ({topic: 2}, 2)
    mistaken = run("replay", file, dead, "--to", dead, "--dry-run", code=1).stdout
    assert f"4 of these name topics without --to: {', '.join(sorted((topic, payments, other)))}\n" in mistaken
    assert "the dead-letter topic?" not in mistaken
    assert "--reset-offsets" not in mistaken  # a dry run moves no position
    missing = run("replay", file, dead, "--to", f"{topic}-nowhere", code=1).stderr
    assert f"{topic}-nowhere" in missing
    shown = run("replay", file, dead, "--to", topic, "--to", other, code=1).stdout
    assert f"partition 0, offset 1: it names the topic {payments}, which is not among those" in shown
    assert f"1 of these name topics without --to: {payments}\n" in shown
    assert f"--group serde-chain-replay-{dead} --topic {dead}:0 --reset-offsets --to-offset 1 --execute" in shown
    assert [each.value() for each in records(broker, topic, 2)] == [b"0", b"3"]
    assert [each.value() for each in records(broker, other, 1)] == [b"2"]
    assert records(broker, payments, 0) == []
    with pytest.raises(ConfigError, match="to is a text"):
        replay(file, dead, to=topic)


def test_a_letter_that_cannot_go_back_does_not_block_those_behind_it(
    broker: KafkaBroker, new_topic: "NewTopic", file: Path
) -> None:
    small, dead = new_topic(1, {"max.message.bytes": "1000"}), new_topic(1)
    letter(broker, dead, small, b"first")
    letter(broker, dead, small, b"x" * 2000)
    letter(broker, dead, small, b"", dropped="value, headers")
    letter(broker, dead, small, b"of a time beyond all", timestamp="9" * 19)
    letter(broker, dead, small, b"last")
    shown = json.loads(run("replay", file, dead, "--to", small, "--json", code=1).stdout)
    assert shown["replayed"] == {small: 2}
    assert [left["offset"] for left in shown["left"]] == [1, 2, 3]
    assert "too large" in shown["left"][0]["why"].lower()
    assert shown["left"][1]["why"] == (
        f"it lacks the record's value and headers; the record was in {small}, partition 0, offset 1"
    )
    assert [each.value() for each in records(broker, small, 2)] == [b"first", b"last"]
    assert "0 dead letters replayed" in run("replay", file, dead, "--to", small).stdout


@pytest.mark.full
def test_a_topic_that_may_not_be_written_to_stops_it(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    """Nothing is passed over that the operator can mend."""
    topic, dead = new_topic(1), new_topic(1)
    letter(broker, dead, topic, b"first")
    broker.allow("alice", ["READ", "DESCRIBE"], topic=dead)
    broker.allow("alice", ["DESCRIBE"], topic=topic)
    broker.allow("alice", ["READ"], group=f"serde-chain-replay-{dead}")
    with pytest.raises(ReplayError, match="cannot be put back") as caught:
        replay(broker.client_config("alice"), dead, to=[topic])
    assert caught.value.offset == 0
    broker.allow("alice", ["WRITE"], topic=topic)
    assert replay(broker.client_config("alice"), dead, to=[topic]).replayed == {topic: 1}
    assert run("replay", file, f"{topic}-nowhere", "--to", topic, code=1).stderr.strip().startswith("Error: ")


def test_one_that_the_broker_refuses_at_first(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic, dead = new_topic(1), new_topic(1)
    names = {"topic": topic, "partition": "0", "offset": "1"}
    send(broker, dead, *VALUES, headers=[(f"serde-chain-error-{name}", said) for name, said in names.items()])
    client = broker.client_config()
    with refusing(str(client["bootstrap.servers"]), topic) as servers:
        config = {**client, "bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 1}
        with pytest.raises(ReplayError, match="may be in no log"):
            replay(config, dead, to=[topic])
        replay(config, dead, to=[topic])
    assert {each.value() for each in records(broker, topic, 5)} == set(VALUES)


def test_a_fatal_error_of_the_client_names_the_letter(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    """The client reports records while its exception is set already; no call of Python's may meet that."""
    topic, dead = new_topic(1), new_topic(1)
    names = {"topic": topic, "partition": "0", "offset": "1"}
    send(broker, dead, *VALUES, headers=[(f"serde-chain-error-{name}", said) for name, said in names.items()])
    client = broker.client_config()
    code = confluent_kafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    with refusing(str(client["bootstrap.servers"]), topic, code) as servers:
        config = {**client, "bootstrap.servers": servers, "linger.ms": 0}
        with pytest.raises(ReplayError, match="sequence desynchronization") as caught:
            replay(config, dead, to=[topic])
        assert caught.value.offset == 0
        replay(config, dead, to=[topic])
    assert {each.value() for each in records(broker, topic, 5)} == set(VALUES)


@pytest.mark.full
def test_the_present_time_may_be_given(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    topic, dead = new_topic(1), new_topic(1)
    send(broker, topic, VALUES[0])
    bury(broker, topic, dead, 1)
    run("replay", file, dead, "--to", topic, "--now")
    before, after = records(broker, topic, 2)
    assert before.timestamp()[1] == 1_000_000
    assert after.timestamp()[1] > 1_700_000_000_000
