"""``serde-chain browse`` as a user calls it."""

import asyncio
import http.client
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from serde_chain.cli.browse.app import _AT_ONCE, Pages
from serde_chain.cli.browse.command import serve
from serde_chain.cli.browse.guard import Guard
from serde_chain.cli.browse.topic import AbandonedError, Patience
from serde_chain.errors import ConfigError
from serde_chain.testing.services import KafkaBroker
from tests.cli.browse.conftest import PORT, TOKEN, ask, produce
from tests.cli.browse.running import browsing
from tests.cli.conftest import COMMAND, environment, run
from tests.environments import ROOT


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Path:
    path = tmp_path / "client.toml"
    path.write_text(f'"bootstrap.servers" = "{broker.bootstrap_servers}"\n')
    return path


def test_it_listens_on_this_machine_and_ends_in_order(config: Path, topic: str) -> None:
    with ExitStack() as closed, browsing(config, topic) as link:
        address = urlsplit(link)
        assert address.hostname == "127.0.0.1"
        assert len(address.query) > 40
        assert address.port is not None
        server = closed.enter_context(closing(http.client.HTTPConnection("127.0.0.1", address.port, timeout=60)))
        server.request("GET", "/")
        refused = server.getresponse()
        assert (refused.status, b"link" in refused.read()) == (403, True)
        server.request("GET", f"/?{address.query}")
        entry = server.getresponse()
        entry.read()
        cookie = str(entry.headers["set-cookie"]).partition(";")[0]
        for path in ("/", "/style.css", "/script.js", f"/topics/{topic}/records/0/0"):
            server.request("GET", path, headers={"cookie": cookie})
            answer = server.getresponse()
            answer.read()
            assert answer.status == (404 if "records" in path else 200)
            assert "server" not in answer.headers
        server.request("HEAD", "/", headers={"cookie": cookie})
        assert server.getresponse().read() == b""
        # It ends although a browser keeps its connection.


def test_ctrl_c_as_soon_as_the_link_is_there_ends_it_in_order() -> None:
    told = []

    def ready(link: str) -> None:
        signal.raise_signal(signal.SIGINT)
        told.append(link)  # the server has the signal, and ends behind this call

    with closing(Pages({"bootstrap.servers": "127.0.0.1:1"}, 1)) as pages, pytest.raises(KeyboardInterrupt):
        serve(pages, "/", 0, ready)
    assert len(told) == 1


def test_a_link_that_cannot_be_printed_ends_it() -> None:
    def ready(_link: str) -> None:
        raise BrokenPipeError

    with closing(Pages({"bootstrap.servers": "127.0.0.1:1"}, 1)) as pages, pytest.raises(BrokenPipeError):
        serve(pages, "/", 0, ready)


def hang(_data: bytes, _ctx: object) -> bytes:
    """A deserializer that does not return; it says so on standard error."""
    sys.stderr.write("begun\n")
    sys.stderr.flush()
    while True:
        threading.Event().wait(0.1)  # as Python code does, it lets signals through


@pytest.mark.full
@pytest.mark.parametrize("command", ["browse", "consume"])
def test_sigterm_ends_it_at_once(broker: KafkaBroker, topic: str, tmp_path: Path, command: str) -> None:
    path = tmp_path / "client.toml"
    settings = {**broker.client_config(), "value.deserializers": f"{__name__}.hang"}
    path.write_text("".join(f'"{name}" = "{value}"\n' for name, value in settings.items()))
    produce(broker.client_config(), topic, (b"key", b"value"))
    more = [] if command == "browse" else ["--follow"]
    with ExitStack() as closed:
        process = closed.enter_context(
            subprocess.Popen(
                [*COMMAND, command, str(path), topic, *more],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment(), "PYTHONPATH": str(ROOT)},
            )
        )
        closed.callback(process.kill)
        assert process.stdout is not None
        assert process.stderr is not None
        if command == "browse":
            address = urlsplit(process.stdout.readline().strip())
            server = closed.enter_context(
                closing(http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=60))
            )
            server.request("GET", f"/?{address.query}")
            cookie = str(server.getresponse().headers["set-cookie"]).partition(";")[0]
            server.close()
            server.request("GET", f"/topics/{topic}/search?contains=x", headers={"cookie": cookie})
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == ((0, "") if command == "browse" else (130, "Interrupted\n"))


