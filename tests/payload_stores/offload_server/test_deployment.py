"""The page on running the server for good: its unit, its container file and its backup are tried."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from payload_stores.offload_server import add_user
from payload_stores.scram import ScramAuth
from serde_chain.testing.services import OffloadServer
from tests.cli.test_offload_server import make_certificate
from tests.environments import section
from tests.payload_stores.offload_server.test_bad_requests import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.payload_stores.offload_server.conftest import NewMessage

ROOT = Path(__file__).parents[3]
PAGE = section((ROOT / "docs" / "operators.md").read_text(encoding="utf-8"), "In production")
BINARIES = Path(sys.executable).parent
UPLOAD = "/topic/t+oversized"


def block(language: str, containing: str = "") -> str:
    [found] = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if containing in text]
    return str(found)


def unit() -> dict[str, str]:
    """The unit's settings."""
    lines = block("ini").replace("\\\n", " ").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_unit_is_one(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "offload-server.service"
    # The program has to be there.
    path.write_text(block("ini").replace("/opt/offload/bin", str(BINARIES)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "offload-server" in line]
    assert (done.returncode, ours) == (0, [])


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    log = folder / "log"
    with log.open("w") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, text=True) as it:
        try:
            assert eventually(lambda: "Listening on" in log.read_text()), log.read_text()
            yield log.read_text().rpartition("Listening on ")[2].split()[0], it
        finally:
            it.terminate()
            it.wait(60)


def here(folder: Path, command: list[str], **changed: str) -> list[str]:
    """A command of the page with a local store, no broker, and a port of its own."""
    (folder / "store.toml").write_text(f'"local.path" = "{folder}/payloads"\n')
    (folder / "acl.toml").write_text('[users."*"]\nread = ["*"]\nwrite = ["*"]\n')
    add_user(folder / "users.json", "alice", "pencil")
    options = {"--store": "local", "--data": str(folder / "index"), "--host": "127.0.0.1", "--port": "0", **changed}
    for option, value in options.items():
        command[command.index(option) + 1] = value
    at = command.index("--broker-config")
    command[at : at + 2] = ["--acl-file", "acl.toml"]
    return [argument for argument in command if argument != "--announce"]


@pytest.mark.full
def test_command_of_the_unit(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    settings = unit()
    command = shlex.split(settings["ExecStart"].replace("/opt/offload/bin", str(BINARIES)))
    command = here(tmp_path, command, **{"--tls-cert": str(certificate), "--tls-key": str(key)})
    assert settings["ExecReload"] == "kill -HUP $MAINPID"
    context = ssl.create_default_context(cafile=str(certificate))
    with running(command, tmp_path) as (url, process):
        assert httpx2.get(url + "/live", verify=context).status_code == 200
        process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "was read again" in (tmp_path / "log").read_text())
        assert httpx2.get(url + "/health", verify=context).status_code == 200
    assert process.returncode == 0


@pytest.mark.full
def test_backup(tmp_path: Path, new_message: NewMessage) -> None:
    message, later = new_message(), new_message()
    with (
        OffloadServer() as server,
        httpx2.Client(base_url=server.url, auth=ScramAuth("alice", server.users["alice"])) as client,
    ):
        assert client.post(UPLOAD, content=message.body).status_code == 201
        script = block("sh", "backup").replace("/opt/offload/bin", str(BINARIES))
        script = script.replace("/var/lib/offload", str(server.folder / "index"))
        script = script.replace("/var/backups/offload", str(tmp_path))
        subprocess.run(["sh", "-e", "-c", script], check=True, timeout=60)
        assert client.post(UPLOAD, content=later.body).status_code == 201
        server.kill()
        index = server.folder / "index"
        for name in ("index.sqlite3-wal", "index.sqlite3-shm"):
            (index / name).unlink(missing_ok=True)
        shutil.copy(tmp_path / "index.sqlite3", index / "index.sqlite3")
        server.restart()
        assert client.get(message.path).status_code == 200
        assert client.get(later.path).status_code == 404
    assert (tmp_path / "index.sqlite3").stat().st_mode & 0o077 == 0


def test_hook_of_certificates() -> None:
    done = subprocess.run(["sh", "-n"], input=block("sh", "systemctl"), text=True, check=False, timeout=10)
    assert done.returncode == 0


def steps() -> list[tuple[str, str]]:
    """Instructions of the container file, with what they are given."""
    lines = block("dockerfile").replace("\\\n", "").splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


@pytest.mark.servers
def test_steps_of_the_container_file(tmp_path: Path, new_message: NewMessage) -> None:
    """Installs from the package registry, as building the image would."""
    prefix = tmp_path / "opt"
    user = f"-o {os.getuid()} -g {os.getgid()}"

    def moved(text: str) -> str:
        text = text.replace("/opt/offload", str(prefix)).replace("/var/lib/offload", str(tmp_path / "index"))
        return text.replace("serde-chain[", f"{ROOT}[").replace("-o 10001 -g 10001", user)

    for instruction, text in steps():
        if instruction == "RUN":
            subprocess.run(["sh", "-e", "-c", moved(text)], check=True, timeout=600)
    given = dict(steps())
    command = [moved(part) for part in (*json.loads(given["ENTRYPOINT"]), *json.loads(given["CMD"]))]
    check = json.loads(given["HEALTHCHECK"].removeprefix("CMD "))
    with running(here(tmp_path, command), tmp_path) as (url, _):
        address = url.removeprefix("http://")
        subprocess.run([moved(part).replace("127.0.0.1:8080", address) for part in check], check=True, timeout=30)
        message = new_message()
        with httpx2.Client(base_url=url, auth=ScramAuth("alice", "pencil")) as client:
            assert client.post(UPLOAD, content=message.body).status_code == 201
            assert client.get(message.path).status_code == 200


def test_metrics_on_the_page() -> None:
    source = (ROOT / "payload_stores" / "offload_server" / "metrics.py").read_text(encoding="utf-8")
    for name in re.findall(r'"(offload_\w+)"', source):
        assert f"`{name}" in PAGE
