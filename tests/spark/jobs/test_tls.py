"""Jobs reach a broker that takes TLS, certificates and passwords only: both clients, librdkafka's and Java's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from payload_stores import open_store
from serde_chain import Producer
from serde_chain.clients import faststream
from serde_chain.spark.jobs import audit, sweep
from serde_chain.testing.services import KafkaBroker
from tests.certificates import Authority
from tests.jobs.conftest import Config, payload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full


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


@pytest.fixture
def settings(broker: KafkaBroker, authority: Authority, tmp_path: Path) -> dict[str, object]:
    """The connection's, as of librdkafka."""
    certificate, key = authority.issue("client")
    files = {"ssl.ca.location": authority.certificate, "ssl.certificate.location": certificate, "ssl.key.location": key}
    found: dict[str, object] = {**broker.client_config("admin"), "security.protocol": "SASL_SSL"}
    for number, (name, text) in enumerate(files.items()):
        path = tmp_path / f"{number}.pem"
        path.write_text(text)
        found[name] = str(path)
    return found


def test_a_sweep_and_an_audit(
    *, spark: SparkSession, config: Config, topic: str, settings: dict[str, object], tmp_path: Path
) -> None:
    """A broker of its own, and two jobs of Spark."""
    config |= settings
    with Producer(config) as producer:
        producer.produce(topic, payload(0))
    open_store("local", config).publish(topic, payload(1))
    report = sweep(spark, config, topic, grace_ms=0, delete=True, manifest=tmp_path / "manifest.jsonl")
    assert (report.live, report.deleted) == (1, 1)
    assert audit(spark, config, topic).references == 1


def test_faststream(settings: dict[str, object], topic: str) -> None:
    """Its options are translated from the same keys."""

    async def main() -> None:
        broker = faststream.KafkaBroker({**settings, "value.serializers": "gzip"})
        await broker.connect()
        assert (await broker.publish("M 51", topic=topic)).offset == 0
        await broker.stop()

    asyncio.run(main())
