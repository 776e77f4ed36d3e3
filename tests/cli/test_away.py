"""Services that are not there, and topics that are long: a line, within a deadline; constant memory."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner

from serde_chain.cli import main
from serde_chain.cli.browse.topic import Patience, Readers, Topic
from serde_chain.cli.commands import commands
from serde_chain.cli.selection import Selection
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.cli.conftest import COMMAND, environment, run_process
from tests.conftest import NewTopic

AWAY = "http://127.0.0.1:1"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
# What `make test-all` has time for; SERDE_CHAIN_LONG=1000000 is the topic of a million records.
MANY = int(os.environ.get("SERDE_CHAIN_LONG", "60000"))


def configured(broker: KafkaBroker, folder: Path, **more: object) -> Path:
    path = folder / "client.properties"
    settings = {**broker.client_config(), **more}
    path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return path


def fill(broker: KafkaBroker, topic: str, count: int, value: Callable[[int], bytes]) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 20})
    for number in range(count):
        producer.produce(topic, value(number))
        if number % 50_000 == 0:  # the client's queue has room for twice as many
            producer.flush(60)
    assert producer.flush(60) == 0


@pytest.mark.full
def test_a_store_that_is_not_there(
    broker: KafkaBroker, s3_server: S3Server, bucket: str, topic: str, tmp_path: Path
) -> None:
    """The commands wait for the store as long as those of users."""
    s3 = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "s3",
        "large.message.threshold.bytes": 10,
        "s3.bucket": "payloads",
        "s3.access.key": "key",
        "s3.secret.key": "hush-hush",
        "s3.endpoint.url": AWAY,
        "s3.retry.attempts": 1,
    }
    path = configured(broker, tmp_path, **s3)
    done = run_process("produce", path, topic, "-", stdin="x" * 100, code=1)
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: -: ")
    assert "s3" in line
    assert done.stdout == f"0 records, 0 bytes, sent to {topic}, 1 failed\n"
    here = configured(broker, tmp_path, **{**s3, "s3.bucket": bucket, "s3.endpoint.url": s3_server.url})
    run_process("produce", here, topic, "-", stdin="x" * 100)
    assert run_process("consume", here, topic).stdout == "x" * 100 + "\n"
    away = configured(broker, tmp_path, **{**s3, "s3.bucket": bucket})
    for more in ([], ["--output", tmp_path]):
        [line] = run_process("consume", away, topic, *more, code=1).stderr.splitlines()
        assert line.startswith("Error: ")
        assert "127.0.0.1:1" in line
        assert "hush" not in line


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("produce", []),
        ("consume", []),
        ("inspect", []),
        ("browse", []),
        ("replay", ["--to", "images"]),
        ("stamp", ["--check", "images"]),
        ("stamp", ["--from", "images", "--to", "copies", "--until-end"]),
    ],
)
@pytest.mark.parametrize("columns", [40, 200])
def test_a_broker_that_is_not_there(command: str, more: list[str], columns: int, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = 127.0.0.1:1\n")
    topic = [] if command == "stamp" else ["images"]
    done = run_process(command, path, *topic, *more, "--timeout", 1, stdin="value", code=1, columns=columns)
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: the broker did not answer: ")
    assert "Check bootstrap.servers, security.protocol with its login" in line
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["produce", "inspect", "sweep"])
def test_a_broker_with_an_address_of_http(command: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers = {AWAY}\nlarge.message.payload.store.class = local\nlocal.path = {tmp_path}\n")
    [line] = run_process(command, path, "images", stdin="value", code=1).stderr.splitlines()
    assert line.startswith("Error: bootstrap.servers has an address with http://, which no broker has")


@pytest.mark.full
@pytest.mark.parametrize("command", ["produce", "consume", "inspect", "browse", "doctor"])
def test_ctrl_c_while_the_broker_is_waited_for(command: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        path = tmp_path / "client.properties"
        path.write_text(f"bootstrap.servers = 127.0.0.1:{silent.getsockname()[1]}\n")
        pipe = subprocess.PIPE
        arguments = [*COMMAND, command, str(path), "images", "--timeout", "300"]
        with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
            try:
                connection, _ = silent.accept()
                with connection:
                    process.send_signal(signal.SIGINT)
                    _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
        assert (process.returncode, errors) == (130, "Interrupted\n")


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "more"), [("replay", ["images", "--to", "a"]), ("stamp", ["--from", "a", "--to", "b"])]
)
def test_a_second_ctrl_c_ends_what_would_end_in_order(command: str, more: list[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        path = tmp_path / "client.properties"
        path.write_text(f"bootstrap.servers = 127.0.0.1:{silent.getsockname()[1]}\n")
        arguments = [*COMMAND, command, str(path), *more, "--timeout", "300"]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment()) as process:
            try:
                connection, _ = silent.accept()
                with connection:
                    for _ in range(20):  # two that come at once are one
                        process.send_signal(signal.SIGINT)
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(3)
                            break
                    _, errors = process.communicate(timeout=60)
            finally:
                process.kill()
        assert (process.returncode, errors) == (130, "Interrupted\n")


def test_ctrl_c_before_there_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("serde_chain.cli.commands.commands", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


class Counted:
    """How many records a reader has taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        take, read = PartitionReader.take, PartitionReader.read

        def counted_take(reader: PartitionReader, count: int, wait_s: float) -> Any:
            messages, ended = take(reader, count, wait_s)
            self.records += len(messages)
            return messages, ended

        def counted_read(reader: PartitionReader, topic: str, partition: int, start: int, end: int) -> Iterator[Any]:
            for message in read(reader, topic, partition, start, end):
                self.records += 1
                yield message

        monkeypatch.setattr(PartitionReader, "take", counted_take)
        monkeypatch.setattr(PartitionReader, "read", counted_read)


