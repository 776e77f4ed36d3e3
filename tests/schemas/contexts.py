"""A registry with contexts, metadata and references, over HTTP: what Apicurio's interface of Confluent's lacks.

Ids count from 1 in each context, as those of schemas that were imported into contexts do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from serde_chain.schemas.registry import context_of
from tests.http_servers import reply, serve

_UNKNOWN = 404, {"error_code": 40401, "message": "not found"}


class ContextRegistry:
    """The registry.

    Attributes:
        url: Its address.
        asked: The method, the path and the query of each request.
        logins: The login of each request; None without one.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str, dict[str, list[str]]]] = []
        self.logins: list[str | None] = []
        self._subjects: dict[str, list[dict[str, Any]]] = {}
        self._ids: dict[str, list[dict[str, Any]]] = {}

    def register(self, subject: str, schema: str, kind: str = "AVRO", **more: Any) -> int:
        """Register a schema under a subject; ``more`` are ``references`` and ``metadata``."""
        content = {"schema": schema, "schemaType": kind, "references": [], **more}
        ids, versions = self._ids.setdefault(context_of(subject), []), self._subjects.setdefault(subject, [])
        if content not in ids:
            ids.append(content)
        number = ids.index(content) + 1
        if all(version["id"] != number for version in versions):
            versions.append({**content, "subject": subject, "id": number, "version": len(versions) + 1})
        return number

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        split = urlsplit(request.path)
        query = parse_qs(split.query)
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else {}
        path = [unquote(part) for part in split.path.strip("/").split("/")]
        self.asked.append((request.command, split.path, query))
        self.logins.append(request.headers.get("Authorization"))
        status, found = self._found(request.command, path, query, body)
        reply(request, status, json.dumps(found).encode())

    def _found(self, method: str, path: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if path[0] == "schemas":
            ids = self._ids.get(context_of(query.get("subject", [""])[0]), [])
            return _one(ids, int(path[2]) - 1)
        subject, versions = path[1], self._subjects.get(path[1], [])
        match method, *path[2:]:
            case "GET", "versions":
                return 200, list(range(1, len(versions) + 1))
            case "GET", "versions", version:
                return _one(versions, len(versions) - 1 if version == "latest" else int(version) - 1)
            case "GET", "metadata":
                wanted = set(zip(query["key"], query["value"], strict=True))
                fit = [one for one in versions if wanted <= set(one.get("metadata", {}).get("properties", {}).items())]
                return _one(fit, len(fit) - 1)
            case "POST", "versions":
                kind = body.get("schemaType", "AVRO")
                return 200, {"id": self.register(subject, body["schema"], kind, references=body.get("references", []))}
        content = body.get("schema"), body.get("references", [])
        return _one([one for one in versions if (one["schema"], one["references"]) == content], 0)


def _one(found: list[dict[str, Any]], at: int) -> tuple[int, Any]:
    return (200, found[at]) if 0 <= at < len(found) else _UNKNOWN


@contextmanager
def context_registry() -> Iterator[ContextRegistry]:
    """Run a registry."""
    registry = ContextRegistry()
    with serve(registry.answer) as registry.url:
        yield registry
