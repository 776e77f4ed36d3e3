"""The processes behind the services: started, waited for, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serde_chain.testing.services import data_folder
from serde_chain.testing.services.errors import ServiceStartError
from serde_chain.testing.services.ports import HOST, can_bind, free_ports, http_answers, port_answers
from serde_chain.testing.services.process import Service, ServiceProcess

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]

# A server that starts a helper of its own, as some do, and writes down both process ids.
FAMILY = """
import os, subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {helper.pid}\\n")
time.sleep(60)
"""

# A parent of such a server.
PARENT = """
import sys, time
from pathlib import Path
from serde_chain.testing.services.process import ServiceProcess
server = ServiceProcess("family", [sys.executable, "-c", FAMILY, sys.argv[2]], Path(sys.argv[1]))
server.wait_until(lambda: Path(sys.argv[2]).exists() and Path(sys.argv[2]).read_text().endswith("\\n"), seconds=20)
print("ready", flush=True)
ENDING
"""


class HttpServer(Service):
    """Python's own web server, standing for any."""

    name = "http"

    def _prepare(self, folder: Path) -> list[str]:
        (folder / "www").mkdir(exist_ok=True)
        (folder / "www" / "hello").write_text("hello")
        options = ["--bind", "127.0.0.1", "--directory", "www", str(self._port())]
        return [sys.executable, "-m", "http.server", *options]

    def _ready(self) -> bool:
        return http_answers(self._port(), "/hello")


# A server that goes on for a while when it is asked to end, and its parent.
SLOW = """
import os, signal, sys, time
from pathlib import Path
def end(*_):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
PARENT_OF_SLOW = """
import sys, time
from pathlib import Path
from tests.testing.test_process import SlowServer
server = SlowServer(folder=Path(sys.argv[1])).start()
print("ready", flush=True)
time.sleep(60)
"""


class SlowServer(Service):
    """Ends when there is a file ``end`` beside its folder."""

    name = "slow"

    def _prepare(self, folder: Path) -> list[str]:
        return [sys.executable, "-c", SLOW, str(folder.parent / "end")]

    def _ready(self) -> bool:
        assert self._folder is not None
        return "ready" in (self._folder / "slow.log").read_text()


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "server"
    folder.mkdir()
    return folder


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter where it ends between opening and reading
        return False
    return state != "Z"


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_kept_folder_is_of_one_server_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "WAIT_SECONDS", 0)
    with HttpServer(folder=tmp_path) as server:
        with pytest.raises(ServiceStartError, match=f"another one uses {tmp_path}. End it, or choose another folder"):
            HttpServer(folder=tmp_path).start()
        server.restart()
        assert server.running
    with HttpServer(folder=tmp_path) as server:
        assert server.running


def test_a_kept_folder_is_free_when_the_server_of_a_killed_program_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    command = [sys.executable, "-c", PARENT_OF_SLOW, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
    with monkeypatch.context() as patched:
        patched.setattr(data_folder, "WAIT_SECONDS", 0)
        with pytest.raises(ServiceStartError, match="another one uses"):
            SlowServer(folder=folder).start()
    (tmp_path / "end").touch()
    with SlowServer(folder=folder) as server:
        assert server.running


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ServiceStartError, match=f"cannot keep its data in {tmp_path}/file/x: Not a directory. Choose"):
        HttpServer(folder=tmp_path / "file" / "x").start()


def test_a_server_that_ends_at_its_start_is_explained_by_its_log(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    server = ServiceProcess("broken", [sys.executable, "-c", "print('no such port'); raise SystemExit(3)"], folder)
    with pytest.raises(ServiceStartError, match=r"(?s)broken server ended with exit code 3.*no such port"):
        server.wait_until(lambda: False, seconds=20)
    assert not folder.exists()


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    server = ServiceProcess("absent", ["no-such-program"], folder_of(tmp_path))
    with pytest.raises(ServiceStartError, match="no-such-program"):
        server.wait_until(lambda: False, seconds=20)


def test_a_server_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    server = ServiceProcess("slow", SLEEP, folder)
    started = time.monotonic()
    with pytest.raises(ServiceStartError, match=r"slow server was not ready within 0\.3 s"):
        server.wait_until(lambda: False, seconds=0.3)
    assert time.monotonic() - started < 5
    assert not server.running
    assert not folder.exists()


def test_a_server_has_its_grace_to_end_by_itself(tmp_path: Path) -> None:
    folder, note = folder_of(tmp_path), tmp_path / "note"
    program = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1]).write_text('ended'), sys.exit()))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    server = ServiceProcess("polite", [sys.executable, "-c", program, str(note)], folder, grace=20)
    server.wait_until(lambda: "ready" in server.log_tail(), seconds=20)
    server.stop()
    server.stop()  # a second time does nothing
    assert note.read_text() == "ended"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    "ending",
    ["server.stop()", "sys.exit()", "raise RuntimeError", "time.sleep(60)"],
    ids=["stopped", "exited", "failed", "killed"],
)
def test_nothing_is_left_when_the_parent_is_gone(tmp_path: Path, ending: str) -> None:
    folder, note = folder_of(tmp_path), tmp_path / "pids"
    command = [
        sys.executable,
        "-c",
        PARENT.replace("FAMILY", repr(FAMILY)).replace("ENDING", ending),
        str(folder),
        str(note),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        if ending.startswith("time.sleep"):
            parent.kill()
    pids = [int(pid) for pid in note.read_text().split()]
    assert len(pids) == 2
    assert eventually(lambda: not any(alive(pid) for pid in pids))
    assert eventually(lambda: not folder.exists())


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_server_ends_with_its_supervisor(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    server = ServiceProcess("family", [sys.executable, "-c", FAMILY, str(note)], folder_of(tmp_path))
    server.wait_until(lambda: note.exists() and note.read_text().endswith("\n"), seconds=20)
    pid, helper = (int(text) for text in note.read_text().split())
    os.kill(server._supervisor.pid, signal.SIGKILL)
    try:
        assert eventually(lambda: not alive(pid))
    finally:
        os.kill(helper, signal.SIGKILL)
        server.stop()


def test_a_killed_service_restarts_with_its_ports_and_files() -> None:
    with HttpServer() as server:
        port, folder = server._port(), server._folder
        assert folder is not None
        server.kill()
        assert not port_answers(port)
        assert folder.exists()
        server.restart()
        assert http_answers(port, "/hello")
    assert not port_answers(port)
    assert not folder.exists()


@pytest.mark.full
def test_a_taken_port_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_ports(2)
    offers = iter([[taken], [free]])
    monkeypatch.setattr("serde_chain.testing.services.process.free_ports", lambda _count: next(offers))
    with socket.create_server(("127.0.0.1", taken)), HttpServer() as server:
        assert server._port() == free


def test_a_service_that_is_not_started_says_so() -> None:
    with pytest.raises(ServiceStartError, match=r"http server is not started: call start\(\)"):
        HttpServer()._port()


def test_ports_are_free_and_distinct() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert not any(port_answers(port) for port in ports[:5])


def test_the_port_of_a_server_that_ended_with_open_connections_is_free() -> None:
    """It closed them, so that the system remembers them for a minute."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not can_bind(port)
        with socket.create_connection((HOST, port)) as client:
            server.accept()[0].close()
            assert client.recv(1) == b""
    assert can_bind(port)
