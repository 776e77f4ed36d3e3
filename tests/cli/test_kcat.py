"""The commands as users of kcat call them: without a file, with settings, and with a format."""

import json
import re
import struct
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
import pytest
from click.testing import CliRunner

from serde_chain.cli.commands import commands
from serde_chain.cli.layout import Layout
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import run


@pytest.fixture
def filled(broker: KafkaBroker, topic: str) -> str:
    producer = confluent_kafka.Producer(broker.client_config())
    headers: Any = [("band", b"g"), ("raw", b"\xff"), ("none", None)]
    producer.produce(topic, b"M 51", b"k1", headers=headers, timestamp=1_795_000_000_000)
    producer.produce(topic, b"\x00\xff", None, timestamp=1_795_000_000_001)
    producer.produce(topic, None, b"gone", timestamp=1_795_000_000_002)
    producer.flush(30)
    return topic


def test_a_format(broker: KafkaBroker, filled: str) -> None:
    layout = r"%t %p %o %T %k %K %S %h|%%\n"
    done = run("consume", "-b", broker.bootstrap_servers, "-t", filled, "-f", layout)
    assert done.stdout.splitlines() == [
        f"{filled} 0 0 1795000000000 k1 2 4 band=g,raw=ff,none=NULL|%",
        f"{filled} 0 1 1795000000001  -1 2 |%",
        f"{filled} 0 2 1795000000002 gone 4 -1 |%",
    ]


def test_bytes_are_written_as_they_are(broker: KafkaBroker, filled: str) -> None:
    """Through a pipe; decoded first, if there is a chain."""
    done = run("consume", "-b", broker.bootstrap_servers, filled, "--offsets", "0..0", "-f", r"%s\x21\t%s\\")
    assert done.stdout == "M 51!\tM 51\\"
    chain = ("-X", "value.deserializers=string", "-X", "key.deserializer = string")
    done = run("consume", "-b", broker.bootstrap_servers, filled, "--offsets", "0..0", *chain, "-f", "%k: %s")
    assert done.stdout == "k1: M 51"


class Message:
    """A record in its final form."""

    def value(self) -> Any:
        return {"id": 51}

    def key(self) -> Any:
        return None

    def headers(self) -> Any:
        return None


def test_objects_and_sizes() -> None:
    assert Layout("%s%R")(Message()) == b'{"id": 51}' + struct.pack(">i", 10)
    assert Layout("%h%k")(Message()) == b""


@pytest.mark.parametrize(
    ("layout", "told"),
    [("%x", "%x is no placeholder"), ("%", "'%' at the end is incomplete"), (r"\q", r"\q is no escape"), ("\\", "end")],
)
def test_wrong_formats(layout: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Layout(layout)
    assert "--format" in run("consume", "-b", "h", "-t", "t", "-f", layout, code=2).stderr


def test_settings_override_a_file(broker: KafkaBroker, filled: str, tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text('"bootstrap.servers" = "127.0.0.1:1"\n')
    done = run(
        *("consume", tmp_path / "client.toml", filled, "-X", f"bootstrap.servers={broker.bootstrap_servers}"),
        *("--offsets", "0..0", "-X", "value.deserializers=json", "--raw"),
    )
    assert done.stdout == "M 51\n"


@pytest.mark.full
def test_other_commands(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    brokers = ("-b", broker.bootstrap_servers)
    chain = ("-X", "value.serializers=json", "-X", "value.deserializers=json")
    (tmp_path / "a.json").write_text('{"id": 1}')
    assert "1 record" in run("produce", *brokers, *chain, "-t", topic, tmp_path / "a.json").stdout
    assert "1 record" in run("produce", *brokers, *chain, topic, stdin='{"id": 2}\n').stdout
    shown = run("inspect", *brokers, topic, "--offsets", "0..1", "--json").stdout
    assert [json.loads(line)["value"]["bytes"] for line in shown.splitlines()] == [8, 8]
    assert "0 errors" in run("doctor", *brokers, *chain, "-t", topic, "--quiet").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "Missing argument 'CONFIG', or -b."),
        (("-b", "h"), "Missing argument 'TOPIC', or -t."),
        (("no-such-file", "t"), "Invalid value for 'CONFIG': File 'no-such-file' does not exist."),
        (("-b", "h", "t", "more"), "Got unexpected extra argument (more)"),
        (("-b", "h", "-t", "t", "-X", "sasl.password:secret"), "one is not KEY=VALUE"),
        (("-b", "h", "-t", "t", "-f", "%s", "--json"), "--format excludes --output and --json"),
    ],
)
def test_typical_mistakes(arguments: tuple[str, ...], told: str) -> None:
    assert told in run("consume", *arguments, code=2).stderr


