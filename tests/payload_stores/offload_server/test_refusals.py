"""Refused logins: what the log says of them, and how they are slowed down."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx2
import pytest

from payload_stores.memory import MemoryStore
from payload_stores.offload_server import refusals
from payload_stores.offload_server.log_throttle import LogThrottle
from payload_stores.offload_server.refusals import Refusals
from payload_stores.scram import ScramAuth

if TYPE_CHECKING:
    from tests.payload_stores.offload_server.conftest import Serve


class Tokens:
    """Knows one."""

    def verify(self, token: str) -> str | None:
        return "tom" if token == "good" else None


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "login refused" in record.getMessage()]


def test_wrong_passwords_are_logged_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    url = serve(MemoryStore())
    for user, password in (("alice", "wrong-1"), ("alice", "wrong-2"), ("nobody", "wrong-3")):
        with httpx2.Client(auth=ScramAuth(user, password)) as client:
            assert client.get(url + "/msg/x").status_code == 401
    assert lines(caplog) == [
        "login refused: user 'alice' from 127.0.0.1: the proof is wrong: another password, or no such user"
    ]
    # Who has no credentials yet, or old ones, is not refused.
    with httpx2.Client(auth=ScramAuth("bob", "bob-secret")) as client:
        assert client.get(url + "/msg/x").status_code == 404
    assert "wrong-" not in caplog.text
    assert len(lines(caplog)) == 1


def test_one_user_does_not_fill_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "payload_stores")
    url = serve(MemoryStore())
    for user in ("alice", "bob"):
        with httpx2.Client(auth=ScramAuth(user, f"{user}-secret")) as client:
            for _ in range(50):
                assert client.get(url + "/msg/x").status_code == 404
                assert client.post(url + "/topic/t+oversized", content=b"junk").status_code == 400
    told = [record.getMessage() for record in caplog.records if record.name.endswith("authentication")]
    assert [line.split(",")[0] for line in told] == [
        "alice GET '/msg/x': 404",
        "alice POST '/topic/t+oversized': 400",
        "bob GET '/msg/x': 404",
        "bob POST '/topic/t+oversized': 400",
    ]


def test_tokens_that_are_not_known(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    url = serve(MemoryStore(), tokens=Tokens())
    for token, status in (("bad-token", 401), ("good", 404)):
        assert httpx2.get(url + "/msg/x", headers={"Authorization": f"Bearer {token}"}).status_code == status
    assert lines(caplog) == ["login refused: user '' from 127.0.0.1: the token is not known"]
    assert "bad-token" not in caplog.text


def test_guesses_wait_longer_and_longer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(round(seconds, 3))
        now += seconds

    monkeypatch.setattr("payload_stores.offload_server.refusals.asyncio.sleep", sleep)
    counted = Refusals(clock=lambda: now)

    async def guess(times: int, user: str = "alice", address: str = "a") -> list[float]:
        waits.clear()
        for _ in range(times):
            assert await counted.turn(user, address)
            counted.refused(user, address, "wrong")
        return list(waits)

    assert asyncio.run(guess(9)) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    # Others do not pay for it.
    assert asyncio.run(guess(1, address="b")) == []
    assert asyncio.run(guess(1, user="bob")) == []
    # Who has the password is forgiven, and time heals.
    counted.accepted("alice", "a")
    assert asyncio.run(guess(1)) == []
    now += 601
    assert asyncio.run(guess(1)) == []
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == len(lines(caplog))


def test_guesses_at_the_same_time_stand_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds, 3))

    monkeypatch.setattr("payload_stores.offload_server.refusals.asyncio.sleep", sleep)
    counted = Refusals(clock=lambda: 0.0)
    for _ in range(10):
        counted.refused("alice", "a", "wrong")
    turns = [asyncio.run(counted.turn("alice", "a")) for _ in range(6)]
    assert turns == [True, True, True, True, False, False]
    assert waits == [5.0, 10.0, 15.0, 20.0]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_MOST", 100)
    counted = Refusals()
    for number in range(1000):
        counted.refused(f"user-{number}", "a", "wrong")
    assert len(counted._records) == 100


def test_rarely() -> None:
    now = 0.0
    rarely = LogThrottle(60.0, clock=lambda: now)
    assert [rarely.due("a") for _ in range(3)] == [0, None, None]
    assert rarely.due("b") == 0
    now = 60.0
    assert [rarely.due("a") for _ in range(2)] == [2, None]
