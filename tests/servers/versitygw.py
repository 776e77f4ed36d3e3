"""An S3 server that is as strict as the real one: Versity's gateway over a local folder."""

from pathlib import Path

from serde_chain.testing.services.ports import HOST, port_answers
from serde_chain.testing.services.process import Service
from serde_chain.testing.services.s3_endpoint import S3Endpoint
from tests.servers.golang import go_program

_PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
_VERSION = "v1.8.0"


class VersityGateway(Service, S3Endpoint):
    """An S3 server that checks credentials, checksums, signatures' expiry and conditional puts.

    It maps keys to files, so a key ``a`` and a key ``a/b`` cannot both exist. It has no lifecycle
    rules. Go builds it the first time, which takes minutes.
    """

    name = "versitygw"
    access_key = "versity-access-key"
    secret_key = "versity-secret-key"

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
        program = go_program(_PACKAGE, _VERSION)
        return [str(program), "--port", f"{HOST}:{self._port()}", *credentials, "--quiet", "posix", str(root)]

    def _ready(self) -> bool:
        return port_answers(self._port())
