"""Headers whose names are not UTF-8: confluent_kafka raises SystemError at them, then ends the process.

So what reads them runs in a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from payload_stores.message_headers import NO_NAME, headers_of
from serde_chain.testing.services import KafkaBroker
from tests.hostile import write_header_names

if TYPE_CHECKING:
    from tests.conftest import NewTopic

RECORDS = [
    (b"k", b"1", [(b"good", b"a"), (b"\xff\xfe", b"b"), (b"\xc3", b""), ("é".encode(), b"c")]),
    (b"k", b"{", [(b"\xff", b"d")]),
    (b"k", b"3", []),
]
# Python calls the client in another way once it has read some.
BEFORE = [(b"k", b"0", [(b"good", b"a")])] * 30
READ = [("good", b"a"), (NO_NAME, b"b"), (NO_NAME, b""), ("é", b"c")]

PROGRAM = """
import sys
from ast import literal_eval
from serde_chain import Consumer
from confluent_kafka import TopicPartition

topic, dead, config, way = literal_eval(sys.stdin.read())
found = []
with Consumer(config) as consumer:
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not found or found[-1][0] != 3:
        if way == "consume_arrow":
            for row in consumer.consume_arrow(10, 1).to_pylist():
                headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
                found.append((int(row["value"]), headers))
        else:
            read = consumer.consume(10, 1) if way == "consume" else [consumer.poll(1)]
            found += [(message.value(), message.headers()) for message in read if message is not None]
    consumer.assign([TopicPartition(dead, 0, 0)])
print([found, consumer.skipped])
"""


@pytest.mark.full
@pytest.mark.parametrize("way", ["poll", "consume", "consume_arrow"])
def test_names_that_are_not_utf_8_stop_no_consumer(broker: KafkaBroker, new_topic: "NewTopic", way: str) -> None:
    topic, dead = new_topic(), new_topic()
    write_header_names(broker, topic, BEFORE + RECORDS)
    config = {
        **broker.client_config(),
        "group.id": topic,
        "value.deserializers": "large-message, json",
        "large.message.payload.store.class": "memory",
        "serde.error.policy": "dead-letter",
        "serde.dead.letter.topic": dead,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=repr((topic, dead, config, way)),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    none: list[object] | None = [] if way == "consume_arrow" else None
    assert done.stdout.strip() == repr([[(0, READ[:1])] * len(BEFORE) + [(1, READ), (3, none)], 1])


def test_commands_read_them_as_well(broker: KafkaBroker, new_topic: "NewTopic", tmp_path: Path) -> None:
    topic = new_topic()
    write_header_names(broker, topic, RECORDS)
    program = "from serde_chain.cli import main; main()"
    config = tmp_path / "client.toml"
    config.write_text(f'"bootstrap.servers" = "{broker.bootstrap_servers}"')
    command = [sys.executable, "-c", program, "inspect", "--json", "--offsets", "0..2", str(config), topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert [name for name, _ in json.loads(done.stdout.splitlines()[0])["headers"]] == [name for name, _ in READ]


def test_what_else_the_client_raises_comes_out() -> None:
    class Message:
        def headers(self) -> None:
            raise SystemError("another")

    with pytest.raises(SystemError, match="another"):
        headers_of(Message())


@pytest.mark.full
def test_the_relay_copies_them(broker: KafkaBroker, new_topic: "NewTopic") -> None:
    """Without the names, which the client does not tell."""
    source, target = new_topic(), new_topic()
    write_header_names(broker, source, BEFORE + RECORDS)
    program = """
import sys
from ast import literal_eval
from serde_chain import Consumer
from serde_chain.stamp import stamp

source, target, config = literal_eval(sys.stdin.read())
print(stamp(config, source, target, until_end=True))
with Consumer({**config, "group.id": target, "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe([target])
    found = []
    while len(found) < 33:
        found += [message.headers() for message in consumer.consume(100, 1)]
print(found[30:])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=repr((source, target, broker.client_config())),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines() == ["33", repr([READ, [(NO_NAME, b"d")], None])], done.stderr[-2000:]
