"""A broker that does not answer makes one line in the log, and not one every second."""

import itertools
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from payload_stores.client_log import with_log, without_log
from payload_stores.kafka.broker import Broker
from serde_chain import Consumer, Producer, ShareConsumer
from serde_chain.clients.confluent import dead_letters, share_consumer, transaction_outcome
from serde_chain.clients.confluent import producer as producer_module
from serde_chain.testing.services import KafkaBroker
from serde_chain.testing.services.ports import free_ports

LINE = (
    "FAIL [rdkafka#{client}] [thrd:{host}:9092/bootstrap]: {host}:9092/bootstrap: Connect to {address} failed: "
    "Connection refused (after {ms}ms in state CONNECT)"
)

# The log of a process remembers what it has told: each test begins an hour later.
_starts = itertools.count(1000.0, 3600.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [next(_starts)]
    monkeypatch.setattr("payload_stores.client_log.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("name", ["serde_chain.librdkafka", "payload_stores.kafka"])
def test_a_failure_is_reported_once_a_minute(clock: list[float], caplog: pytest.LogCaptureFixture, name: str) -> None:
    log = Broker({}, 1000).settings({})["logger"] if name == "payload_stores.kafka" else with_log({})["logger"]
    assert log.name == name
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


@pytest.mark.usefixtures("clock")
def test_a_broker_has_one_line_by_each_of_its_names(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("serde_chain.librdkafka")
    for name in ("[::1]:9092/bootstrap", "sasl_plaintext://[::1]:9092/1", "GroupCoordinator: [::1]:9092"):
        log.error(
            "FAIL [rdkafka#consumer-1] [thrd:%s]: %s: Connect to ipv6#[::1]:9092 failed: Connection refused "
            "(after 0ms in state CONNECT)",
            name.partition(": ")[0],
            name,
        )
    (told,) = caplog.messages
    assert told.startswith("[::1]:9092: Connect to ipv6#[::1]:9092 failed: Connection refused; check bootstrap.servers")


@pytest.mark.parametrize(
    "after", ["(after 1ms in state CONNECT)", "(after 0ms in state CONNECT, 1 identical error(s) suppressed)"]
)
@pytest.mark.parametrize(
    ("problem", "is_of_address"),
    [
        ("Failed to resolve 'kafka-a:9092': Name or service not known", True),
        ("Connection setup timed out in state CONNECT", True),
        ("SASL authentication error: Authentication failed: invalid credentials with SASL mechanism PLAIN", False),
        ("SSL handshake failed: certificate verify failed: verify that ssl.ca.location is correct", False),
        ("Disconnected", False),
        ("Disconnected while requesting ApiVersion: might be caused by a connection to an SSL listener?", False),
    ],
)
@pytest.mark.usefixtures("clock")
def test_only_a_broker_that_does_not_answer_is_looked_for(
    problem: str, is_of_address: bool, after: str, caplog: pytest.LogCaptureFixture
) -> None:
    line = f"FAIL [rdkafka#producer-1] [thrd:kafka-a:9092/1]: kafka-a:9092/1: {problem} {after}"
    logging.getLogger("serde_chain.librdkafka").error(line)
    hint = "; check bootstrap.servers and that the broker runs" if is_of_address else ""
    end = "" if problem.endswith("?") else "."
    assert caplog.messages == [f"kafka-a:9092: {problem}{hint}{end} The client keeps trying"]


@pytest.mark.parametrize("ms", [0, 61_000])
@pytest.mark.usefixtures("clock")
def test_a_connection_that_is_closed_at_once_is_a_warning(ms: int, caplog: pytest.LogCaptureFixture) -> None:
    what = "Disconnected: connection closed by peer: receive 0 after POLLIN"
    line = f"[thrd:kafka-a:9093/bootstrap]: kafka-a:9093/bootstrap: {what} (after {ms}ms in state UP)"
    with_log({})["logger"].log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#producer-1", line)
    told = f"kafka-a:9093: {what}; check security.protocol and its login. The client keeps trying"
    assert caplog.messages == ([told] if ms == 0 else [])


@pytest.mark.usefixtures("clock")
def test_an_idle_connection_that_is_closed_has_no_advice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "serde_chain.librdkafka")
    line = "[thrd:b:9093/1]: b:9093/1: Disconnected: connection closed by peer (after 61000ms in state UP)"
    with_log({})["logger"].log(logging.INFO, "%s [%s] %s", "FAIL", "rdkafka#producer-1", line)
    assert caplog.messages == ["b:9093: Disconnected: connection closed by peer. The client keeps trying"]


def test_a_client_without_a_login_is_told(broker: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    servers = broker.client_config("alice")["bootstrap.servers"]
    with Producer({"bootstrap.servers": servers, "message.timeout.ms": 1000}) as producer:
        producer.produce("t", b"")
        producer.flush(5)
    assert sum("check security.protocol and its login" in message for message in caplog.messages) == 1


def test_closing_logs_what_it_waits_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(producer_module, "_PATIENCE_SECONDS", 0)
    with Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 100}) as producer:
        producer.produce("t", b"")
    assert caplog.messages == ["closing the producer waits for at most 1 records, up to message.timeout.ms"]


def test_other_lines_pass(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("serde_chain.librdkafka")
    lines = ["SESSTMOUT [rdkafka#consumer-1] [thrd:main]: Consumer group session timed out", "100 %s"] * 2
    for line in lines:
        log.warning(line)
    assert caplog.messages == lines


@pytest.mark.parametrize("key", ["logger", "log_cb", "log_level", "debug"])
def test_a_chosen_log_stays(key: str) -> None:
    assert with_log({key: 1}) == without_log({key: 1}) == {key: 1}


def test_the_clients_beside_one_with_the_log_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would write the same failure of the broker, every second."""
    made: list[dict[str, Any]] = []

    def client(given: dict[str, Any]) -> Any:
        made.append(given)
        nothing = dict.fromkeys(("list_topics", "assign", "close"), lambda *_args, **_options: None)
        return SimpleNamespace(**nothing)

    settings = {"bootstrap.servers": "127.0.0.1:1"}
    monkeypatch.setattr(dead_letters, "confluent_kafka", SimpleNamespace(Producer=client))
    monkeypatch.setattr(share_consumer, "AdminClient", client)
    monkeypatch.setattr(transaction_outcome, "confluent_kafka", SimpleNamespace(Consumer=client))
    dead_letters.DeadLetters(None, settings, "dead", 1000)._open()
    share_consumer._Topics(settings).list_topics()
    assert not transaction_outcome.was_aborted(settings, ("images", 0, 0), timeout=0)
    assert [given["log_level"] for given in made] == [0, 0, 0]


def _producing(config: dict[str, Any]) -> Producer[Any]:
    producer: Producer[Any] = Producer({**config, "message.timeout.ms": 1000})
    producer.produce("images", b"x")
    return producer


def _consuming(config: dict[str, Any]) -> Consumer[Any]:
    consumer: Consumer[Any] = Consumer({**config, "group.id": "g"})
    consumer.subscribe(["images"])
    return consumer


def _sharing(config: dict[str, Any]) -> ShareConsumer:
    consumer = ShareConsumer({**config, "group.id": "g"})
    consumer.subscribe(["images"])
    return consumer


@pytest.mark.parametrize("make", [_producing, _consuming, _sharing])
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