@pytest.mark.full
def test_connections_without_a_request_do_not_lock_others_out(config: Path, topic: str) -> None:
    """All of 64 connections wait until the server closes them."""
    with ExitStack() as closed, browsing(config, topic) as link:
        address = urlsplit(link)
        assert address.port is not None
        place = ("127.0.0.1", address.port)
        idle = [closed.enter_context(socket.create_connection(place, timeout=60)) for _ in range(64)]
        for each in idle:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""
        server = closed.enter_context(closing(http.client.HTTPConnection(*place, timeout=60)))
        server.request("GET", f"/?{address.query}")
        answer = server.getresponse()
        answer.read()
        assert answer.status == 303


@pytest.mark.full
def test_what_is_wrong_is_reported_before_the_link(config: Path, topic: str, tmp_path: Path) -> None:
    assert "Unknown topic" in run("browse", config, "no-such-topic", code=1).stderr
    (tmp_path / "other.toml").write_text('"bootstrap.servers" = "127.0.0.1:1"\n')
    done = run("browse", tmp_path / "other.toml", topic, "--timeout", 2, code=1)
    assert "bootstrap.servers" in done.stderr
    assert done.stdout == ""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("browse", config, topic, "--port", taken.getsockname()[1], code=1)
    assert "cannot be listened on" in done.stderr


def test_a_page_is_given_up_when_its_browser_goes(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(_self: Any, _wanted: Any, patience: Patience, **_options: Any) -> Any:
        begun.set()
        try:
            while True:
                patience.check()
        except AbandonedError:
            ended.set()
            raise

    monkeypatch.setattr("serde_chain.cli.browse.topic.Topic.page", endless)
    with closing(Pages(broker.client_config(), timeout_s=60)) as pages:
        asyncio.run(leave(pages, begun))
        assert ended.wait(60)


def test_clicks_whose_browser_has_gone_take_no_turns(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, free = threading.Semaphore(0), threading.Event()
    read: list[str] = []

    def slow(_self: Any, _wanted: Any, _patience: Patience, *, at: str, **_options: Any) -> Any:
        read.append(at)
        begun.release()
        assert free.wait(60)
        raise AbandonedError

    monkeypatch.setattr("serde_chain.cli.browse.topic.Topic.page", slow)

    async def click(pages: Pages) -> None:
        stays = threading.Event()
        busy = [asyncio.ensure_future(leave(pages, stays, b"at=busy")) for _ in range(_AT_ONCE)]
        for _ in busy:
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        gone = threading.Event()
        gone.set()
        waiting = [asyncio.ensure_future(leave(pages, gone, b"at=gone")) for _ in range(3)]
        await asyncio.sleep(0)  # they wait for their turns
        free.set()
        await asyncio.gather(*waiting)
        stays.set()
        await asyncio.gather(*busy)

    with closing(Pages(broker.client_config(), timeout_s=60)) as pages:
        asyncio.run(click(pages))
    assert read == ["busy"] * _AT_ONCE


async def leave(pages: Pages, when: threading.Event, query: bytes = b"") -> None:
    """Ask for a page, and go at an event."""
    questions: list[Any] = [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        if len(questions) == 1 and not when.is_set():
            await asyncio.to_thread(when.wait, 60)
        return questions.pop(0)

    async def send(_message: Any) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": "/topics/images", "query_string": query, "headers": []}
    await asyncio.wait_for(pages.app(scope, receive, send), 60)


@pytest.mark.full
def test_a_broker_that_goes_and_comes_back() -> None:
    """A broker of its own, which is started twice."""
    with KafkaBroker() as broker:
        broker.create_topic("images")
        config: dict[str, Any] = broker.client_config()
        produce(config, "images", (b"M 51", b"x"))
        with closing(Pages(config, timeout_s=1)) as pages:
            broker.kill()
            app = Guard(pages.app, TOKEN, PORT)
            for address in ("/", "/topics/images", "/topics/images/records/0/0"):
                page = ask(app, address)
                assert (page.status, "Check bootstrap.servers" in page.text) == (502, True)
        broker.restart()
        with closing(Pages(config, timeout_s=60)) as pages:
            assert "M 51" in ask(Guard(pages.app, TOKEN, PORT), "/topics/images").text


def test_a_configuration_with_a_mistake() -> None:
    with pytest.raises(ConfigError, match="large-mesage"):
        Pages({"bootstrap.servers": "localhost:1", "value.deserializers": "large-mesage"})
