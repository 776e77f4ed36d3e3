"""``serde-chain sweep``, ``audit`` and ``migrate``, as an operator calls it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from payload_stores import open_store
from payload_stores.base import SupportsDelete, SupportsList
from serde_chain import Producer
from serde_chain.cli import jobs
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import COMMAND, environment, run, run_process

if TYPE_CHECKING:
    from tests.conftest import NewTopic

pytestmark = pytest.mark.full


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


by_both = pytest.mark.parametrize("engine", ["local", "spark"])
# A process with Spark each, for what `tests/jobs` tests of both engines, and the tests below of the command.
by_both_at_night = pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.nightly)])


@by_both_at_night
@pytest.mark.usefixtures("orphan")
def test_a_dry_run(config: dict[str, Any], file: Path, topic: str, engine: str) -> None:
    """With Spark, a process that starts it."""
    shown = run_process("sweep", file, topic, "--grace", "0s", "--engine", engine)
    assert "1 of these is in no record" in shown.stdout
    assert "nothing was deleted; --delete would free 300 bytes" in shown.stdout
    assert "sweep: the grace period of 0 ms is shorter than" in shown.stderr
    assert count(config, topic) == 2


@pytest.mark.parametrize("options", [["--engine", "local"], ["--master", "local[1]"]], ids=["local", "spark"])
def test_orphans_are_deleted(
    *, config: dict[str, Any], file: Path, topic: str, orphan: str, tmp_path: Path, options: list[str]
) -> None:
    """With Spark, a process that starts it."""
    manifest = tmp_path / "deleted.jsonl"
    done = run_process("sweep", file, topic, "--grace", "0s", "--delete", "--manifest", manifest, "--json", *options)
    said = json.loads(done.stdout.splitlines()[-1])
    warnings = said.pop("warnings")
    assert len(warnings) == 2
    assert said.pop("seconds") > 0
    assert said == {
        "topics": [topic],
        "live": 1,
        "listed": 2,
        "orphans": 1,
        "deleted": 1,
        "bytes": 300,
        "manifest": str(manifest),
    }
    assert [json.loads(line)["reference"] for line in manifest.read_text().splitlines()] == [orphan]
    assert count(config, topic) == 1


@pytest.fixture
def with_tombstone(config: dict[str, Any], new_topic: "NewTopic") -> str:
    topic = new_topic(1, {"cleanup.policy": "compact"})
    with Producer(config) as producer:
        for value in (b"x" * 500, b"y" * 500, None):
            producer.produce(topic, value, b"deleted")
        producer.produce(topic, b"z" * 500, b"kept")
    return topic


def test_a_dry_run_with_tombstones(config: dict[str, Any], file: Path, with_tombstone: str) -> None:
    options = ("--grace", "0s", "--engine", "local")
    assert "0 of these are in no record" in run("sweep", file, with_tombstone, *options).stdout
    assert run("sweep", file, with_tombstone, *options, "--tombstones").stdout.splitlines() == [
        "1 key is deleted by a tombstone older than the grace period",
        "1 payload is in use, 3 in the stores are older than the grace period",
        "2 of these are in no other record",
        "nothing was deleted; --delete would free 1,000 bytes",
    ]
    assert count(config, with_tombstone) == 3


@by_both_at_night
def test_payloads_of_deleted_keys(
    config: dict[str, Any], file: Path, with_tombstone: str, tmp_path: Path, engine: str
) -> None:
    """With Spark, a process that starts it."""
    options = ("--grace", "0s", "--engine", engine, "--tombstones", "--delete", "--json")
    done = run_process("sweep", file, with_tombstone, *options, "--manifest", tmp_path / "deleted.jsonl")
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["dead_keys"], said["live"], said["orphans"], said["deleted"]) == (1, 1, 2, 2)
    assert count(config, with_tombstone) == 1


def test_a_checkpoint_is_for_spark(file: Path, topic: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    refused = run("sweep", file, topic, "--checkpoint", checkpoint, "--engine", "local", code=2)
    assert "--checkpoint is for --engine spark: a local sweep keeps its listing in TMPDIR." in refused.stderr
    assert not checkpoint.exists()


# test_migrate starts Spark by the command line, too.
@pytest.mark.nightly
@pytest.mark.usefixtures("orphan")
def test_a_checkpoint_implies_spark(file: Path, topic: str, tmp_path: Path) -> None:
    """A process that starts Spark."""
    call = ("sweep", file, topic, "--grace", "0s", "--checkpoint", tmp_path / "checkpoint")
    assert "1 of these is in no record" in run_process(*call).stdout
    assert list((tmp_path / "checkpoint").glob("listed-*/*.parquet"))


@by_both
def test_audit(config: dict[str, Any], file: Path, topic: str, engine: str) -> None:
    """With Spark, a process that starts it."""
    with Producer(config) as producer:
        producer.produce(topic, b"x" * 500)
        producer.produce(topic, b"y" * 500)
    store = open_store("local", config)
    assert isinstance(store, SupportsList)
    assert isinstance(store, SupportsDelete)
    [gone, _] = (info.reference for info in store.list(topic))
    store.delete(gone)
    said = json.loads(run_process("audit", file, topic, "--json", "--engine", engine, code=1).stdout.splitlines()[-1])
    assert (said["references"], said["problems"]) == (2, 1)
    [problem] = said["first"]
    assert list(problem) == ["topic", "partition", "offset", "reference", "kind", "message"]
    assert (problem["reference"], problem["kind"]) == (gone, "PayloadNotFoundError")
    if engine == "spark":
        return  # the text is made of the same report, by another process with Spark
    assert run_process("audit", file, topic, code=1).stdout == (
        f"{topic}, partition 0, offset {problem['offset']}: PayloadNotFoundError: {problem['message']} [{gone}]\n"
        "2 references, 1 problem\n"
    )


@pytest.mark.parametrize("engines", [("local", "local"), ("spark", "local"), ("local", "spark")], ids=" ".join)
def test_migrate(
    *,
    config: dict[str, Any],
    file: Path,
    topic: str,
    new_topic: "NewTopic",
    tmp_path: Path,
    engines: tuple[str, str],
) -> None:
    """Each engine continues what the other one began."""
    with Producer(config) as producer:
        producer.produce(topic, b"x" * 500)
        producer.produce(topic, b"small")
    target = tmp_path / "target.toml"
    target.write_text(file.read_text().replace("payloads", "moved"))
    call = ("migrate", file, target, topic, new_topic(1), "--checkpoint", tmp_path / "checkpoint")
    first, second = (("--engine", engine) for engine in engines)
    assert run_process(*call, *first).stdout == "2 records copied, 1 payload moved\n"
    moved = {**config, "local.path": str(tmp_path / "moved")}
    assert count(moved, call[4]) == 1
    said = json.loads(run_process(*call, "--json", *second).stdout.splitlines()[-1])
    assert said == {"records": 0, "payloads": 0, "skipped": 0, "checkpoint": str(tmp_path / "checkpoint")}


def children(pid: int) -> Iterator[str]:
    """What the processes are called with that a process has started."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            yield Path(f"/proc/{child}/cmdline").read_text()


