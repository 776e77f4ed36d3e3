"""A server for hop's offload API: this project's own, as started by ``serde-chain offload-server run``."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from payload_stores.offload_server import add_user
from serde_chain.testing.services.ports import HOST
from serde_chain.testing.services.process import Service

_USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}


class OffloadServer(Service):
    """An offload server in a separate process, with its own users.

    Without a broker's configuration, each user may do everything, unless `permissions` restricts it.

    Example:
        >>> with KafkaBroker() as broker, OffloadServer(broker=broker.client_config()) as server:  # doctest: +SKIP
        ...     httpx2.get(f"{server.url}/msg/…", auth=ScramAuth("alice", server.users["alice"]))
    """

    name = "offload-server"

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        store: str = "local",
        store_config: Mapping[str, object] | None = None,
        broker: Mapping[str, object] | None = None,
        permissions: str | None = None,
        announce: bool = False,
        arguments: Iterable[str] = (),
        port: int | None = None,
        folder: Path | None = None,
    ) -> None:
        """Describe the server; `start` or a ``with`` statement starts it.

        Args:
            users: Passwords by user name; by default those of `KafkaBroker`.
            store: Payload store; by default a folder of the server.
            store_config: The store's keys.
            broker: Configuration of a Kafka client with all permissions: its broker's ACLs then decide.
            permissions: Content of an ACL file, which decides instead.
            announce: Write the address to the broker's topic ``sys.metadata``.
            arguments: Further arguments of the command.
            port: The endpoint's port; by default a free one.
            folder: Where index and payloads are kept after the end; by default a temporary folder.
        """
        super().__init__(port=port, folder=folder)
        self.users = dict(_USERS if users is None else users)
        self._store = store
        self._store_config = store_config
        self._broker = broker
        self._permissions = permissions
        self._before = 0
        self._arguments = [*arguments, *(["--announce"] if announce else [])]

    @property
    def url(self) -> str:
        """The endpoint's address for clients."""
        scheme = "https" if "--tls-cert" in self._arguments else "http"
        return f"{scheme}://{HOST}:{self._port()}"

    @property
    def folder(self) -> Path:
        """The server's files: ``index``, ``payloads``, ``users.json``, ``acl.toml``."""
        self._port()
        assert self._folder is not None  # noqa: S101 - for mypy: set with the port
        return self._folder

    def _prepare(self, folder: Path) -> list[str]:
        for user, password in self.users.items():
            add_user(folder / "users.json", user, password)
        config = {"local.path": str(folder / "payloads"), **(self._store_config or {})}
        command = [
            sys.executable, "-c", "from serde_chain.cli import main; main()", "offload-server", "run",
            "--host", HOST, "--port", str(self._port()),
            "--store", self._store, "--config", str(_toml(folder / "store.toml", config)),
            "--data", str(folder / "index"), "--credentials", str(folder / "users.json"),
        ]  # fmt: skip
        if self._broker is not None:
            command += ["--broker-config", str(_toml(folder / "broker.toml", self._broker))]
        if self._permissions is not None or self._broker is None:
            acls = folder / "acl.toml"
            acls.write_text(self._permissions or '[users."*"]\nread = ["*"]\nwrite = ["*"]\n')
            command += ["--acl-file", str(acls)]
        return command + self._arguments

    def _launch(self) -> None:
        self._before = self._printed()
        super()._launch()

    def _ready(self) -> bool:
        # Printed once the server answers requests, and after the announcement.
        return self._printed() > self._before

    def _printed(self) -> int:
        """Number of times the server has reported that it listens: one more after each restart."""
        log = self.folder / f"{self.name}.log"
        return log.read_text(errors="replace").count("Listening on") if log.exists() else 0


def _toml(path: Path, config: Mapping[str, object]) -> Path:
    # JSON's strings, numbers and booleans are valid TOML.
    path.write_text("".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items()))
    return path
