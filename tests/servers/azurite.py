"""Azure's blob storage on this machine: Azurite, from npm."""

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from serde_chain.testing.services.cache import cached
from serde_chain.testing.services.errors import ServiceError, ServiceMissingError
from serde_chain.testing.services.ports import HOST, port_answers
from serde_chain.testing.services.process import Service
from serde_chain.testing.services.tool import run_tool

_VERSION = "3.37.0"
_INSTALL_SECONDS = 300
_API = "2021-12-02"


class Azurite(Service):
    """Microsoft's emulator, with blobs in memory. It checks signatures and conditions.

    npm fetches it the first time; it needs Node.
    """

    name = "azurite"
    account = "payloads"
    key = base64.b64encode(b"a key of an account that lives for one test run").decode()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{HOST}:{self._port()}"

    @property
    def url(self) -> str:
        """The account's address."""
        return f"http://{self.address}/{self.account}"

    def objects_config(self, container: str, folder: str = "") -> dict[str, str]:
        """Configuration of the payload store ``objects`` for a folder in a container of this service."""
        return {
            "objects.url": f"az://{container}/{folder}",
            "objects.endpoint": self.url,
            "objects.account_name": self.account,
            "objects.account_key": self.key,
            "objects.allow_http": "true",
        }

    def create_container(self) -> str:
        """Create a container that no other test has; its name."""
        name = f"container-{uuid.uuid4().hex[:12]}"
        self.request("PUT", f"/{name}", {"restype": "container"})
        return name

    def request(self, method: str, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Make a request of a client of our own, which shares no code with the store.

        Args:
            method: Of HTTP; without a body.
            path: Container, or container and blob, as they stand in the URL.
            query: Its parameters.

        Raises:
            ServiceError: It was refused.
        """
        full = f"/{self.account}{path}"
        headers = {"x-ms-date": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}", "x-ms-version": _API}
        canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        resource = f"/{self.account}{full}" + "".join(
            f"\n{name}:{value}" for name, value in sorted((query or {}).items())
        )
        # "Authorize with Shared Key" in Azure's REST API reference.
        text = method + "\n" * 12 + canonical + resource
        signature = base64.b64encode(hmac.digest(base64.b64decode(self.key), text.encode(), hashlib.sha256)).decode()
        headers["Authorization"] = f"SharedKey {self.account}:{signature}"
        asked = "&".join(f"{name}={value}" for name, value in (query or {}).items())
        connection = http.client.HTTPConnection(HOST, self._port(), timeout=10)
        try:
            connection.request(method, f"{full}?{asked}" if asked else full, headers={**headers, "Content-Length": "0"})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            message = f"azurite refused {method} {path}: {answer.status} {content.decode(errors='replace')}"
            raise ServiceError(message)
        return content

    def _environment(self) -> Mapping[str, str]:
        """The account."""
        return {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"}

    def _prepare(self, folder: Path) -> list[str]:
        node = shutil.which("node")
        if node is None:
            message = "azurite runs on Node, which is not installed; install it and put it on PATH"
            raise ServiceMissingError(message)
        options = ["--blobHost", HOST, "--blobPort", str(self._port())]
        return [
            node, str(program()), *options, "--skipApiVersionCheck", "--disableTelemetry", "--silent",
            "--inMemoryPersistence",
        ]  # fmt: skip

    def _ready(self) -> bool:
        return port_answers(self._port())


def program() -> Path:
    """The script of the blob service, fetched the first time."""
    package = cached(f"npm/azurite-{_VERSION}", _install, what=f"azurite {_VERSION}, with npm")
    return package / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _install(target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        message = "azurite is fetched with npm, which is not installed; install Node with npm and put it on PATH"
        raise ServiceMissingError(message)
    run_tool(
        [npm, "install", f"azurite@{_VERSION}", "--prefix", str(target), "--no-audit", "--no-fund", "--loglevel=error"],
        what="fetching azurite",
        folder=target,
        seconds=_INSTALL_SECONDS,
        environment=dict(os.environ),
    )
