"""Confluent's registries of schemas, with their rules, and of data encryption keys, over HTTP.

Confluent's mocks of them live in one process. This server has one pair of mocks as its state, and answers the REST
clients of any process. It is no more than what these clients ask for.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import (
    DekAlgorithm,
    DekRegistryClient,
)

from tests.http_servers import reply, serve


class ConfluentRegistries:
    """The two registries behind one address, as Confluent's server has them.

    Attributes:
        url: Their address.
        schemas: The mock behind it, for tests that look past the server.
        keys: Likewise.
        asked: The paths of all requests.
    """

    def __init__(self) -> None:
        self.url = ""
        self.schemas: Any = SchemaRegistryClient.new_client({"url": "mock://"})
        self.keys: Any = DekRegistryClient.new_client({"url": "mock://"})
        self.asked: list[str] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        split = urlsplit(request.path)
        path = tuple(map(unquote, split.path.strip("/").split("/")))
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else {}
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        self.asked.append(split.path)
        try:
            status, found = 200, self._found(request.command, path, query, body)
        except SchemaRegistryError as error:
            status, found = error.http_status_code, {"error_code": error.error_code, "message": error.error_message}
        reply(request, status, json.dumps(found).encode())

    def _found(self, method: str, path: tuple[str, ...], query: dict[str, str], body: dict[str, Any]) -> Any:  # noqa: PLR0911  a table
        match method, *path:
            case "GET", "schemas", "ids", number:
                return self.schemas.get_schema(int(number)).to_dict()
            case "GET", "schemas", "guids", guid:
                return self.schemas.get_schema_by_guid(guid).to_dict()
            case "GET", "subjects", subject, "versions", version:
                which: Any = version if version == "latest" else int(version)
                return self.schemas.get_version(subject, which).to_dict()
            case "POST", "subjects", subject, "versions":
                return self.schemas.register_schema_full_response(subject, Schema.from_dict(body)).to_dict()
            case "POST", "subjects", subject:
                return self.schemas.lookup_schema(subject, Schema.from_dict(body)).to_dict()
            case "GET", "dek-registry", "v1", "keks", name:
                return self.keys.get_kek(name).to_dict()
            case "POST", "dek-registry", "v1", "keks":
                return self.keys.register_kek(body["name"], body["kmsType"], body["kmsKeyId"]).to_dict()
            case "GET", "dek-registry", "v1", "keks", name, "deks", subject, "versions", version:
                return self.keys.get_dek(name, subject, _algorithm(query), int(version)).to_dict()
            case "POST", "dek-registry", "v1", "keks", name, "deks", subject:
                key = body["encryptedKeyMaterial"]
                return self.keys.register_dek(name, subject, key, _algorithm(body), body["version"]).to_dict()
        raise SchemaRegistryError(404, 40400, f"no {'/'.join(path)}")


def _algorithm(given: dict[str, Any]) -> DekAlgorithm:
    return DekAlgorithm(given["algorithm"])


@contextmanager
def confluent_registries() -> Iterator[ConfluentRegistries]:
    """Run the registries."""
    running = ConfluentRegistries()
    with serve(running.answer) as running.url:
        yield running
