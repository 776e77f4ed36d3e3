"""An S3 server that is as strict as the real one: Versity's gateway over a local folder."""

import subprocess
import sys
from pathlib import Path

from serde_chain.testing.services.ports import HOST, port_answers
from serde_chain.testing.services.process import Service
from serde_chain.testing.services.s3_endpoint import S3Endpoint
from tests.servers.golang import go_program

_PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
_VERSION = "v1.8.0"


def program() -> Path:
    """Versity's gateway, built the first time."""
    return go_program(_PACKAGE, _VERSION, is_measured=True)


class VersityGateway(Service, S3Endpoint):
    """An S3 server that checks credentials, checksums, signatures' expiry and conditional puts.

    It maps keys to files, so a key ``a`` and a key ``a/b`` cannot both exist. It has no lifecycle
    rules. Go builds it the first time, which takes minutes.
    """

    name = "versitygw"
    access_key = "versity-access-key"
    secret_key = "versity-secret-key"

    def __init__(self, *, most_file_bytes: int | None = None) -> None:
        """Nothing is started yet.

        Args:
            most_file_bytes: Largest file that the system lets the server write: a disk that is full, for all it knows.
        """
        super().__init__()
        self._most_file_bytes = most_file_bytes

    def create_user(self, access_key: str, secret_key: str) -> None:
        """Create a user who may do everything."""
        self._administer("create-user", "--access", access_key, "--secret", secret_key, "--role", "admin")

    def delete_user(self, access_key: str) -> None:
        """Delete a user: from now on, the keys are refused."""
        self._administer("delete-user", "--access", access_key)

    def _administer(self, *arguments: str) -> None:
        credentials = ["--access", self.access_key, "--secret", self.secret_key, "--endpoint-url", self.url]
        subprocess.run([program(), "admin", *credentials, *arguments], check=True, timeout=30)

    @property
    def url(self) -> str:
        """The endpoint's address."""
        return f"http://{HOST}:{self._port()}"

    def _prepare(self, folder: Path) -> list[str]:
        root, users = folder / "buckets", folder / "users"
        root.mkdir()
        users.mkdir()
        # Without a folder of users, an unknown access key gets 404 instead of 403. The option
        # --keep-alive would make uploads with trailing checksums fail.
        credentials = ["--access", self.access_key, "--secret", self.secret_key, "--iam-dir", str(users)]
        command = [str(program()), "--port", f"{HOST}:{self._port()}", *credentials]
        command += ["--iam-cache-disable", "--quiet", "posix", str(root)]
        if self._most_file_bytes is None:
            return command
        limited = (
            "import os, resource, sys\n"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({self._most_file_bytes}, {self._most_file_bytes}))\n"
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        return [sys.executable, "-I", "-c", limited, *command]

    def _ready(self) -> bool:
        return port_answers(self._port())