def test_a_file_beside_brokers_is_not_a_topic(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('"value.deserializers" = "json"\n')
    for command, words in (("consume", ("images",)), ("produce", ("images", "m51.fits")), ("browse", ())):
        told = run(command, file, *words, "-b", "h:9092", code=2).stderr
        assert "use -X bootstrap.servers=h:9092 instead of -b" in told


@pytest.mark.parametrize("command", ["consume", "inspect", "produce", "browse"])
def test_a_file_without_brokers(command: str, tmp_path: Path) -> None:
    (tmp_path / "client.toml").write_text('"value.deserializers" = "json"\n')
    told = run(command, tmp_path / "client.toml", "images", code=2).stderr
    assert "no brokers: set bootstrap.servers in CONFIG, or by -X bootstrap.servers=HOST:PORT" in told


def test_the_folder_of_output_is_made(broker: KafkaBroker, filled: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    done = run("consume", "-b", broker.bootstrap_servers, filled, "--offsets", "0..0", "--output", folder)
    assert Path(done.stdout.strip()).read_bytes() == b"M 51"
    (tmp_path / "file").write_text("")
    assert (
        "cannot be created"
        in run("consume", "-b", broker.bootstrap_servers, filled, "--output", tmp_path / "file" / "x", code=2).stderr
    )


def test_tables_are_not_wrapped_in_a_pipe(broker: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    reference = "file:///" + "folder/" * 60 + "payload"
    headers: Any = [("large-message", b"true")]
    producer.produce(topic, reference.encode(), headers=headers)
    producer.flush(30)
    monkeypatch.delenv("COLUMNS", raising=False)
    done = run("inspect", "-b", broker.bootstrap_servers, topic, columns=None)
    assert reference in done.stdout


def test_a_container_file_is_named_with_its_schema(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "alert", "namespace": "ztf", "fields": [{"name": "id", "type": "long"}]}
    with (tmp_path / "alert.avro").open("wb") as file:
        fastavro.writer(file, schema, [{"id": 51}])
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, (tmp_path / "alert.avro").read_bytes())
    producer.produce(topic, b"Obj\x01\xff")
    producer.flush(30)
    shown = run("inspect", "-b", broker.bootstrap_servers, topic, "--offsets", "0..1", "--json").stdout
    assert [json.loads(line)["value"]["is"] for line in shown.splitlines()] == [
        "inline, an Avro container file of ztf.alert",
        "inline, an Avro container file",
    ]


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["-C", "-b", "localhost", "-t", "images"], "serde-chain consume"),
        (["-P", "-t", "images"], "serde-chain produce"),
        (["-L", "-b", "localhost"], "serde-chain browse without a topic"),
        (["consume", "-b", "localhost", "-t", "images", "-e"], "unless --follow is set"),
        (["consume", "client.toml", "images", "-o", "-3"], "--last N"),
        (["consume", "client.toml", "images", "-c", "1"], "--count N"),
        (["consume", "client.toml", "images", "-J"], "--json"),
        (["produce", "client.toml", "images", "-K", ":"], "--key-separator TEXT"),
        (["produce", "client.toml", "images", "-k", "M 51"], "--key TEXT"),
        (["consume", "client.toml", "images", "-s", "avro"], "-X value.deserializers=STAGES"),
        (["-b", "localhost", "-t", "images"], "serde-chain consume -b BROKERS -t TOPIC"),
    ],
)
def test_options_of_kcat_point_to_ours(words: list[str], ours: str) -> None:
    done = CliRunner().invoke(commands, words)
    [line] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert [word for word in words if line.startswith(f"Error: No such option '{word}'. kcat's {word} is ")]
    assert ours in line
    assert done.exit_code == 2


def test_an_option_that_is_nobodys() -> None:
    done = CliRunner().invoke(commands, ["consume", "--ouput", "x"])
    assert "kcat" not in done.stderr
    assert "--output" in done.stderr
