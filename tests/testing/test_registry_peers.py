"""Confluent's client and serializers as peers in tests: they wait for no answer that does not come."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain.testing.services import SchemaRegistry
from tests.http_servers import reply, serve

TEXT = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
CONTEXT = SerializationContext("topic", MessageField.VALUE, [])


class Elsewhere(SchemaRegistry):
    """A registry at some address."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._address = f"http://127.0.0.1:{port}"

    @property
    def url(self) -> str:
        return self._address


@pytest.mark.full
def test_a_registry_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Elsewhere(silent.getsockname()[1]).client(timeout_s=0.2)
        with pytest.raises(Exception, match=r"(?i)timed out"):
            client.register_schema("subject", Schema(TEXT, "AVRO"))


@pytest.fixture
def asked() -> Iterator[tuple[int, list[str]]]:
    """A registry that knows one schema and never answers any question about associations; port, and what was asked."""
    paths: list[str] = []
    over = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        paths.append(request.path)
        request.rfile.read(int(request.headers.get("Content-Length", 0)))
        if "associations" in request.path:
            over.wait(60)
            return
        reply(request, 200, json.dumps({"id": 1, "version": 1, "subject": "topic-value", "schema": TEXT}).encode())

    with serve(answer) as url:
        yield int(url.rpartition(":")[2]), paths
        over.set()


def test_peers_ask_for_no_associations(asked: tuple[int, list[str]]) -> None:
    port, paths = asked
    registry = Elsewhere(port)
    client, conf = registry.client(timeout_s=5), registry.serializer_conf()
    data = AvroSerializer(client, TEXT, conf=conf)({"id": 7}, CONTEXT)
    assert AvroDeserializer(client, conf=conf)(data, CONTEXT) == {"id": 7}
    assert paths
    assert not [path for path in paths if "associations" in path]
