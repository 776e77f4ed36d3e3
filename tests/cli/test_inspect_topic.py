"""``serde-chain inspect`` as a user calls it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from serde_chain import Producer
from serde_chain.cli.inspect_topic import ShownParts, print_records
from serde_chain.cli.selection import Selection
from serde_chain.config import load
from serde_chain.errors import ContextualError
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run
from tests.conftest import NewTopic


@pytest.fixture
def filled(broker: KafkaBroker, topic: str, tmp_path: Path) -> tuple[str, Path]:
    """A topic with a small record, a large one, and a tombstone, and the configuration for it."""
    config = {
        **broker.client_config(),
        "key.serializer": "string",
        "value.serializers": "bytes, zstd, large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
        "large.message.threshold.bytes": "100",
    }
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
    with Producer(path) as producer:
        producer.produce(topic, b"small", "a", headers=[("[/kind]", b"[/bold]"), ("raw", b"\xff")])
        producer.produce(topic, os.urandom(1000), "b")
        producer.produce(topic, None, "b")
    return topic, path


def inspected(topic: str, path: Path, *more: object) -> list[dict[str, Any]]:
    output = run("inspect", path, topic, "--json", *more).stdout
    return [json.loads(line) for line in output.splitlines()]


def test_inspect_shows_records_without_downloading(filled: tuple[str, Path], tmp_path: Path) -> None:
    topic, path = filled
    [payload] = [found for found in (tmp_path / "payloads").rglob("*") if found.is_file()]
    size = payload.stat().st_size
    payload.unlink()
    small, large, tombstone = inspected(topic, path, "--count", 3)
    assert (small["topic"], small["partition"], small["offset"]) == (topic, 0, 0)
    assert small["value"]["is"] == "inline, compressed with zstd"
    assert small["key"]["begins with"] == "a"
    assert small["headers"] == [["[/kind]", "[/bold]"], ["raw", "ff"]]
    assert large["value"]["is"] == "a reference (kip1159)"
    assert large["value"]["payload bytes"] == size
    assert large["value"]["reference"].endswith(payload.name)
    assert tombstone["value"] == {"is": "a tombstone"}
    assert "[/bold]" in run("inspect", path, topic).stdout
    missing = run("inspect", path, topic, "--payload", path.parent / "missing" / "file", code=2).stderr
    assert "does not exist" in missing
    when = datetime.fromtimestamp(large["timestamp_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    assert when.replace("+00:00", "Z") in run("inspect", path, topic, "--offset", 1).stdout
    shown = run("inspect", path, topic, "--offset", 1).stdout
    assert large["value"]["reference"] in shown.replace("\n", "")


def test_inspect_recognizes_what_stages_wrote(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f'"bootstrap.servers" = "{broker.bootstrap_servers}"\n')
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "value.serializers": "bytes, encrypt, large-message, entry-metadata",
        "encryption.keys": {"2026": bytes(32)},
        "entry.metadata.index": True,
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": 1000,
        "large.message.format": "bakdata-headers",
        "large.message.compression": "gzip",
    }
    with Producer(config) as producer:
        for value in (b"small", bytes(2000)):
            producer.produce(topic, value, partition=0)
        producer.flush(30)
    raw = confluent_kafka.Producer(broker.client_config())
    raw.produce(topic, b"\x0e\x02\x00")
    raw.flush(30)
    small, large, broken = (record["value"] for record in inspected(topic, path, "--count", 3))
    assert small["is"] == "inline, encrypted with the key 2026"
    assert (small["index"], large["index"]) == (0, 1)
    assert small["time of entry, ms"] <= large["time of entry, ms"]
    assert large["is"] == "a reference (bakdata-headers)"
    assert large["compression"] == "gzip"
    assert broken["is"].startswith("malformed entry metadata: ")


def test_a_topic_of_transactions(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f'"bootstrap.servers" = "{broker.bootstrap_servers}"\n')
    producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": f"inspect-{topic}"})
    producer.init_transactions(60)
    for value in (b"0", b"1", b"2"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.commit_transaction(60)
    assert [record["offset"] for record in inspected(topic, path, "--count", 3)] == [0, 2, 4]
    assert [record["offset"] for record in inspected(topic, path, "--offset", 1, "--count", 9)] == [2, 4]
    done = run("inspect", path, topic, "--offset", 5, code=1)
    assert "no record has this offset or a later one, up to 6" in done.stderr


def test_a_range_is_one_assignment(filled: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    topic, path = filled
    made: list[Any] = []

    class Counting(confluent_kafka.Consumer):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.assigned = 0
            made.append(self)

        def assign(self, partitions: Any) -> None:
            self.assigned += 1
            super().assign(partitions)

    monkeypatch.setattr(confluent_kafka, "Consumer", Counting)
    print_records(load(path), topic, Selection(0, 0, count=3), ShownParts(as_json=True), timeout=30)
    assert [consumer.assigned for consumer in made] == [1]


def test_missing_things_have_their_own_messages(
    broker: KafkaBroker, filled: tuple[str, Path], new_topic: NewTopic
) -> None:
    topic, path = filled

    def error(topic: str, partition: int = 0, first: int | None = None) -> str:
        with pytest.raises(ContextualError) as caught:
            print_records(load(path), topic, Selection(partition, first, count=1), ShownParts(as_json=True), timeout=30)
        return str(caught.value)

    assert "the partition ends before it: its last offset is 2" in error(topic, first=7)
    assert "the topic has 1 partition, counted from 0" in error(topic, partition=3)
    assert "Unknown topic" in error("no-such-topic")
    assert "the partition has no records" in error(new_topic())
    admin = AdminClient(broker.client_config())
    (future,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    future.result(30)
    assert "the first record still present has the offset 1" in error(topic, first=0)
    assert [record["offset"] for record in inspected(topic, path)] == [1]
    done = run("inspect", path, topic, "--offset", 7, code=1)
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: the partition ends before")
    assert done.stdout == ""


@pytest.mark.full
def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = 127.0.0.1:1\n")
    done = run("inspect", path, "t", "--timeout", 2, code=1)
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: the broker did not answer")
    assert "Connection refused" in line
    assert "bootstrap.servers" in line


def test_fields_in_the_store_are_shown_without_decoding(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    config = {
        **broker.client_config(),
        "value.serializers": "large-fields, json",
        "large.fields.paths": "cutout, stamps[]",
        "large.fields.min.bytes": 100,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }
    with Producer(config) as producer:
        producer.produce(topic, {"id": 1, "cutout": "x" * 1000, "stamps": ["small", "y" * 200]})
        producer.produce(topic, {"id": 2, "cutout": "small"})
    broken = confluent_kafka.Producer(broker.client_config())
    broken.produce(topic, b"{}", headers=[("large-fields", b"[{")])
    broken.flush(30)
    for payload in (tmp_path / "payloads").rglob("*"):
        if payload.is_file():
            payload.unlink()
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
    large, small, malformed = inspected(topic, path, "--count", 3)
    assert [(each["path"], each["payload bytes"]) for each in large["value"]["fields"]] == [
        ("cutout", 1000),
        ("stamps[1]", 200),
    ]
    assert all(each["payload digest"].startswith("sha256:") for each in large["value"]["fields"])
    assert large["value"]["is"] == "inline; 2 of its fields are in the store"
    assert small["value"]["is"] == "inline"
    assert "fields" not in small["value"]
    assert malformed["value"]["fields"].startswith("the header large-fields is malformed")
    shown = " ".join(run("inspect", path, topic).stdout.split())
    assert "value: field stamps[1]" in shown
    assert "1,000 bytes in the store, sha256:" in shown
    assert "is malformed" in run("inspect", path, topic, "--offset", 2).stdout