@pytest.mark.usefixtures("orphan")
# A process with Spark each. By the other two pairs, nothing else is interrupted.
@pytest.mark.parametrize(
    ("works", "number"),
    [
        pytest.param(False, signal.SIGTERM, id="while Spark starts-SIGTERM"),
        pytest.param(True, signal.SIGINT, id="while it works-SIGINT"),
        pytest.param(False, signal.SIGINT, id="while Spark starts-SIGINT", marks=pytest.mark.nightly),
        pytest.param(True, signal.SIGTERM, id="while it works-SIGTERM", marks=pytest.mark.nightly),
    ],
)
def test_a_signal_leaves_nothing_behind(
    file: Path, topic: str, tmp_path: Path, works: bool, number: signal.Signals
) -> None:
    """A process that starts Spark."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def is_there(pid: int) -> bool:
        if works:
            return any(temporary.glob("serde-chain-sweep-*/listed"))
        # A script, which becomes Java.
        return any("spark-submit" in command or "SparkSubmit" in command for command in children(pid))

    with subprocess.Popen(
        [*COMMAND, "sweep", str(file), topic, "--grace", "0s", "--engine", "spark"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(), "TMPDIR": str(temporary)},
    ) as sweeping:
        while not is_there(sweeping.pid):
            assert sweeping.poll() is None
            time.sleep(0.01)
        sweeping.send_signal(number)
        # A JVM that is left would keep these open.
        out, err = sweeping.communicate(timeout=100)
    assert sweeping.returncode == 130
    assert out == b""
    assert err.splitlines()[-1] == b"Interrupted"
    assert b"Traceback" not in err
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("more", [["--master", "nowhere"], ["--conf", "spark.driver.memory=much"]], ids=" ".join)
def test_a_spark_that_does_not_start(more: list[str], file: Path, topic: str) -> None:
    # Without warnings as errors: pyspark leaves the pipe of a JVM that did not start to the garbage collector.
    program = [sys.executable, "-c", COMMAND[-1], "sweep", str(file), topic, *more]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, env=environment(), check=False)
    assert done.returncode == 1
    said, last = done.stderr.rstrip().rsplit("\n", 1)
    assert last.startswith("Error: Spark did not start")
    assert last.endswith("Check --master and --conf, and Spark's output before this line")
    assert "Master must either be yarn" in said or "much" in said


@pytest.mark.usefixtures("orphan")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_two_deletions(config: dict[str, Any], file: Path, topic: str, number: signal.Signals) -> None:
    """The manifest is a pipe, whose reader lets the sweep wait when it has noted some of its orphans."""
    store = open_store("local", config)
    for at in range(600):  # whose lines are more than a pipe holds
        store.publish(topic, b"%03d" % at)
    manifest = file.with_name("manifest.jsonl")
    os.mkfifo(manifest)
    with subprocess.Popen(
        [*COMMAND, "sweep", file, topic, "--grace", "0s", "--engine", "local", "--delete", "--manifest", manifest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as sweeping:
        with manifest.open(encoding="utf-8") as reader:  # opened when the sweep opens it
            noted = [reader.readline()]
            sweeping.send_signal(number)
            noted += reader.readlines()
        out, err = sweeping.communicate(timeout=100)
    assert sweeping.returncode == 130, err
    assert out == b""
    assert err.splitlines()[-1] == b"Interrupted"
    assert b"Traceback" not in err
    left = count(config, topic)
    assert 601 - len(noted) <= left - 1 <= 601 - len(noted) + 8
    manifest.unlink()
    said = run_process("sweep", file, topic, "--grace", "0s", "--delete", "--manifest", manifest, "--json").stdout
    assert json.loads(said)["deleted"] == left - 1
    assert count(config, topic) == 1


def test_auto_is_local_without_pyspark_and_for_few_records(
    file: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [jobs._MOST_LOCAL, jobs._MOST_LOCAL + 1]
    monkeypatch.setattr("serde_chain.jobs.topic_bounds.count_records", lambda *_: counts.pop(0))
    assert jobs._is_local("auto", None, {}, file, topic)
    assert not jobs._is_local("auto", None, {}, file, topic)
    assert not jobs._is_local("auto", "local[2]", {}, file, topic)
    assert not jobs._is_local("auto", None, {"spark.ui.enabled": "false"}, file, topic)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert jobs._is_local("auto", None, {}, file, topic)
    assert not jobs._is_local("spark", None, {}, file, topic)


@pytest.mark.usefixtures("orphan")
def test_auto_starts_no_java(file: Path, topic: str, tmp_path: Path) -> None:
    said = subprocess.run(
        [*COMMAND, "sweep", file, topic, "--grace", "0s", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        env={**environment(), "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)},
        check=True,
    ).stdout
    assert json.loads(said)["orphans"] == 1


def test_what_cannot_be_swept(file: Path, topic: str) -> None:
    failed = run("sweep", file, f"{topic}-nowhere", code=1)
    assert f"topic={topic}-nowhere" in failed.stderr
    assert "is not a number with a unit" in run("sweep", file, topic, "--grace", "24", code=2).stderr
    malformed = run("sweep", file, topic, "--conf", "spark.secret:hidden", code=2).stderr
    assert "one is not KEY=VALUE" in malformed
    assert "hidden" not in malformed
    assert "Missing argument 'TOPIC...'" in run("sweep", file, code=2).stderr
    both = run("sweep", file, topic, "--engine", "local", "--master", "local[2]", code=2).stderr
    assert "--master and --conf are for --engine spark" in both
    elsewhere = run("migrate", file, file, topic, "new", "--engine", "local", "--checkpoint", "s3a://b/c", code=1)
    assert "s3a://b/c is not a local folder" in elsewhere.stderr
