"""Spans and metrics, as OpenTelemetry's own SDK gets them."""

import json
import subprocess
import sys
from typing import Any

import pytest

from serde_chain.telemetry import client_telemetry, observer
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import ROOT

SECONDS = 100
SIZE = 2_000_000


def run(program: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.telemetry.program", program, *arguments]
    answer = subprocess.run(command, check=True, timeout=SECONDS, cwd=ROOT, capture_output=True, text=True)
    assert answer.stderr == ""
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def spans(result: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [span for span in result["spans"] if span["name"].startswith(name)]


def points(result: dict[str, Any], metric: str, operation: str | None = None) -> list[dict[str, Any]]:
    return [
        point
        for point in result["metrics"][metric]["points"]
        if operation in {None, point["attributes"].get("messaging.operation.name")}
    ]


@pytest.fixture(scope="module")
def chains() -> dict[str, Any]:
    return run("chains")


def test_a_span_joins_the_records_own_trace_in_whatever_thread_it_is_made(chains: dict[str, Any]) -> None:
    (origin,), (caller,) = spans(chains, "origin"), spans(chains, "caller")
    up, up_without_header = spans(chains, "offload alerts")
    down, failed = spans(chains, "fetch alerts")
    for span in (up, down, failed):
        assert (span["trace"], span["parent"], span["links"]) == (origin["trace"], origin["id"], [caller["id"]])
    assert up_without_header["trace"] == caller["trace"]
    assert (up_without_header["parent"], up_without_header["links"]) == (caller["id"], [])


def test_a_span_says_what_is_known_of_the_payload_and_its_place(chains: dict[str, Any]) -> None:
    common = {
        "messaging.system": "kafka",
        "messaging.destination.name": "alerts",
        "messaging.message.body.size": SIZE,
        "serde_chain.store": "memory",
        "serde_chain.field": "value",
    }
    up, _ = spans(chains, "offload alerts")
    down, failed = spans(chains, "fetch alerts")
    assert up["attributes"] == {**common, "messaging.operation.name": "offload", "serde_chain.id": "random"}
    place = {"messaging.destination.partition.id": "3", "messaging.kafka.offset": 17}
    assert down["attributes"] == {**common, **place, "messaging.operation.name": "fetch"}
    assert (down["kind"], down["status"]) == ("INTERNAL", "UNSET")
    assert failed["attributes"]["error.type"] == "PayloadNotFoundError"
    assert (failed["status"], failed["description"], failed["events"]) == ("ERROR", None, [])


def test_nothing_that_is_reported_has_a_reference(chains: dict[str, Any]) -> None:
    reference = chains.pop("reference")
    told = json.dumps(chains)
    assert reference.rpartition("/")[2] not in told
    assert "secret" not in told


def test_metrics_of_payloads(chains: dict[str, Any]) -> None:
    assert {name: metric["unit"] for name, metric in chains["metrics"].items()} == {
        "serde_chain.payload.active": "{payload}",
        "serde_chain.payload.duration": "s",
        "serde_chain.payload.size": "By",
    }
    assert {metric["scope"] for metric in chains["metrics"].values()} == {"serde_chain"}
    (up,) = points(chains, "serde_chain.payload.size", "offload")
    assert (up["count"], up["sum"]) == (2, 2 * SIZE)
    durations = points(chains, "serde_chain.payload.duration", "fetch")
    assert [(point["count"], point["attributes"].get("error.type")) for point in durations] == [
        (1, None),
        (1, "PayloadNotFoundError"),
    ]
    assert [point["value"] for point in points(chains, "serde_chain.payload.active")] == [0, 0]


def test_what_a_cache_has_answered_is_counted() -> None:
    counts = points(run("cache"), "serde_chain.cache.requests")
    assert {point["attributes"]["serde_chain.outcome"]: point["value"] for point in counts} == {"miss": 1, "hit": 2}
    assert {point["attributes"]["serde_chain.store"] for point in counts} == {"memory"}


def test_what_a_client_tells_of_its_records() -> None:
    result = run("calls")
    assert result["is_on"]
    assert {name: (points(result, name)[0]["value"], metric["unit"]) for name, metric in result["metrics"].items()} == {
        "messaging.client.sent.messages": (3, "{message}"),
        "messaging.client.consumed.messages": (5, "{message}"),
        "serde_chain.record.retries": (1, "{message}"),
        "serde_chain.record.failures": (1, "{message}"),
        "serde_chain.record.skipped": (1, "{message}"),
        "serde_chain.record.dead_letters": (1, "{message}"),
    }
    assert points(result, "serde_chain.record.failures")[0]["attributes"] == {
        "messaging.system": "kafka",
        "messaging.destination.name": "alerts",
        "error.type": "PayloadNotFoundError",
    }


UNUSED = """
import sys
from serde_chain import RecordContext, SerializerChain
from serde_chain.telemetry import client_telemetry
settings = {"value.serializers": "bytes, large-message", "large.message.payload.store.class": "memory"}
SerializerChain.from_config(settings)(bytes(2_000_000), RecordContext("alerts", "value", []))
client_telemetry().sent("alerts")
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


def test_a_program_without_opentelemetry_imports_nothing_of_it() -> None:
    subprocess.run([sys.executable, "-c", UNUSED], check=True, timeout=SECONDS)


def test_without_it_all_calls_are_there() -> None:
    client = client_telemetry()
    client.consumed("alerts", 2)
    client.retried("alerts")
    client.failed("alerts", ValueError("no"))
    client.skipped("alerts", None)
    client.dead_lettered("alerts", None)
    assert observer("fetch", None, None)(len, "abc") == 3


@pytest.mark.full
def test_payloads_of_real_records(broker: KafkaBroker, topic: str) -> None:
    result = run("clients", broker.bootstrap_servers, topic)
    assert result["delivered"] == ["None"] * 3
    assert [size for _, size in result["came"]] == [SIZE, 5, SIZE]
    (program,) = spans(result, "program")
    assert [span["parent"] for span in spans(result, f"offload {topic}")] == [program["id"]] * 2
    places = [span["attributes"]["messaging.kafka.offset"] for span in spans(result, f"fetch {topic}")]
    assert sorted(places) == [0, 2]
    for metric in ("messaging.client.sent.messages", "messaging.client.consumed.messages"):
        (point,) = points(result, metric)
        assert (point["value"], point["attributes"]["messaging.destination.name"]) == (3, topic)


def test_records_that_make_trouble_are_counted(broker: KafkaBroker, topic: str) -> None:
    result = run("troubles", broker.bootstrap_servers, topic)
    assert (result["came"], result["skipped"]) == (2, 1)
    assert {
        name: [point["value"] for point in points(result, name)] for name in result["metrics"] if "record" in name
    } == {
        "serde_chain.record.failures": [1, 1],
        "serde_chain.record.skipped": [1],
    }
    kinds = [point["attributes"]["error.type"] for point in points(result, "serde_chain.record.failures")]
    assert sorted(kinds) == ["PayloadAccessDeniedError", "PayloadIntegrityError"]
    assert [point["value"] for point in points(result, "messaging.client.sent.messages")] == [3]
    assert [point["value"] for point in points(result, "messaging.client.consumed.messages")] == [2]


@pytest.mark.full
@pytest.mark.parametrize("program", ["instrumented", "proxied"])
def test_beside_the_instrumentation_of_confluent_kafka(broker: KafkaBroker, topic: str, program: str) -> None:
    result = run(program, broker.bootstrap_servers, topic)
    assert result["delivered"] == ["None"] * 3
    assert [names for names, _ in result["came"]] == [["traceparent"], ["traceparent"], ["band", "traceparent"]]
    (whole,) = spans(result, "program")
    sent, up, down = (spans(result, name) for name in (f"{topic} send", f"offload {topic}", f"fetch {topic}"))
    assert (len(sent), len(up), len(down)) == (3, 2, 2)
    assert {span["trace"] for span in (*sent, *up, *down)} == {whole["trace"]}
    # What is fetched belongs to the span under which its record was sent.
    assert {span["parent"] for span in down} == {sent[0]["id"], sent[2]["id"]}


def test_beside_the_instrumentation_of_aiokafka(broker: KafkaBroker, topic: str) -> None:
    result = run("beside_aiokafkas", broker.bootstrap_servers, topic)
    assert result["came"] == [[["traceparent"], SIZE], [["traceparent"], 5]]
    (whole,) = spans(result, "program")
    sent, up, down = (spans(result, name) for name in (f"{topic} send", f"offload {topic}", f"fetch {topic}"))
    assert (len(sent), len(up), len(down)) == (2, 1, 1)
    assert {span["trace"] for span in (*sent, *up, *down)} == {whole["trace"]}
    assert down[0]["parent"] in {span["id"] for span in sent}
