"""An S3 server whose buckets have lifecycle rules: MinIO over a local folder."""

from collections.abc import Mapping
from pathlib import Path

from serde_chain.testing.services.ports import HOST, http_answers
from serde_chain.testing.services.process import Service
from serde_chain.testing.services.s3_endpoint import S3Endpoint
from tests.servers.golang import go_program

_PACKAGE = "github.com/minio/minio"
_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"


def program() -> Path:
    """MinIO, built the first time."""
    return go_program(_PACKAGE, _VERSION)


class MinioServer(Service, S3Endpoint):
    """An S3 server that checks credentials, checksums and clocks, and has lifecycle rules and users.

    Go builds it the first time, which takes minutes.
    """

    name = "minio"
    access_key = "minio-access-key"
    secret_key = "minio-secret-key"

    @property
    def url(self) -> str:
        """The endpoint's address."""
        return f"http://{HOST}:{self._port()}"

    def _environment(self) -> Mapping[str, str]:
        """Nothing is looked for in the network."""
        return {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CALLHOME_ENABLE": "off",
        }

    def _prepare(self, folder: Path) -> list[str]:
        data = folder / "data"
        data.mkdir()
        return [str(program()), "server", "--address", f"{HOST}:{self._port()}", "--quiet", str(data)]

    def _ready(self) -> bool:
        return http_answers(self._port(), "/minio/health/ready")
