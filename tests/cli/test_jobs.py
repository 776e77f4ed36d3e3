"""``serde-chain sweep`` and ``audit``, as an operator calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from payload_stores import open_store
from payload_stores.base import SupportsDelete, SupportsList
from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }


@pytest.fixture
def file(config: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "client.toml"
    path.write_text("".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items()))
    return path


@pytest.fixture
def orphan(config: dict[str, Any], topic: str) -> str:
    with Producer(config) as producer:
        producer.produce(topic, b"x" * 500)
    return open_store("local", config).publish(topic, b"y" * 300)


def count(config: dict[str, Any], topic: str) -> int:
    store = open_store("local", config)
    assert isinstance(store, SupportsList)
    return len(list(store.list(topic)))


@pytest.mark.usefixtures("orphan")
def test_a_dry_run(config: dict[str, Any], file: Path, topic: str) -> None:
    shown = run("sweep", file, topic, "--grace", "0s")
    assert "1 of these is in no record" in shown.stdout
    assert "nothing was deleted; --delete would free 300 bytes" in shown.stdout
    assert "sweep: the grace period of 0 ms is shorter than" in shown.stderr
    assert count(config, topic) == 2


def test_orphans_are_deleted(config: dict[str, Any], file: Path, topic: str, orphan: str, tmp_path: Path) -> None:
    manifest = tmp_path / "deleted.jsonl"
    done = run(
        "sweep", file, topic, "--grace", "0s", "--delete", "--manifest", manifest, "--json", "--master", "local[1]"
    )
    said = json.loads(done.stdout.splitlines()[-1])
    warnings = said.pop("warnings")
    assert len(warnings) == 2
    assert said == {"live": 1, "listed": 2, "orphans": 1, "deleted": 1, "bytes": 300, "manifest": str(manifest)}
    assert [json.loads(line)["reference"] for line in manifest.read_text().splitlines()] == [orphan]
    assert count(config, topic) == 1


def test_audit(config: dict[str, Any], file: Path, topic: str) -> None:
    with Producer(config) as producer:
        producer.produce(topic, b"x" * 500)
        producer.produce(topic, b"y" * 500)
    store = open_store("local", config)
    assert isinstance(store, SupportsList)
    assert isinstance(store, SupportsDelete)
    [gone, _] = (info.reference for info in store.list(topic))
    store.delete(gone)
    said = json.loads(run("audit", file, topic, "--json", code=1).stdout.splitlines()[-1])
    assert (said["references"], said["problems"]) == (2, 1)
    assert (said["first"][0]["reference"], said["first"][0]["kind"]) == (gone, "PayloadNotFoundError")


def test_what_cannot_be_swept(file: Path, topic: str) -> None:
    failed = run("sweep", file, f"{topic}-nowhere", code=1)
    assert f"topic={topic}-nowhere" in failed.stderr
    assert "is not a number with a unit" in run("sweep", file, topic, "--grace", "24", code=2).stderr
    assert "is not KEY=VALUE" in run("sweep", file, topic, "--conf", "spark.ui", code=2).stderr
    assert "Missing argument 'TOPIC...'" in run("sweep", file, code=2).stderr