@pytest.mark.full
def test_a_look_at_a_million_records_reads_few_of_them(
    broker: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, topic, 1_000_000, lambda number: b"%d" % number)
    path = configured(broker, tmp_path)
    counted = Counted(monkeypatch)
    for arguments in (
        ["inspect", "--last", "1"],
        ["inspect", "--offset", "400000"],
        ["consume", "--last", "1"],
        ["consume", "--count", "1"],
        ["consume", "--offsets", "400000..400001"],
        ["doctor"],
    ):
        command, *more = arguments
        done = CliRunner().invoke(commands, [command, str(path), topic, *more])
        assert done.exit_code == 0, done.output
    with closing(Readers(broker.client_config(), 30)) as readers:
        Topic(readers, topic, ("kip1159",)).page(Selection(), Patience(60))
    assert 7 <= counted.records < 700


@pytest.mark.full
def test_a_registry_that_is_not_there(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """The commands wait for the registry as long as those of users."""
    avro = {"schema.registry.url": AWAY, "avro.schema": SCHEMA}
    path = configured(broker, tmp_path, **{"value.serializers": "avro", "value.deserializers": "avro"}, **avro)
    [line] = run_process("produce", path, topic, stdin='{"id": 1}', code=1).stderr.splitlines()
    assert line.startswith("Error: the schema registry did not answer")
    assert "[file=-, line 1]" in line
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"\0\0\0\0\1\2")
    assert producer.flush(30) == 0
    [line] = run_process("consume", path, topic, code=1).stderr.splitlines()
    assert line.startswith("Error: the schema registry did not answer")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_long_topic_costs_constant_memory(broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    fill(broker, topic, MANY, lambda number: b"%d" % number * 100)
    path = configured(broker, tmp_path)
    peaks = []
    for count in (100, MANY):
        program = (
            "import re, sys\nfrom pathlib import Path\nfrom serde_chain.cli import main\n"
            "try:\n    main()\nfinally:\n"
            "    sys.stderr.write(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])"
        )
        command = [*COMMAND[:-1], program, "consume", str(path), topic, "--count", str(count)]
        with (tmp_path / "out").open("wb") as out:
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=500, env=environment(), check=False
            )
        assert done.returncode == 0, done.stderr
        with (tmp_path / "out").open("rb") as out:
            assert sum(1 for _ in out) == count
        peaks.append(int(done.stderr))
    few, many = peaks
    # librdkafka's queue of 16 MiB, and what it needs to fill it.
    assert many - few < 60_000, peaks


def test_a_shell_completes(tmp_path: Path) -> None:
    script = Path(COMMAND[0]).parent / "serde-chain"

    def asked(**variables: str) -> str:
        done = subprocess.run(
            [str(script)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**environment(), **variables},
            cwd=tmp_path,
            check=False,
        )
        return done.stdout

    assert "complete" in asked(_SERDE_CHAIN_COMPLETE="zsh_source")
    words = asked(_SERDE_CHAIN_COMPLETE="bash_complete", COMP_WORDS="serde-chain con", COMP_CWORD="1")
    assert re.findall(r"plain,(\w+)", words) == ["consume"]
