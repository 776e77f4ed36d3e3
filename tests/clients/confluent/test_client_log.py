"""A broker that does not answer makes one line in the log, and not one every second."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from serde_chain import Consumer, Producer
from serde_chain.clients.confluent.client_log import with_log, without_log
from serde_chain.testing.services.ports import free_ports

LINE = (
    "FAIL [rdkafka#{client}] [thrd:{host}:9092/bootstrap]: {host}:9092/bootstrap: Connect to {address} failed: "
    "Connection refused (after {ms}ms in state CONNECT)"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("serde_chain.clients.confluent.client_log.time.monotonic", lambda: now[0])
    return now


def test_a_failure_is_told_once_a_minute(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("serde_chain.librdkafka")
    line: dict[str, Any] = {"client": "producer-1", "host": "kafka-a", "address": "ipv4#10.0.0.1:9092", "ms": 0}
    for change in ({}, {"ms": 3}, {"client": "consumer-2"}, {"address": "ipv6#[::1]:9092"}, {"host": "kafka-b"}):
        log.error(LINE.format(**line | change))
    clock[0] += 61
    log.error(LINE.format(**line))
    told = "{}:9092: Connect to ipv4#10.0.0.1:9092 failed: Connection refused; check bootstrap.servers"
    assert [message.partition(" and that")[0] for message in caplog.messages] == [
        told.format("kafka-a"),
        told.format("kafka-b"),
        told.format("kafka-a"),
    ]


def test_other_lines_pass(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("serde_chain.librdkafka")
    lines = ["SESSTMOUT [rdkafka#consumer-1] [thrd:main]: Consumer group session timed out", "100 %s"] * 2
    for line in lines:
        log.warning(line)
    assert caplog.messages == lines


@pytest.mark.parametrize("key", ["logger", "log_cb", "log_level", "debug"])
def test_a_chosen_log_stays(key: str) -> None:
    assert with_log({key: 1}) == without_log({key: 1}) == {key: 1}


def _producing(config: dict[str, Any]) -> Producer[Any]:
    producer: Producer[Any] = Producer({**config, "message.timeout.ms": 1000})
    producer.produce("images", b"x")
    return producer


def _consuming(config: dict[str, Any]) -> Consumer[Any]:
    consumer: Consumer[Any] = Consumer({**config, "group.id": "g"})
    consumer.subscribe(["images"])
    return consumer


@pytest.mark.parametrize("make", [_producing, _consuming])
def test_a_client_without_a_broker_says_so(
    make: Callable[[dict[str, Any]], Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    with make({"bootstrap.servers": f"127.0.0.1:{port}"}) as client:
        while not caplog.messages:
            client.poll(0.1)
    assert f"127.0.0.1:{port}: Connect to" in caplog.text
    assert "check bootstrap.servers" in caplog.text
    assert "%3|" not in capfd.readouterr().err
