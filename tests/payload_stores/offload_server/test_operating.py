"""What operators do: look whether all is well, change files while the server runs, start a second one by mistake."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import bson
import httpx2
import pytest

from payload_stores.errors import ConfigError, PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from payload_stores.offload_server import FileAcls, FileCredentials, OffloadApp, add_user
from payload_stores.scram import ScramAuth
from serde_chain.testing.services import OffloadServer
from tests.cli.test_offload_server import make_certificate
from tests.payload_stores.offload_server.test_bad_requests import Raw, eventually

if TYPE_CHECKING:
    from tests.payload_stores.offload_server.conftest import Message, NewMessage, Serve, Site

UPLOAD = "/topic/data+oversized"


def process_of(server: OffloadServer) -> int:
    return int(re.findall(r"Started server process \[(\d+)\]", log_of(server))[-1])


def log_of(server: OffloadServer) -> str:
    return (server.folder / "offload-server.log").read_text()


def test_head_is_get_without_the_body(site: Site, message: Message) -> None:
    client = site.client()
    assert client.post(UPLOAD, content=message.body).status_code == 201
    for _ in range(2):  # by two rounds and by one
        got, head = client.get(message.path), client.head(message.path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(got.content))
    assert client.head("/msg/x").status_code == 404
    for path in ("/health", "/live"):
        assert httpx2.head(site.server.url + path).status_code == 200
    assert client.head(UPLOAD).status_code == 405


class Away:
    """Says nothing while it is away."""

    def __init__(self) -> None:
        self.is_away = False

    def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
        self.check()
        return True

    def check(self) -> None:
        if self.is_away:
            raise PayloadStoreUnavailableError("the broker did not return its ACLs")


def test_health_says_that_the_broker_is_away(serve: Serve) -> None:
    away = Away()
    url = serve(MemoryStore(), authorizer=away)
    assert httpx2.get(url + "/health").status_code == 200
    away.is_away = True
    answer = httpx2.get(url + "/health")
    assert (answer.status_code, answer.text) == (503, "the broker does not answer\n")
    assert httpx2.get(url + "/live").status_code == 200


@pytest.mark.full
def test_health_that_takes_long_is_looked_at_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, message: Message
) -> None:
    class Hanging(Away):
        def __init__(self) -> None:
            super().__init__()
            self.asked = 0
            self.answers = threading.Event()

        def check(self) -> None:
            self.asked += 1
            self.answers.wait(30)

        def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
            return True

    monkeypatch.setattr("payload_stores.offload_server.app._HEALTH_SECONDS", 0.2)
    hanging = Hanging()
    url = serve(MemoryStore(), authorizer=hanging)
    for _ in range(10):
        answer = httpx2.get(url + "/health")
        assert (answer.status_code, answer.text) == (503, "the broker does not answer\n")
    assert hanging.asked == 1
    # The threads are free for others.
    with httpx2.Client(auth=ScramAuth("alice", "alice-secret")) as client:
        assert client.post(url + UPLOAD, content=message.body).status_code == 201
    hanging.answers.set()
    assert eventually(lambda: httpx2.get(url + "/health").status_code == 200)


def test_who_may_not_read_is_not_told_what_there_is(site: Site, new_message: NewMessage) -> None:
    secret, private = new_message(), new_message()
    assert site.client("admin").post("/topic/data.secret+oversized", content=secret.body).status_code == 201
    assert site.client("admin").post(UPLOAD, content=private.body).status_code == 201
    unknown = new_message()
    # alice may read other topics, bob none.
    for user, status in (("alice", 404), ("bob", 403)):
        client = site.client(user)
        answers = {client.get(path).text for path in (secret.path, unknown.path, "/msg/x")}
        assert len(answers) == 1
        assert {client.get(path).status_code for path in (secret.path, unknown.path, "/msg/x")} == {status}
    assert site.client("alice").get(private.path).status_code == 200


def test_two_servers_with_one_folder(tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    add_user(users, "alice", "pencil")
    (tmp_path / "acl.toml").write_text("")

    def make() -> OffloadApp:
        acls = FileAcls(tmp_path / "acl.toml")
        return OffloadApp(MemoryStore(), tmp_path / "data", FileCredentials(users), acls)

    first = make()
    with pytest.raises(ConfigError, match=f"another server has .*data', process {os.getpid()}"):
        make()
    first.close()
    make().close()


@pytest.mark.full
def test_a_killed_server_gives_its_folder_back(new_message: NewMessage) -> None:
    with OffloadServer() as server:
        done = subprocess.run(
            [sys.executable, "-c", "from serde_chain.cli import main; main()", *arguments_of(process_of(server))],
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert f"another server has the folder '{server.folder / 'index'}', process {process_of(server)}" in done.stderr
        server.kill()
        server.restart()
        message = new_message()
        with client_of(server) as client:
            assert client.post(UPLOAD, content=message.body).status_code == 201


def arguments_of(process: int) -> list[str]:
    """With which it was started, on another port."""
    given = Path(f"/proc/{process}/cmdline").read_text().rstrip("\0").split("\0")
    arguments = given[given.index("offload-server") :]
    arguments[arguments.index("--port") + 1] = "0"
    return arguments


def client_of(server: OffloadServer, user: str = "alice") -> httpx2.Client:
    return httpx2.Client(base_url=server.url, auth=ScramAuth(user, server.users[user]), timeout=60)


@pytest.mark.full
@pytest.mark.parametrize("shared", [False, True])
def test_what_a_killed_server_leaves(new_message: NewMessage, shared: bool) -> None:
    body = new_message(bytes(4_000_000)).body
    with OffloadServer(arguments=["--shared-store"] if shared else []) as server:

        def parts() -> list[Path]:
            return list((server.folder / "payloads").rglob("*.part"))

        raw = Raw(server.url, f"Content-Length: {len(body)}\r\n", body[:3_000_000])
        assert eventually(lambda: bool(parts()))
        server.kill()
        raw.close()
        assert parts()
        server.restart()
        assert bool(parts()) is shared
        with client_of(server) as client:
            message = new_message()
            assert client.post(UPLOAD, content=message.body).status_code == 201
            # One that was stopped in order has left nothing, and the next one does not look.
            process = process_of(server)
            os.kill(process, signal.SIGTERM)
            assert eventually(lambda: not Path("/proc", str(process)).exists())
            server.restart()
            assert client.get(message.path).status_code == 200
        assert log_of(server).count("were deleted") == (0 if shared else 1)


def test_files_are_for_their_owner_alone(message: Message) -> None:
    with OffloadServer() as server, client_of(server) as client:
        assert client.post(UPLOAD, content=message.body).status_code == 201
        files = [path for name in ("index", "payloads") for path in (server.folder / name).rglob("*")]
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files}
    assert set(modes.values()) == {0}
    assert {"index.sqlite3", "index.sqlite3-wal", "index.lock", "data"} <= modes.keys()


def test_an_index_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    from payload_stores.offload_server.index import Index

    path = tmp_path / "index.sqlite3"
    Index(path).close()
    path.chmod(0o644)
    Index(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_users_file_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = tmp_path / "users.json"
    add_user(users, "alice", "pencil")
    FileCredentials(users)
    assert caplog.records == []
    users.chmod(0o640)
    FileCredentials(users)
    assert f"{users} may be read or changed by others (mode 640)" in caplog.text


def test_hang_up_reads_files_again(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with OffloadServer(arguments=["--tls-cert", str(certificate), "--tls-key", str(key)]) as server:
        old = ssl.create_default_context(cafile=str(certificate))
        assert httpx2.get(server.url + "/live", verify=old).status_code == 200
        users = server.folder / "users.json"
        before = users.stat()
        # A change that leaves no trace in time and size, as one within a clock's tick.
        content = users.read_text().replace('"alice"', '"ALICE"')
        with users.open("r+") as file:
            file.write(content)
        os.utime(users, ns=(before.st_atime_ns, before.st_mtime_ns))
        make_certificate(tmp_path)
        new = ssl.create_default_context(cafile=str(certificate))
        os.kill(process_of(server), signal.SIGHUP)
        assert eventually(lambda: "the certificate" in log_of(server) and "users.json was read again" in log_of(server))
        assert httpx2.get(server.url + "/live", verify=new).status_code == 200
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(server.url + "/live", verify=old)
        for user, status in (("alice", 401), ("ALICE", 404)):
            auth = ScramAuth(user, server.users["alice"])
            assert httpx2.get(server.url + "/msg/x", auth=auth, verify=new).status_code == status
        # What cannot be read stays as it was.
        key.write_text("junk")
        os.kill(process_of(server), signal.SIGHUP)
        assert eventually(lambda: "the certificate that is in use stays" in log_of(server))
        assert httpx2.get(server.url + "/live", verify=new).status_code == 200


@pytest.mark.parametrize(
    ("url", "address", "allowed", "status"),
    [
        ("http://site", "192.0.2.1", False, 401),
        ("http://site", "192.0.2.1", True, 404),
        ("https://site", "192.0.2.1", False, 404),
        ("http://site", "127.0.0.1", False, 404),
        ("http://site", "::1", False, 404),
    ],
)
def test_tokens_over_plain_http(  # noqa: PLR0917  pytest passes them by name
    tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str, address: str, allowed: bool, status: int
) -> None:
    class Tokens:
        def verify(self, token: str) -> str | None:
            return "tom" if token == "good" else None

    users, acls = tmp_path / "users.json", tmp_path / "acl.toml"
    add_user(users, "alice", "pencil")
    acls.write_text('[users."*"]\nread = ["*"]\n')
    app = OffloadApp(
        MemoryStore(), tmp_path, FileCredentials(users), FileAcls(acls), tokens=Tokens(), tokens_over_http=allowed
    )

    async def get() -> int:
        # From an address that a test cannot really have.
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app, client=(address, 1))) as client:
            return (await client.get(url + "/msg/x", headers={"Authorization": "Bearer good"})).status_code

    assert asyncio.run(get()) == status
    assert ("came over plain http" in caplog.text) is (status == 401)
    app.close()


def test_permissions_given_a_moment_ago(serve: Serve, message: Message) -> None:
    class Broker:
        """Remembers what it was told."""

        def __init__(self) -> None:
            self.given = self.known = False

        def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
            return self.known

        def refresh(self) -> None:
            self.known = self.given

    broker = Broker()
    url = serve(MemoryStore(), authorizer=broker)
    with httpx2.Client(auth=ScramAuth("alice", "alice-secret")) as client:
        assert client.post(url + UPLOAD, content=message.body).status_code == 403
        broker.given = True
        assert client.post(url + UPLOAD, content=message.body).status_code == 201
        assert bson.decode(client.get(url + message.path).content)["message"] == b"payload"


def test_a_log_of_uploads_and_no_secrets(serve: Serve, message: Message, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = serve(MemoryStore())
    raw = Raw(url, f"Content-Length: {len(message.body)}\r\n", message.body)
    assert raw.answer()[0] == 201
    raw.close()
    assert f"alice uploaded {message.id}" in caplog.text
    assert "alice-secret" not in caplog.text
    assert "payload" not in caplog.text.replace("payload_stores", "")
