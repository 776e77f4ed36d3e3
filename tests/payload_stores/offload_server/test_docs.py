"""The operators' page says what is true: its code runs, its options exist, its bounds are those of the code."""

import re
import shlex
from pathlib import Path

import click
import httpx2
import pytest

from payload_stores import bounded_http as http
from payload_stores.offload_server import Limits, acls, add_user, app, files, refusals, runner, uploads
from payload_stores.scram.server import ScramServer
from serde_chain.cli.commands import commands
from tests.environments import section

WHOLE = (Path(__file__).parents[3] / "docs" / "operators.md").read_text(encoding="utf-8")
PAGE = WHOLE.replace(section(WHOLE, "In production"), "")  # the rest: test_deployment.py


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_commands_have_these_options() -> None:
    lines = [line for block in blocks("console") for line in block.replace("\\\n", " ").splitlines()]
    called = [shlex.split(line[line.index("serde-chain") :])[1:] for line in lines if "serde-chain offload" in line]
    assert {call[1] for call in called if call[0] == "offload-server"} == {
        "add-user", "list-users", "remove-user", "add-token", "list-tokens", "remove-token", "run",
    }  # fmt: skip
    for group, name, *arguments in called:
        command = commands.commands[group]
        assert isinstance(command, click.Group)
        options = {option for parameter in command.commands[name].params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= options


def test_all_options_of_run_are_on_the_page() -> None:
    group = commands.commands["offload-server"]
    assert isinstance(group, click.Group)
    for parameter in group.commands["run"].params:
        assert parameter.opts[0] in PAGE


def test_permissions(tmp_path: Path) -> None:
    [toml] = blocks("toml")
    (tmp_path / "acl.toml").write_text(toml)
    found = acls.FileAcls(tmp_path / "acl.toml")
    assert found.allows("alice", acls.WRITE, "alerts.new", "")
    assert found.allows("bob", acls.READ, "alerts.internal", "")
    assert not found.allows("alice", acls.READ, "alerts.internal", "")
    assert files.toml(toml.encode())["super-users"] == ["admin"]


def test_bounds() -> None:
    limits = Limits()
    scram = ScramServer.__init__.__kwdefaults__
    assert scram is not None
    for text in (
        f"{limits.max_bytes} by default; at most what fits into BSON, {app._MOST_BYTES} ",
        f"| {uploads._MAX_FIELDS} bytes |",
        f"| {limits.transfers}; more wait for {limits.idle_seconds:g} s, then get 503 |",
        f"| {limits.transfers_per_user}; {limits.transfers_per_address} |",
        f"| {runner._CONNECTIONS}; {runner._CONNECTIONS_PER_ADDRESS}; more are closed |",
        f"after {limits.idle_seconds:g} s | {limits.min_bytes_per_second} bytes per second",
        f"| {runner._HANDSHAKE_SECONDS:g} s |",
        f"waits {refusals._FIRST_WAIT:g} s",
        f"up to {refusals._LONGEST_WAIT:g} s",
        f"| {limits.idle_seconds:g} s; {limits.transfer_seconds:g} s |",
        f"| {limits.store_seconds:g} s |",
        f"| {http._HEADER_SECONDS:g} s, {http._HEADER_BYTES} bytes, {http._HEADER_FIELDS} fields |",
        f"| {http._STALLED_SECONDS:g} s |",
        f"| {scram['max_exchanges']}; {scram['exchange_seconds']:g} s |",
        f"| {scram['session_seconds']} s |",
    ):
        assert text in PAGE


def test_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = blocks("python")
    monkeypatch.chdir(tmp_path)
    add_user(tmp_path / "users.json", "alice", "pencil")
    (tmp_path / "acl.toml").write_text(blocks("toml")[0])
    seen = []

    def ready(url: str) -> None:
        seen.append(httpx2.get(url, headers={"Authorization": "Bearer x"}).status_code)
        raise InterruptedError

    code = code.replace("/srv/messages", str(tmp_path)).replace("/var/lib/offload", str(tmp_path))
    code = code.replace("ready=print", "ready=ready").replace("port=8080", "port=0")
    with pytest.raises(InterruptedError):
        exec(compile(code, "operators.md", "exec"), {"ready": ready})  # noqa: S102, our own text
    assert seen == [401]
