"""Registries that begin an answer and send a byte now and then: each resets the timeouts of HTTP clients."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from serde_chain import DeserializerChain, RecordContext, SchemaRegistryError
from serde_chain.schemas import deadline
from tests.http_servers import serve


@pytest.fixture
def dripping() -> Iterator[str]:
    over = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", "100000")
        request.end_headers()
        while not over.wait(0.05):
            request.wfile.write(b" ")
            request.wfile.flush()

    with serve(answer) as url:
        yield url
        over.set()


@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({"schema.registry.url": "URL"}, b"\0\0\0\0\1\2"),
        ({"schema.registry.url": "URL", "schema.registry.type": "apicurio"}, b"\0\0\0\0\1\2"),
        (
            {"schema.registry.type": "glue", "glue.endpoint.url": "URL", "glue.region": "eu-west-1"},
            b"\3\0" + bytes(16) + b"\2",
        ),
    ],
    ids=["confluent", "apicurio", "glue"],
)
def test_a_request_has_one_deadline(
    dripping: str, settings: dict[str, Any], data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "_DEADLINE_S", 0.3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    config = {name: dripping if value == "URL" else value for name, value in settings.items()}
    with DeserializerChain.from_config({"value.deserializers": "avro", **config}) as chain:
        with pytest.raises(SchemaRegistryError, match=r"no complete answer within 0\.3 s") as caught:
            chain(data, RecordContext("alerts", "value", []))
        assert caught.value.transient
        assert not caught.value.about_record
