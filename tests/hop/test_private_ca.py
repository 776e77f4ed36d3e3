"""An offload server whose certificate is not signed by a public authority."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

from payload_stores import open_store
from serde_chain.testing.services import OffloadServer
from tests.cli.test_offload_server import make_certificate

DOWNLOAD = """
import sys
from types import SimpleNamespace
import requests
from hop.http_scram import SCRAMAuth
user = SimpleNamespace(username="alice", password="alice-secret", mechanism="SCRAM-SHA-256")
answer = requests.get(sys.argv[1], auth=SCRAMAuth(user, shortcut=True), timeout=20)
print(answer.status_code, len(answer.content))
"""
# Where requests, and Python itself, find authorities.
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(certificate: tuple[Path, Path]) -> Iterator[OffloadServer]:
    arguments = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    with OffloadServer(arguments=arguments) as running:
        yield running


@pytest.fixture(scope="module")
def reference(server: OffloadServer, certificate: tuple[Path, Path]) -> str:
    """Written with the authority that the Kafka client trusts."""
    config = {"hop.offload.url": server.url, "sasl.username": "alice", "sasl.password": "alice-secret"}
    store = open_store("hop", {**config, "ssl.ca.location": str(certificate[0]), "hop.allow.http": "false"})
    found = store.publish("t", bytes(1000))
    assert store.download(found) == bytes(1000)
    store.close()
    return found


def hop_client(url: str, **environment: str) -> str:
    """What hop-client's own HTTP code prints for a download, or the last line of what it raised."""
    kept = {name: value for name, value in os.environ.items() if name not in BUNDLES}
    done = subprocess.run(
        [sys.executable, "-c", DOWNLOAD, url],
        env={**kept, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.full
def test_hop_client_forgets_the_bundle_in_its_second_round(reference: str, certificate: tuple[Path, Path]) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in hop_client(reference, REQUESTS_CA_BUNDLE=str(certificate[0]))


def test_hop_client_with_the_authority_in_certifi(
    reference: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "certifi"
    shutil.copytree(Path(certifi.__file__).parent, copy)
    with (copy / "cacert.pem").open("a") as bundle:
        bundle.write(certificate[0].read_text())
    status, size = hop_client(reference, PYTHONPATH=str(tmp_path)).split()
    assert status == "200"
    assert int(size) > 1000
