"""``serde-chain offload-server`` as an operator calls it."""

import datetime as dt
import json
import os
import pty
import ssl
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bson
import httpx2
import pytest

from payload_stores.scram import ScramAuth
from serde_chain.testing.services import OffloadServer
from tests.cli import conftest

COMMAND = [sys.executable, "-W", "error", "-c", "from serde_chain.cli import main; main()", "offload-server"]


def run(*arguments: object, code: int = 0, text: str = "") -> "subprocess.CompletedProcess[str]":
    return conftest.run("offload-server", *arguments, code=code, stdin=text)


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    """What `run` needs at least, but --host and --port."""
    (tmp_path / "store.toml").write_text(f'"local.path" = "{tmp_path}/payloads"\n')
    (tmp_path / "acl.toml").write_text('[users."*"]\nread = ["*"]\nwrite = ["*"]\n')
    run("add-user", tmp_path / "users.json", "alice", "--password-stdin", text="pencil\n")
    return [
        "--store", "local", "--config", tmp_path / "store.toml", "--data", tmp_path / "data",
        "--credentials", tmp_path / "users.json", "--acl-file", tmp_path / "acl.toml",
    ]  # fmt: skip


@contextmanager
def running(*arguments: object) -> Iterator[str]:
    """A server that the command runs; yields the URL that it prints."""
    server = subprocess.Popen([*COMMAND, "run", *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("Listening on ")
        yield line.split()[-1]
    finally:
        server.terminate()
        server.communicate(timeout=30)


@pytest.mark.full
def test_add_user(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    assert "was added" in run("add-user", file, "alice", "--password-stdin", text="pencil-1\n").stdout
    assert "new password" in run("add-user", file, "alice", "--password-stdin", text="pencil-2\n").stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "pencil" not in file.read_text()
    assert "is empty" in run("add-user", file, "bob", "--password-stdin", code=1).stderr
    refused = run("add-user", file, "bob", text="pencil\n", code=2)
    assert "use --password-stdin" in refused.stderr
    assert "GetPassWarning" not in refused.stderr
    assert list(json.loads(file.read_text())["users"]) == ["alice"]
    file.write_text("{}")
    assert "not a file of users" in run("add-user", file, "bob", "--password-stdin", text="x\n", code=1).stderr


def test_password_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    here, there = pty.openpty()
    with subprocess.Popen([*COMMAND, "add-user", str(file), "alice"], stdin=there, stdout=there, stderr=there) as asked:
        os.close(there)
        shown = b""
        try:
            for _ in range(2):
                # The blank comes from getpass, which drops what was typed before.
                while not shown.endswith(b": "):
                    shown += os.read(here, 1000)
                os.write(here, b"pencil\n")
                shown += b"|"
            assert asked.wait(30) == 0
        finally:
            asked.kill()
        shown += os.read(here, 1000)
    os.close(here)
    assert b"pencil" not in shown
    assert list(json.loads(file.read_text())["users"]) == ["alice"]


@pytest.mark.full
def test_port_zero_prints_the_real_one(files: list[object], tmp_path: Path) -> None:
    token = run("add-token", tmp_path / "tokens.toml", "tom").stdout.strip()
    with running(*files, "--port", 0, "--tokens", tmp_path / "tokens.toml") as url:
        with httpx2.Client(base_url=url, auth=ScramAuth("alice", "pencil")) as client:
            message = uuid.uuid4()
            body = bson.encode({"message": b"m", "headers": [["_id", message.bytes]]})
            assert client.post("/topic/t+oversized", content=body).status_code == 201
        answer = httpx2.get(f"{url}/msg/{message}", headers={"Authorization": f"Bearer {token}"})
        assert bson.decode(answer.content)["message"] == b"m"
        # Users that are added while the server runs.
        run("add-user", tmp_path / "users.json", "bob", "--password-stdin", text="crayon\n")
        with httpx2.Client(base_url=url, auth=ScramAuth("bob", "crayon")) as client:
            assert client.get(f"/msg/{message}").status_code == 200
    assert httpx2.URL(url).port != 0


def test_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with OffloadServer(arguments=["--tls-cert", str(certificate), "--tls-key", str(key)]) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        auth = ScramAuth("alice", server.users["alice"], mechanism="SCRAM-SHA-512")
        with httpx2.Client(base_url=server.url, auth=auth, verify=context) as client:
            assert client.get("/msg/x").status_code == 404
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(server.url)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@pytest.mark.full
def test_list_and_remove_users(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    for name in ("bob", "alice"):
        run("add-user", file, name, "--password-stdin", text="pencil\n")
    assert run("list-users", file).stdout == "alice\nbob\n"
    assert run("list-users", file, "--json").stdout == '{"name": "alice"}\n{"name": "bob"}\n'
    assert "bob was removed" in run("remove-user", file, "bob").stdout
    assert run("list-users", file).stdout == "alice\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "has no user bob" in run("remove-user", file, "bob", code=1).stderr
    assert "does not exist" in run("list-users", tmp_path / "none", code=2).stderr


@pytest.mark.full
def test_list_and_remove_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    tokens = [run("add-token", file, name).stdout.strip() for name in ("tom", "ann", "tom")]
    shown = [line.split() for line in run("list-tokens", file).stdout.splitlines()]
    assert [name for _, name in shown] == ["ann", "tom", "tom"]
    assert all(digest.startswith("sha256:") for digest, _ in shown)
    assert not any(token in file.read_text() for token in tokens)
    assert "1 token was removed" in run("remove-token", file, shown[0][0]).stdout
    assert "2 tokens begin" in run("remove-token", file, "sha256:", code=1).stderr
    assert "2 tokens were removed" in run("remove-token", file, "tom").stdout
    assert run("list-tokens", file).stdout == ""
    assert "has no token of tom" in run("remove-token", file, "tom", code=1).stderr


@pytest.mark.full
def test_tokens_over_plain_http_only_where_asked_for(files: list[object], tmp_path: Path) -> None:
    run("add-token", tmp_path / "tokens.toml", "tom")
    given = [*files, "--port", 0, "--tokens", tmp_path / "tokens.toml"]
    assert "--tokens-over-http" in run("run", *given, "--host", "0.0.0.0", code=2).stderr  # noqa: S104
    # It is refused for the address, not for the option, which comes first.
    assert "cannot be listened on" in run("run", *given, "--host", "192.0.2.1", "--tokens-over-http", code=1).stderr


@pytest.mark.full
def test_wrong_options(files: list[object], tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_text("x = 1")
    without_acls = files[:-2]
    cases: list[tuple[list[object], int, str]] = [
        (without_acls, 2, "set --broker-config or --acl-file"),
        ([*files, "--announce"], 2, "--announce requires --broker-config"),
        ([*files, "--tls-cert", junk], 2, "set --tls-cert and --tls-key together"),
        ([*files, "--tls-cert", junk, "--tls-key", junk], 1, "certificate or key cannot be used"),
        ([*files, "--credentials", junk], 1, "not a file of users"),
        ([*files, "--tokens", junk], 1, "a file of tokens"),
        ([*files, "--acl-file", junk], 1, "a file of permissions"),
        ([*files, "--max-bytes", 1 << 31], 1, "do not fit into BSON"),
        ([*files, "--store", "nowhere"], 1, "nowhere"),
        ([*files, "--host", "192.0.2.1"], 1, "cannot be listened on"),
        ([*files, "--data", "/proc/nothing"], 1, "cannot be made"),
    ]
    for arguments, code, text in cases:
        assert text in run("run", "--port", 0, *arguments, code=code).stderr
