"""Jobs reach a broker that takes TLS, certificates and passwords only: both clients, librdkafka's and Java's."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from payload_stores import open_store
from serde_chain import Producer
from serde_chain.spark.jobs import audit, sweep
from serde_chain.testing.services import KafkaBroker
from tests.jobs.conftest import Config, payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

_DAY = dt.timedelta(days=1)


class Authority:
    """A certificate authority."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.certificate = self._signed(
            self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0)
        )

    def issue(self, name: str) -> tuple[str, str]:
        """A certificate for this machine, and its key; both in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._signed(subject, key.public_key(), address), private.decode()

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> str:
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(extension, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM).decode()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[KafkaBroker]:
    """A broker whose listener with passwords speaks TLS, and asks for a certificate."""
    chain, key = authority.issue("broker")
    pem = {
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
        "ssl.truststore.certificates": authority.certificate,
    }
    config = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        **{name: text.replace("\n", "\\n") for name, text in pem.items()},
    }
    with KafkaBroker(config=config) as running:
        yield running


def test_a_sweep_and_an_audit(
    *, spark: SparkSession, config: Config, topic: str, broker: KafkaBroker, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("client")
    files = {"ssl.ca.location": authority.certificate, "ssl.certificate.location": certificate, "ssl.key.location": key}
    config |= {**broker.client_config("admin"), "security.protocol": "SASL_SSL"}
    for number, (name, text) in enumerate(files.items()):
        path = tmp_path / f"{number}.pem"
        path.write_text(text)
        config[name] = str(path)
    with Producer(config) as producer:
        producer.produce(topic, payload(0))
    open_store("local", config).publish(topic, payload(1))
    report = sweep(spark, config, topic, grace_ms=0, delete=True, manifest=tmp_path / "manifest.jsonl")
    assert (report.live, report.deleted) == (1, 1)
    assert audit(spark, config, topic).references == 1
