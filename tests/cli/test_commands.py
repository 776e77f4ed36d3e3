"""``serde-chain`` as a user calls it."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from serde_chain.cli import main
from serde_chain.cli.commands import commands
from serde_chain.testing.services import ServiceMissingError
from tests.cli.conftest import run

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.full
def test_help_and_version() -> None:
    for command in ("check-config", "inspect", "demo", "replay"):
        assert command in run("--help").stdout
        assert run(command, "--help").stdout.startswith(f"Usage: serde-chain {command}")
    assert run("--version").stdout.startswith("serde-chain, version ")


@pytest.mark.parametrize("loading", ["payload_stores.plugins.require", "serde_chain.cli.commands.commands"])
def test_ctrl_c_before_a_command_begins(loading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


# check-config


def test_check_config_prints_what_becomes_of_records_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("serde.error.policy = dead-letter\nserde.dead.letter.topic = images-dead\n")
    shown = run("check-config", path).stdout
    assert "for the consumer" in shown
    assert "images-dead" in shown
    chosen = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": "images-dead"}
    assert json.loads(run("check-config", "--json", path).stdout)["consumer"] == chosen


def test_check_config_prints_the_chains(file: Path) -> None:
    shown = run("check-config", file).stdout
    for text in (
        "value.serializers", "value.deserializers", "key.serializers", "StringSerializer", "compression.level = 19",
        "s3.bucket = payloads", "bootstrap.servers", "broker:9092", "object", "bytes",
    ):  # fmt: skip
        assert text in shown, text
    assert "hush" not in shown


@pytest.mark.full
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


@pytest.mark.full
def test_check_config_hides_keys_of_encryption(tmp_path: Path) -> None:
    path, key = tmp_path / "client.toml", "aHVzaC1odXNoLWh1c2gtaHVzaC1odXNoLWh1c2gtaHU="
    for keys in (f'"encryption.keys" = "k1 = {key}"', f'[encryption.keys]\nk1 = "{key}"'):
        path.write_text(f'"value.serializers" = "json, encrypt"\n{keys}\n')
        for output in (run("check-config", path).stdout, run("check-config", "--json", path).stdout):
            assert "encryption.keys" in output
            assert key[:12] not in output


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("value.serializers = json, zstdd", "there is no stage 'zstdd' [key=value.serializers]. Did you mean zstd?"),
        ("key.deserializer = strng", "there is no stage 'strng' [key=key.deserializer]. Did you mean string?"),
        ("value.deserializers =", 'Write for instance "large-message, zstd, avro"'),
        ("value.serializers = zstd, json", "json (2 of 2) cannot come after zstd (1 of 2)"),
        ("value.serializer = json\nvalue.serializers = json", "exclude each other"),
        ("value.serializers = json\njson.shema = {}", "Did you mean json.schema?"),
        ("value.serializers = bytes, large-message", "large.message.payload.store.class is required"),
        ("serde.error.policy = deadletter", "did you mean dead-letter?"),
        ("serde.error.policy = dead-letter", "needs a topic [key=serde.dead.letter.topic]"),
        ("serde.dead.letter.topic = dead", "serde.dead.letter.topic has no effect without serde.error.policy"),
        (
            (
                "value.serializers = bytes, large-message\nlarge.message.payload.store.class = memory\n"
                "large.message.threshold.bytes = 5000000"
            ),
            "large.message.threshold.bytes (5000000) exceeds the largest value that the client sends",
        ),
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


MISTAKES = """
bootstrap.servers = broker:9092
sasl.mechansim = PLAIN
security.protocol = hush-hush
linger.ms = -4
buffer.memory = 33554432
value.serializers = avro, zstdd, large-message
value.deserializers = large-message, zstd, avro
key.serializers = string, gzip
avro.shema = "string"
compression.max.output.bytes = many
large.message.payload.store.class = s3
s3.bukket = payloads
s3.secret.key = hush-hush
"""


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(MISTAKES)
    done = run("check-config", path, code=1)
    lines = done.stderr.splitlines()
    for expected in (
        "there is no stage 'zstdd' [key=value.serializers]. Did you mean zstd?",
        "'avro.shema' is not a configuration key",
        "'s3.bukket' is not a configuration key",
        "s3.bucket is required",
        "'sasl.mechansim' is not a key of a stage, a store or the Kafka client",
        "'buffer.memory' is not a key of",
        "the Kafka client refuses the value of 'security.protocol'",
        "refuses the value of 'linger.ms': Configuration property \"queue.buffering.max.ms\" value -4 is outside",
        "compression.max.output.bytes = 'many': expected a whole number",
    ):
        assert [line for line in lines if expected in line], expected
    assert all(line.startswith("Error: ") for line in lines)
    assert len(set(lines)) == len(lines)
    assert done.stdout == ""
    assert "hush" not in done.stderr


def test_a_wrong_order_is_reported_beside_missing_settings(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializers = large-message, zstd, avro\nvalue.deserializers = zstd, large-message, avro\n"
        "large.message.payload.store.class = s3\n"
    )
    lines = run("check-config", path, code=1).stderr.splitlines()
    assert any("line 1: avro (3 of 3) cannot come after zstd (2 of 3)" in line for line in lines)
    assert any("line 2: zstd (1 of 3) cannot come before large-message (2 of 3)" in line for line in lines)
    assert any("s3.bucket is required" in line for line in lines)


def test_a_wrong_order_is_reported_beside_a_warning(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "nowhere").mkdir(parents=True)
    path = tmp_path / "client.properties"
    path.write_text(
        "value.serializers = json, large-message, zstd\nlarge.message.payload.store.class = local\n"
        "local.path = nowhere\n"
    )
    warning, line = run("check-config", path, code=1, folder=tmp_path / "elsewhere").stderr.splitlines()
    assert warning.startswith("Warning: local.path = nowhere counts from the configuration file's folder")
    assert "zstd (3 of 3) cannot come after large-message (2 of 3)" in line


def test_a_chain_that_describes_itself_is_in_order(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("value.serializers = json, zstd\nserde.chain.describe = true\n")
    stages = json.loads(run("check-config", "--json", path).stdout)["chains"]["value.serializers"]
    assert [(stage["stage"], stage["takes"]) for stage in stages] == [
        ("describe", "any"),
        ("json", "object"),
        ("zstd", "bytes"),
    ]


@pytest.mark.full
def test_a_file_without_chains_is_said(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = broker:9092\n")
    shown = run("check-config", path).stdout
    assert "The file names no chains" in shown
    assert "broker:9092" in shown
    path.write_text("")
    assert "The file names no chains" in run("check-config", path).stdout
    assert json.loads(run("check-config", "--json", path).stdout)["client"] == {}


@pytest.mark.parametrize(
    "stack", ["\n\tat org.apache.spark.A.b(A.scala:1)\n\tat c", "\nTraceback (most recent call last):\n"]
)
def test_stacks_in_the_text_of_an_error_are_not_shown(stack: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"o42.load\n: SparkException: it failed{stack}")

    monkeypatch.setattr("serde_chain.cli.check_config.print_config", fail)
    done = CliRunner().invoke(commands, ["check-config", str(file)])
    assert done.output == "Error: RuntimeError: o42.load\n: SparkException: it failed. Add --debug for a traceback\n"


def test_wrong_usage_has_exit_code_2(tmp_path: Path) -> None:
    assert "does not exist" in run("check-config", tmp_path / "missing.toml", code=2).stderr
    assert "No such command" in run("chek-config", code=2).stderr
    assert "Missing argument" in run("inspect", code=2).stderr


def test_a_server_that_cannot_be_fetched_is_an_error_with_its_explanation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_java(*_arguments: object, **_options: object) -> None:
        raise ServiceMissingError("install Java 17")

    monkeypatch.setattr("serde_chain.cli.demo.alerts.run_demo", no_java)
    monkeypatch.setattr("sys.argv", ["serde-chain", "demo"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == "Error: install Java 17\n"
