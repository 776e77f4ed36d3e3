"""``serde-chain replay``: dead letters back into their topics."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from serde_chain import Consumer
from serde_chain.clients.confluent.replay import replay
from serde_chain.errors import ReplayError
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run
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
    shown = run("replay", file, dead, "--dry-run").stdout
    assert f"3 would go back in {topic}" in shown
    assert "nothing was written" in shown
    assert json.loads(run("replay", file, dead, "--limit", 1, "--json").stdout) == {
        "replayed": {topic: 1}, "left": [], "dry_run": False
    }  # fmt: skip
    one = run("replay", file, dead, "--limit", 1)
    assert (one.stdout, one.stderr) == (f"1 is back in {topic}\n1 dead letter replayed\n", "")
    assert "1 dead letter replayed" in run("replay", file, dead).stdout  # it goes on
    assert "0 dead letters replayed" in run("replay", file, dead).stdout
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
    shown = json.loads(run("replay", file, dead, "--json", code=1).stdout)
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


def test_a_topic_that_is_not_there_or_refuses_is_told_and_tried_again(
    broker: KafkaBroker, new_topic: "NewTopic", file: Path
) -> None:
    topic, dead = new_topic(1), new_topic(1)

    def letter(to: str, value: bytes) -> None:
        headers = [("topic", to), ("partition", "0"), ("offset", "1")]
        send(broker, dead, value, headers=[(f"serde-chain-error-{name}", said) for name, said in headers])

    letter(topic, b"first")
    letter(f"{topic}-later", b"second")
    letter(topic, b"third")
    missing = run("replay", file, dead, code=1).stderr
    assert "cannot be put back" in missing
    assert f"{topic}-later" in missing
    assert "offset=1" in missing
    assert [each.value() for each in records(broker, topic, 1)] == [b"first"]
    broker.create_topic(f"{topic}-later")
    assert "2 dead letters replayed" in run("replay", file, dead).stdout
    assert [each.value() for each in records(broker, topic, 2)] == [b"first", b"third"]
    assert [each.value() for each in records(broker, f"{topic}-later", 1)] == [b"second"]
    small = new_topic(1, {"max.message.bytes": "1000"})
    letter(small, b"x" * 2000)
    with pytest.raises(ReplayError, match=r"(?i)too large") as caught:
        replay(file, dead)
    assert caught.value.offset == 3
    assert run("replay", file, f"{topic}-nowhere", code=1).stderr.strip().startswith("Error: ")


def test_one_that_the_broker_refuses_at_first(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    topic, dead = new_topic(1), new_topic(1)
    names = {"topic": topic, "partition": "0", "offset": "1"}
    send(broker, dead, *VALUES, headers=[(f"serde-chain-error-{name}", said) for name, said in names.items()])
    client = broker.client_config()
    with refusing(str(client["bootstrap.servers"]), topic) as servers:
        config = {**client, "bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 1}
        with pytest.raises(ReplayError, match="may be in no log"):
            replay(config, dead)
        replay(config, dead)
    assert {each.value() for each in records(broker, topic, 5)} == set(VALUES)


def test_the_present_time_may_be_given(broker: KafkaBroker, new_topic: "NewTopic", file: Path) -> None:
    topic, dead = new_topic(1), new_topic(1)
    send(broker, topic, VALUES[0])
    bury(broker, topic, dead, 1)
    run("replay", file, dead, "--now")
    before, after = records(broker, topic, 2)
    assert before.timestamp()[1] == 1_000_000
    assert after.timestamp()[1] > 1_700_000_000_000
