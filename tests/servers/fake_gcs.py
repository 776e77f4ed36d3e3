"""Google's cloud storage on this machine, as far as there is one: fake-gcs-server, for reading."""

import http.client
import json
import uuid
from pathlib import Path
from urllib.parse import quote

from serde_chain.testing.services.errors import ServiceError
from serde_chain.testing.services.ports import HOST, http_answers
from serde_chain.testing.services.process import Service
from tests.servers.golang import go_program

_PACKAGE = "github.com/fsouza/fake-gcs-server"
_VERSION = "v1.56.1"


def program() -> Path:
    """The emulator, built the first time."""
    return go_program(_PACKAGE, _VERSION)


class FakeGcs(Service):
    """An emulator. It does not have the uploads of Google's XML API, by which obstore writes."""

    name = "fake-gcs-server"

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{HOST}:{self._port()}"

    def objects_config(self, bucket: str, folder: str = "") -> dict[str, str]:
        """Configuration of the payload store ``objects`` for a folder in a bucket of this service."""
        return {
            "objects.url": f"gs://{bucket}/{folder}",
            "objects.base_url": self.url,
            # Anything will do. To leave the signature out is not enough for deleting, with obstore 0.12.
            "objects.bearer_token": "a-token",
            "objects.allow_http": "true",
        }

    def create_bucket(self) -> str:
        """Create a bucket that no other test has; its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self._request("/storage/v1/b", json.dumps({"name": name}).encode(), "application/json")
        return name

    def put(self, bucket: str, name: str, data: bytes) -> None:
        """Write an object past the store."""
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self._request(path, data, "application/octet-stream")

    def _request(self, path: str, body: bytes, kind: str) -> None:
        connection = http.client.HTTPConnection(HOST, self._port(), timeout=10)
        try:
            connection.request("POST", path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            message = f"fake-gcs-server refused POST {path}: {content.decode(errors='replace')}"
            raise ServiceError(message)

    def _prepare(self, folder: Path) -> list[str]:
        port = str(self._port())
        return [
            str(program()), "-scheme", "http", "-host", HOST, "-port", port, "-backend", "memory", "-public-host",
            f"{HOST}:{port}",
        ]  # fmt: skip

    def _ready(self) -> bool:
        return http_answers(self._port(), "/storage/v1/b")
