"""librdkafka's connection keys as Java's."""

import logging
from pathlib import Path

import pytest

from serde_chain.errors import ConfigError
from serde_chain.spark.jobs.java_client import java_settings


def test_a_login() -> None:
    settings = java_settings(
        {
            "metadata.broker.list": "broker:9092",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": 'a"b',
            "sasl.password": "c\\d",
            "linger.ms": 5,
        }
    )
    assert settings == {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" '
        'password="c\\\\d";',
    }


def test_certificates_travel_by_their_text(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("the authority")
    settings = java_settings(
        {
            "bootstrap.servers": "b:1",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "ssl.certificate.pem": "the certificate",
            "ssl.key.pem": "the key",
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert settings == {
        "bootstrap.servers": "b:1",
        "ssl.truststore.certificates": "the authority",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.certificate.chain": "the certificate",
        "ssl.keystore.key": "the key",
        "ssl.keystore.type": "PEM",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location = .* cannot be read"):
        java_settings({"bootstrap.servers": "b:1", "ssl.ca.location": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        java_settings({"security.protocol": "ssl"})


def test_what_java_does_not_have_is_named_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "serde_chain"):
        java_settings(
            {
                "bootstrap.servers": "b:1",
                "ssl.keystore.password": "hidden",
                "queued.min.messages": 7,
            }
        )
    [record] = caplog.records
    assert "ssl.keystore.password" in record.getMessage()
    assert "hidden" not in record.getMessage()
    assert "queued" not in record.getMessage()


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", "oauthbearer"])
@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_other_logins_are_refused(mechanism: str, key: str) -> None:
    client = {"bootstrap.servers": "b:1", "security.protocol": "sasl_ssl", key: mechanism}
    with pytest.raises(ConfigError, match=f"{mechanism.upper()} cannot be used") as caught:
        java_settings({**client, "sasl.oauthbearer.client.secret": "hidden"})
    assert "hidden" not in str(caught.value)
