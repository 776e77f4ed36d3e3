"""``serde-chain`` as a user calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
CONFIG = f"""
"bootstrap.servers" = "broker:9092"
"sasl.password" = "hush-hush"
"value.serializers" = ["avro", {{class = "zstd", "compression.level" = 19}}, "large-message"]
"value.deserializers" = "large-message, zstd, avro"
"key.serializer" = "org.apache.kafka.common.serialization.StringSerializer"
"avro.schema" = '{SCHEMA}'
"schema.registry.url" = "http://me:hush-hush@registry:8081"
"large.message.payload.store.class" = "s3"
"s3.bucket" = "payloads"
"s3.region" = "eu-west-1"
"s3.access.key" = "hush-hush"
"s3.secret.key" = "hush-hush"
"""
SLOW = """
value.serializers = bytes, large-message
large.message.payload.store.class = memory
large.message.store.timeout.ms = 2000
max.block.ms = 1000
"""


def run(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from serde_chain.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.toml"
    path.write_text(CONFIG)
    return path


def test_help_and_version() -> None:
    for command in ("check-config", "inspect", "demo"):
        assert command in run("--help").stdout
        assert run(command, "--help").stdout.startswith(f"Usage: serde-chain {command}")
    assert run("--version").stdout.startswith("serde-chain, version ")


# check-config


def test_check_config_prints_the_chains(file: Path) -> None:
    shown = run("check-config", file).stdout
    for text in (
        "value.serializers", "value.deserializers", "key.serializers", "StringSerializer", "compression.level = 19",
        "s3.bucket = payloads", "bootstrap.servers", "broker:9092", "object", "bytes",
    ):  # fmt: skip
        assert text in shown, text
    assert "hush" not in shown


def test_check_config_prints_json(file: Path) -> None:
    output = run("check-config", "--json", file).stdout
    assert "hush" not in output
    shown = json.loads(output)
    assert shown["client"] == {"bootstrap.servers": "broker:9092", "sasl.password": "********"}
    chain = shown["chains"]["value.serializers"]
    assert [(stage["stage"], stage["takes"], stage["gives"]) for stage in chain] == [
        ("avro", "object", "bytes"), ("zstd", "bytes", "bytes"), ("large-message", "bytes", "bytes"),
    ]  # fmt: skip
    assert chain[1]["settings"]["compression.level"] == 19
    assert chain[2]["settings"]["s3.bucket"] == "payloads"
    assert chain[2]["settings"]["s3.secret.key"] == "********"
    assert [stage["stage"] for stage in shown["chains"]["value.deserializers"]] == ["large-message", "zstd", "avro"]


def test_check_config_hides_keys_of_encryption(tmp_path: Path) -> None:
    path, key = tmp_path / "client.toml", "aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2gtaHU="
    for keys in (f'"encryption.keys" = "k1 = {key}"', f'[encryption.keys]\nk1 = "{key}"'):
        path.write_text(f'"value.serializers" = "json, encrypt"\n{keys}\n')
        for output in (run("check-config", path).stdout, run("check-config", "--json", path).stdout):
            assert "encryption.keys" in output
            assert key[:12] not in output


def test_check_config_hides_what_is_declared_secret(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializers = avro, encrypt\n"
        f"avro.schema = {SCHEMA}\n"
        "schema.registry.url = http://registry:8081\n"
        "schema.registry.proxy = http://hush-registry:3128\n"
        "encryption.key.id = k\n"
        "encryption.key.provider.class = tests.cli.test_commands.Vault\n"
        "encryption.key.provider.pin = hush-vault\n"
        "sasl.oauthbearer.config = principal=me secret=hush-client\n"
    )
    for output in (run("check-config", path).stdout, run("check-config", "--json", path).stdout):
        assert "hush" not in output
        for text in ("http://registry:8081", "tests.cli.test_commands.Vault", "encryption.key.provider.pin"):
            assert text in output
        assert "sasl.oauthbearer.config" in output


class Vault:
    def key(self, key_id: str) -> bytes:
        return bytes(32)


def test_check_config_prints_markup_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("value.serializer = json\nclient.id = [bold]me[/bold]\n")
    assert "[bold]me[/bold]" in run("check-config", path).stdout
    assert json.loads(run("check-config", "--json", path).stdout)["client"] == {"client.id": "[bold]me[/bold]"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("value.serializers = avro, zstdd", "there is no stage 'zstdd'. Did you mean zstd?"),
        ("value.serializers = zstd, json", "json (2 of 2) cannot come after zstd (1 of 2)"),
        ("value.serializer = json\nvalue.serializers = json", "exclude each other"),
        ("value.serializers = json\njson.shema = {}", "Did you mean json.schema?"),
        ("value.serializers = bytes, large-message", "large.message.payload.store.class is required"),
        (SLOW, "large.message.store.timeout.ms (2000 ms) is longer than max.block.ms (1000 ms)"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(content)
    done = run("check-config", path, code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_usage_has_exit_code_2(tmp_path: Path) -> None:
    assert "does not exist" in run("check-config", tmp_path / "missing.toml", code=2).stderr
    assert "No such command" in run("chek-config", code=2).stderr
    assert "Missing option" in run("inspect", code=2).stderr


# inspect


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
    output = run("inspect", "--config", path, "--topic", topic, "--json", *more).stdout
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
    assert "[/bold]" in run("inspect", "--config", path, "--topic", topic).stdout
    shown = run("inspect", "--config", path, "--topic", topic, "--offset", 1).stdout
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


def test_inspect_says_what_is_not_there(filled: tuple[str, Path]) -> None:
    topic, path = filled
    done = run("inspect", "--config", path, "--topic", topic, "--offset", 7, "--timeout", 1, code=1)
    assert "\nError: the record cannot be shown: no record within 1.0 s" in f"\n{done.stderr}"
    assert f"topic={topic}, partition=0, offset=7" in done.stderr
    done = run("inspect", "--config", path, "--topic", "no-such-topic", "--timeout", 5, code=1)
    assert "Error: the record cannot be shown" in done.stderr


def test_inspect_gives_up_on_a_broker_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = 127.0.0.1:1\n")
    done = run("inspect", "--config", path, "--topic", "t", "--timeout", 1, code=1)
    assert "Error: the record cannot be shown" in done.stderr
