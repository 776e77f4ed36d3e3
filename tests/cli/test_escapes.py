"""What records, stores and files say reaches a terminal as text: nothing in it moves the cursor or sets the title."""

import json
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from payload_stores.errors import PayloadStoreError
from serde_chain.cli.commands import commands
from serde_chain.cli.findings import Finding, Level
from serde_chain.cli.output import CountProgress, Status, Throughput, printable
from serde_chain.clients.dead_letters import header_name
from serde_chain.jobs import AuditReport, Problem, Problems
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run
from tests.conftest import NewTopic

TITLE = "\x1b]0;owned\x07\x9b31m"
SHOWN = r"\u001b]0;owned\u0007\u009b31m"


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers = {broker.bootstrap_servers}\nvalue.serializers = json\n")
    return path


def harmless(text: str) -> None:
    assert text
    assert not set(text) & {"\x1b", "\x07", "\x9b"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("M 51", "M 51"),
        ("two\nlines\r\nand\ttab", "two\nlines\r\nand\ttab"),
        ("passed\rfailed", r"passed\u000dfailed"),
        (TITLE, SHOWN),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\u061c\u200b\u200f\u2028\ufeff", r"\u061c\u200b\u200f\u2028\ufeff"),
        ("pay\u200dments\u200c", r"pay\u200dments\u200c"),
        ("half \ud800", r"half \ud800"),
        ("é 👩\u200d🚀", "é 👩\u200d🚀"),
    ],
)
def test_controls_are_escaped_and_text_is_not(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard error is a terminal, as far as rich can tell."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.usefixtures("terminal")
def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    what = f"[bold]{TITLE}[/]"
    with CountProgress(what) as told:
        told(1)
    with Throughput(what) as told:
        told(1, 1)
    with Status("starting Spark") as told:
        told(what, 1)
    shown = capsys.readouterr().err
    assert shown.count(f"[bold]{SHOWN}[/]: 1") == 3
    assert not {"\x07", "\x9b"} & set(shown)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("command", "more"), [("consume", []), ("produce", []), ("stamp", ["--check"]), ("replay", ["--to", "images"])]
)
def test_progress_about_a_topic_that_cannot_be(command: str, more: list[str], tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = 127.0.0.1:1\n")
    done = invoked(command, path, *more, f"{TITLE}[/]", "--timeout", 0.2)
    assert done.exit_code == 1
    assert "Check bootstrap.servers" in done.output
    assert not {"\x07", "\x9b"} & set(done.output)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_check_config(more: list[str], tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(
        f'"bootstrap.servers" = {json.dumps(TITLE)}\n"value.serializers" = "json, large-message"\n'
        f'"large.message.payload.store.class" = "memory"\n[large.message.route.images]\ntopics = {json.dumps(TITLE)}\n'
    )
    done = run("check-config", path, TITLE, *more)
    harmless(done.stdout)
    assert SHOWN in done.stdout


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [*map(str, arguments)])


def test_doctor(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(*_arguments: Any, **_options: Any) -> list[Finding]:
        return [Finding("records", Level.ERROR, f"cannot be read: {TITLE}", TITLE, TITLE)]

    monkeypatch.setattr("serde_chain.cli.doctor.examine.examine", examine)
    for more in ([], ["--json"]):
        done = invoked("doctor", config, "images", *more)
        assert done.exit_code == 1
        harmless(done.output)


def test_audit(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = Problems([Problem("images", 0, 1, None, "missing", f"file:///{TITLE}")])
    monkeypatch.setattr("serde_chain.jobs.audit", lambda *_arguments, **_options: AuditReport(1, problems))
    for more in ([], ["--json"]):
        done = invoked("audit", config, "images", "--engine", "local", *more)
        assert done.exit_code == 1
        harmless(done.output)


def test_the_log_of_spark(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def session(_name: str, _settings: object, log: Path) -> Any:
        log.write_text(f"a task failed: {TITLE}\n")
        raise RuntimeError(TITLE)

    monkeypatch.setattr("serde_chain.testing.services.spark_session", session)
    done = invoked("audit", config, "images", "--engine", "spark")
    assert done.exit_code == 1
    harmless(done.output)
    assert f"a task failed: {SHOWN}\n" in done.output


def test_replay(config: Path, broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    facts = {"kind": "DecodeError", "topic": TITLE, "partition": "0", "offset": "1", "message": TITLE}
    headers: Any = [(header_name(name), fact.encode()) for name, fact in facts.items()]
    producer.produce(topic, TITLE.encode(), TITLE.encode(), headers=headers)
    assert producer.flush(30) == 0
    for more in ([], ["--json"]):
        shown = run("replay", config, topic, "--dry-run", *more).stdout
        harmless(shown)
        assert SHOWN in shown


def test_produce_of_a_file_with_such_a_name(config: Path, new_topic: NewTopic, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f"{TITLE}.json").write_text('"' + "x" * 2_000_000 + '"')
    topic = new_topic(1)
    done = run("produce", config, topic, folder, code=1)
    assert f"[file={folder}/{SHOWN}.json]. End the value chain with large-message" in done.stderr
    harmless(done.stderr)


@pytest.mark.full
def test_consume_and_inspect(config: Path, broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    for value in (TITLE.encode(), b"passed\rfailed", json.dumps(TITLE).encode()):
        producer.produce(topic, value, TITLE.encode(), headers=[(TITLE, TITLE.encode())])
    assert producer.flush(30) == 0
    config.write_text(f"bootstrap.servers = {broker.bootstrap_servers}\n")
    for more in ([], ["--json"]):
        shown = run("consume", config, topic, *more).stdout
        harmless(shown)
        assert "\r" not in shown
        harmless(run("inspect", config, topic, "--count", 3, "--decode", *more).stdout)
    config.write_text(f"bootstrap.servers = {broker.bootstrap_servers}\nvalue.deserializers = json\n")
    done = run("consume", config, topic, code=1)
    harmless(done.stderr)
    assert SHOWN in done.stdout


def test_errors(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise PayloadStoreError(f"there is no {TITLE}", reference=TITLE)

    monkeypatch.setattr("serde_chain.config.load", fail)
    harmless(invoked("consume", config, "images").output)
    told = invoked("--debug", "consume", config, "images").output
    harmless(told)
    assert "Traceback" in told
