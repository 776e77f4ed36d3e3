"""Every command's help, and the page about them: their examples run."""

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from payload_stores.offload_server import add_user
from serde_chain.cli.commands import commands
from serde_chain.testing.services import KafkaBroker
from tests.cli.conftest import COMMAND, environment, run_process
from tests.environments import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
IMAGE = b"SIMPLE  =                    T" + bytes(2_000_000)


def all_commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, *path, name)
        else:
            yield (*path, name)


COMMANDS = [*all_commands(commands)]


@pytest.mark.parametrize("group", [(), ("offload-server",)], ids=["serde-chain", "offload-server"])
def test_the_list_of_commands_says_what_each_is_for(group: tuple[str, ...]) -> None:
    done = CliRunner().invoke(commands, [*group, "--help"], terminal_width=80)
    assert "..." not in done.output.partition("\nCommands:\n")[2]


def test_every_command_is_on_the_page() -> None:
    for name in commands.commands:
        assert f"`{name}`" in PAGE


@pytest.fixture(scope="module")
def folder(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder and the topics that the examples are about."""
    folder = tmp_path_factory.mktemp("examples")
    [config] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    config = config.replace("localhost:9092", broker.bootstrap_servers)
    (folder / "client.toml").write_text(config.replace("/tmp/serde-chain-payloads", str(folder / "payloads")))  # noqa: S108, the page's text
    (folder / "m51.fits").write_bytes(IMAGE)
    (folder / "store.toml").write_text('"local.path" = "served"\n')
    (folder / "acl.toml").write_text('[users."*"]\nread = ["*"]\n')
    (folder / "tokens.toml").write_text(f'[tokens]\n"sha256:3f1b{"0" * 60}" = "pipeline"\n')
    for name in ("alice", "bob"):
        add_user(folder / "users.json", name, "pencil")
    (folder / "folder").mkdir()
    (folder / "folder" / "m87.fits").write_bytes(IMAGE)
    return folder


@pytest.fixture
def substituted(broker: KafkaBroker) -> dict[str, str]:
    """Topics of this test's own in place of the page's."""
    suffix = uuid.uuid4().hex[:8]
    topics = ("images", "copies", "events", "events-stamped", "tiles", "tiles-dead")
    names = {name: f"{name}-{suffix}" for name in topics}
    for name in names.values():
        broker.create_topic(name)
    return names


@pytest.mark.full
def test_the_commands_of_the_page_run(broker: KafkaBroker, folder: Path, substituted: dict[str, str]) -> None:
    """Each command of the page is a process."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    lines = [
        line.removeprefix("$ ")
        for block in blocks
        for line in block.splitlines()
        if not re.search("pip install|chain browse", line)
    ]
    assert len(lines) >= 14
    for line in lines:
        at = line.replace("localhost:9092", broker.bootstrap_servers)
        at = at.replace("/tmp/serde-chain-payloads", str(folder / "payloads"))  # noqa: S108, the page's text
        command = re.sub(r"\b(images|copies)\b", lambda name: substituted[name[1]], at)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            env={**environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stderr == "" or "Error" not in done.stderr
    assert (folder / "m51-again.fits").read_bytes() == b"first"


# What starts Spark runs in tests of its own: test_demo.py and test_jobs.py.
IN_SPARK = {("demo",), ("audit",), ("migrate",), ("sweep",)}
# Its ports are fixed ones: test_services.py.
AT_PORTS = {("services",)}
# They end when they are told to.
SERVERS = {("browse",), ("offload-server", "run")}


def examples_of(path: tuple[str, ...]) -> list[str]:
    [examples] = re.findall(r"\n  Example:\n((?:    serde-chain .*\n)+)", run_process(*path, "--help").stdout)
    return [line.strip() for line in examples.splitlines()]


@pytest.mark.full
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_that_is_right(
    path: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for example in examples_of(path):
        _, *arguments = shlex.split(example)
        assert tuple(arguments[: len(path)]) == path
        command: click.Command = commands
        for name in path:
            assert isinstance(command, click.Group)
            command = command.commands[name]
        with command.make_context(path[-1], arguments[len(path) :]) as context:  # what is wrong in it raises
            assert context.params
        if path[0] in {"browse", "produce", "consume", "inspect", "check-config"}:
            assert f"$ {example}\n" in PAGE


@pytest.mark.full
@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in IN_SPARK | AT_PORTS], ids=" ".join)
def test_the_examples_of_help_run(path: tuple[str, ...], folder: Path, substituted: dict[str, str]) -> None:
    if path[0] not in {"offload-server", "check-config"}:
        run_process("produce", "client.toml", substituted["images"], "m51.fits", folder=folder)
    for example in examples_of(path):
        _, *arguments = (substituted.get(word, word) for word in shlex.split(example))
        if path in SERVERS:
            serve(arguments, folder)
        elif path == ("offload-server", "add-user"):
            run_process(*arguments, "--password-stdin", stdin="pencil\n", folder=folder)
        else:
            run_process(*arguments, folder=folder)


def serve(arguments: list[str], folder: Path) -> None:
    """Run a server until it says that it is ready, and end it."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=pipe, stderr=pipe, env=environment()) as server:
        try:
            assert server.stdout is not None
            assert b"http://127.0.0.1:" in server.stdout.readline(), server.communicate(timeout=60)
            server.send_signal(signal.SIGINT)
            _, errors = server.communicate(timeout=60)
        finally:
            server.kill()
    assert (server.returncode, b"Traceback" in errors) == (0, False), errors


@pytest.mark.full
def test_keys_of_other_clients_are_no_news(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers = {broker.bootstrap_servers}\nvalue.serializer = bytes\nvalue.deserializer = bytes\n"
        "linger.ms = 5\nfetch.min.bytes = 1\n"
    )
    broker.create_topic(f"{topic}-stamped")
    for arguments in (
        ["replay", config, topic, "--to", f"{topic}-stamped"],
        ["stamp", config, "--check", topic],
        ["stamp", config, "--from", topic, "--to", f"{topic}-stamped", "--until-end"],
        ["produce", config, topic, "--key", "k"],
        ["consume", config, topic],
        ["inspect", config, topic],
        ["doctor", config, topic],
    ):
        assert run_process(*arguments, stdin="value").stderr == ""


def test_stamp_as_the_first_version_had_it(folder: Path, substituted: dict[str, str]) -> None:
    said = run_process("stamp", "--config", "client.toml", "--check", substituted["events"], folder=folder).stdout
    assert said == "0 records, 0 findings\n"
    assert "Missing argument 'CONFIG'" in run_process("stamp", "--check", "events", code=2).stderr


@pytest.mark.parametrize("seconds", ["nan", "-1", "0", "inf", "1e30"])
@pytest.mark.parametrize("command", ["browse", "consume", "doctor", "inspect", "produce", "replay"])
def test_time_limits_that_are_none(command: str, seconds: str, folder: Path) -> None:
    done = CliRunner().invoke(commands, [command, str(folder / "client.toml"), "images", "--timeout", seconds])
    assert done.exit_code == 2
    assert "is not a number of seconds" in done.output
