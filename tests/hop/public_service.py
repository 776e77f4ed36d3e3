"""A server that answers in the order of the public service (SCiMMA's archive-api).

Before it looks at the user, it looks at the id of a message, whether there is such a message, and whether anybody may
read it. What it takes and gives is that service's too: headers as pairs or as an object, or none; documents with
``metadata``; an id that is taken, or none, is answered with 201 and stored under another one.

Retractions as in its version 1.3 (``scripts/archive_api.py``, archive-core 1.3.1): ``retract_message`` marks a message
for its sender, ``fetch_message`` answers the same for a retracted one, and ``get_messages`` lists it with the mark,
among the public messages only: for others it looks up the permission for a topic that has the suffix still.
"""

import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import bson
from bson.binary import Binary

from payload_stores.scram.server import Credential, ScramServer, derive, invented
from payload_stores.scram.wire import MECHANISMS

SUFFIX: Final = "+oversized"

# Status, body, header fields, and who asked.
Answer = tuple[int, bytes, Mapping[str, str], "str | None"]


class PublicService:
    """Messages by their ids; those of topics whose names begin with ``hop-public`` are for anybody to read.

    Attributes:
        users: Passwords by name.
        messages: Documents by id, as they are handed out.
        requests: Method, status, and user of each request; the user is None where no user was looked at.
        may_read: Users who may read what is not public.
        secret: Topics that nobody may read.
        retracted: Ids of the retracted messages.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self.users = users
        self.messages: dict[uuid.UUID, dict[str, Any]] = {}
        self.requests: list[tuple[str, int, str | None]] = []
        self.may_read = set(users)
        self.secret: set[str] = set()
        self.retracted: set[uuid.UUID] = set()
        self._keys = {
            (user, mechanism): derive(password, mechanism, 4096)
            for user, password in users.items()
            for mechanism in MECHANISMS
        }
        # The public service offers no authentication in one round.
        self._scram = ScramServer(self, session_seconds=0)
        self._lock = Lock()

    def find(self, user: str, mechanism: str) -> Credential:
        """As :class:`ScramServer` asks for it."""
        return self._keys.get((user, mechanism)) or invented(b"secret", user, mechanism, 4096)

    def put(self, topic: str, document: Mapping[str, Any]) -> uuid.UUID:
        """Store what is posted; returns under which id."""
        pairs = document.get("headers", [])
        pairs = [list(pair) for pair in (pairs.items() if isinstance(pairs, Mapping) else pairs)]
        given = [value for name, value in pairs if name == "_id" and len(value) == 16]
        with self._lock:
            found = uuid.UUID(bytes=given[0]) if given else uuid.uuid4()
            if found in self.messages:
                found = uuid.uuid4()
            metadata = {"topic": topic, "partition": 0, "offset": 0, "timestamp": int(time.time() * 1000)}
            metadata |= {"key": document.get("key", b""), "headers": pairs, "_crc": zlib.crc32(document["message"])}
            self.messages[found] = {"message": document["message"], "metadata": metadata}
        return found

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Handle a request."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        status, content, headers, user = self._handle(handler, body)
        self.requests.append((handler.command, status, user))
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        address = urlsplit(handler.path)
        if address.path == "/messages":
            return self._list(handler, parse_qs(address.query))
        _, kind, name, *action = address.path.split("/")
        document: dict[str, Any] = {}
        if handler.command != "POST":
            assert (kind, action) == ("msg", [] if handler.command == "GET" else ["retraction"])
            try:
                document = self.messages[uuid.UUID(name)]
            except ValueError:
                return 400, b"Invalid Message ID", {}, None
            except KeyError:
                return 404, b"Message not found", {}, None
            if handler.command == "GET" and document["metadata"]["topic"].startswith("hop-public"):
                return 200, bson.encode(document), {}, None
        outcome = self._scram.answer(handler.headers.get("Authorization"))
        if outcome.user is None:
            return 401, b"", outcome.headers, None
        status, content = 201, b""
        if handler.command == "POST":
            assert name.endswith(SUFFIX)
            self.put(name.removesuffix(SUFFIX), bson.decode(body))
        elif handler.command == "PUT":
            status, content = self._mark(document, uuid.UUID(name), outcome.user, parse_qs(address.query))
        elif outcome.user in self.may_read and document["metadata"]["topic"] not in self.secret:
            status, content = 200, bson.encode(document)
        else:
            status, content = 403, b"Operation not permitted"
        return status, content, outcome.headers, outcome.user

    def _mark(
        self, document: Mapping[str, Any], found: uuid.UUID, user: str, query: Mapping[str, list[str]]
    ) -> tuple[int, bytes]:
        sender = dict(document["metadata"]["headers"]).get("_sender")
        if sender != user.encode():
            return 403, b"Operation not permitted"
        if query["retracted"] == ["true"]:
            self.retracted.add(found)
        else:
            self.retracted.discard(found)
        return 200, bson.encode({})

    def _list(self, handler: BaseHTTPRequestHandler, query: Mapping[str, list[str]]) -> Answer:
        assert query["meta"] == query["include_retracted"] == ["true"]
        outcome = self._scram.answer(handler.headers.get("Authorization"))
        if outcome.user is None:
            return 401, b"", outcome.headers, None
        start, end = (int(query[name][0]) for name in ("start_time", "end_time"))
        listed = [
            {
                "metadata": {name: document["metadata"][name] for name in ("topic", "timestamp")},
                "annotations": {"con_text_uuid": Binary(found.bytes, 4), "retracted": found in self.retracted},
            }
            for found, document in self.messages.items()
            if document["metadata"]["topic"].startswith("hop-public")
            and start <= document["metadata"]["timestamp"] < end
        ]
        return 200, bson.encode({"messages": listed, "next": None, "prev": None}), outcome.headers, outcome.user


@contextmanager
def running(service: PublicService) -> Iterator[str]:
    """Serve for the time of a ``with`` block; yields the endpoint."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            service.answer(self)

        do_POST = do_PUT = do_GET  # noqa: N815  as the base class wants it

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class names it
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()
