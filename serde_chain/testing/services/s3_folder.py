"""Objects of the S3 server in a folder: each is written there before its upload is answered."""

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import parse_qs

from botocore.exceptions import ClientError

from serde_chain.testing.services.data_folder import lock_folder, unlock

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_CHANGES = frozenset({"PUT", "POST", "DELETE"})
# Their names are those of folders.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class KeptObjects:
    """A WSGI application around the server's own. Buckets are folders; an object is a file, and another with its key.

    The settings of buckets are not kept, and at the next start objects are of that time.

    Args:
        application: The server's.
        folder: Where the objects stay; created if missing, and locked until :meth:`close`.

    Raises:
        ServiceStartError: The folder cannot be written to, or another server uses it.
    """

    def __init__(self, application: Application, folder: Path) -> None:
        self._application = application
        self._folder = folder
        self._lock_file: IO[bytes] = lock_folder(folder, "s3")
        # Of two writers of an object, the last one saves what both have left.
        self._saving = threading.Lock()
        self._client: S3Client | None = None

    def load(self, client: "S3Client") -> None:
        """Upload the objects of earlier starts; from then on, save changes.

        Args:
            client: A client of this server.
        """
        for bucket in sorted(path for path in self._folder.iterdir() if path.is_dir()):
            client.create_bucket(Bucket=bucket.name)
            for described in sorted(bucket.glob("*.json")):
                facts = json.loads(described.read_text(encoding="utf-8"))
                with described.with_suffix("").open("rb") as body:
                    client.put_object(Bucket=bucket.name, Body=body, **facts)
        self._client = client

    def close(self) -> None:
        """Release the folder."""
        unlock(self._lock_file)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request (PEP 3333)."""
        if self._client is None or environ["REQUEST_METHOD"] not in _CHANGES:
            return self._application(environ, start_response)
        # WSGI passes paths as Latin-1.
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        bucket, _, key = path.removeprefix("/").partition("/")
        answer = list(self._application(environ, start_response))
        if _BUCKET.fullmatch(bucket):
            with self._saving:
                for name in [key] if key else self._changed(self._client, bucket, environ.get("QUERY_STRING", "")):
                    self._save(self._client, bucket, name)
        return answer

    def _changed(self, client: "S3Client", bucket: str, query: str) -> list[str]:
        """The keys that a request for a bucket may have deleted. A bucket's folder is made, or removed, here."""
        folder = self._folder / bucket
        if "delete" in parse_qs(query, keep_blank_values=True):
            described = sorted(folder.glob("*.json"))
            return [json.loads(path.read_text(encoding="utf-8"))["Key"] for path in described]
        if bucket in _buckets(client):
            folder.mkdir(exist_ok=True)
        elif folder.is_dir():
            shutil.rmtree(folder)
        return []

    def _save(self, client: "S3Client", bucket: str, key: str) -> None:
        """Make the kept object what the server has."""
        body = self._folder / bucket / hashlib.sha256(key.encode()).hexdigest()
        described = body.with_suffix(".json")
        try:
            found = client.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        except ClientError as error:
            if error.response["Error"]["Code"] not in {"NoSuchKey", "NoSuchBucket"}:
                raise
            described.unlink(missing_ok=True)
            body.unlink(missing_ok=True)
            return
        facts = {"Key": key, "ContentType": found["ContentType"], "Metadata": found["Metadata"]}
        if "ChecksumSHA256" in found:
            facts["ChecksumAlgorithm"] = "SHA256"
        body.parent.mkdir(exist_ok=True)
        part = body.with_suffix(".part")
        with part.open("wb") as file:
            shutil.copyfileobj(found["Body"], file)
        part.replace(body)
        part.write_text(json.dumps(facts), encoding="utf-8")
        part.replace(described)


def _buckets(client: "S3Client") -> set[str]:
    return {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
