"""The exported suite of network faults, on the stores that have a server."""

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from payload_stores.testing import PayloadStoreFaultTests
from serde_chain.testing.services import KafkaBroker, OffloadServer
from tests.servers.azurite import Azurite
from tests.servers.toxiproxy import Proxy, Toxiproxy
from tests.servers.versitygw import VersityGateway

# dateutil warns of a time zone "GM", where the answer ends.
pytestmark = [
    pytest.mark.filterwarnings("ignore:tzname"),
    pytest.mark.filterwarnings("ignore:Large message offload service is bare HTTP"),
]


class TestS3StoreOnABadDay(PayloadStoreFaultTests):
    store_class = "s3"

    @pytest.fixture
    def network(self, versity_proxy: Proxy) -> Proxy:
        return versity_proxy

    @pytest.fixture
    def config(self, versity: VersityGateway, versity_bucket: str, network: Proxy) -> Mapping[str, object]:
        return {
            **versity.store_config(versity_bucket),
            "s3.endpoint.url": f"http://{network.address}",
            "s3.retry.attempts": 2,
            "s3.connection.timeout.ms": 1000,
            "s3.request.timeout.ms": 500,
        }


class ProxiedBroker(KafkaBroker):
    """A broker that sends its clients by way of a proxy, on one more listener."""

    port_count = 4

    def __init__(self, toxiproxy: Toxiproxy) -> None:
        super().__init__()
        self._toxiproxy = toxiproxy
        self.proxy: Proxy

    def _properties(self, folder: Path) -> dict[str, str]:
        *self._ports, port = self._ports
        own = super()._properties(folder)
        self._ports.append(port)
        self.proxy = self._toxiproxy.proxy(f"kafka-{uuid.uuid4().hex[:8]}", f"127.0.0.1:{port}")
        return {
            **own,
            "listeners": f"{own['listeners']},PROXIED://127.0.0.1:{port}",
            "advertised.listeners": f"{own['advertised.listeners']},PROXIED://{self.proxy.address}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']},PROXIED:PLAINTEXT",
        }


@pytest.fixture(scope="module")
def proxied(toxiproxy: Toxiproxy) -> Iterator[ProxiedBroker]:
    with ProxiedBroker(toxiproxy) as running:
        yield running


class TestKafkaStoreOnABadDay(PayloadStoreFaultTests):
    store_class = "kafka"
    deletes_later = True
    deadline_ms = 5_000

    @pytest.fixture
    def network(self, proxied: ProxiedBroker) -> Proxy:
        return proxied.proxy

    @pytest.fixture
    def config(self, proxied: ProxiedBroker) -> Mapping[str, object]:
        topic = f"payloads-{uuid.uuid4()}"
        proxied.create_topic(topic)
        return {
            "bootstrap.servers": proxied.proxy.address,
            "kafka.payload.topic": topic,
            "kafka.payload.timeout.ms": 2_000,
        }


class TestObjectsStoreOnABadDay(PayloadStoreFaultTests):
    store_class = "objects"

    @pytest.fixture
    def network(self, versity_proxy: Proxy) -> Proxy:
        return versity_proxy

    @pytest.fixture
    def config(self, versity: VersityGateway, versity_bucket: str, network: Proxy) -> Mapping[str, object]:
        return {
            **versity.objects_config(versity_bucket),
            "objects.endpoint": f"http://{network.address}",
            "objects.retry.attempts": 2,
            "objects.connection.timeout.ms": 500,
            "objects.request.timeout.ms": 500,
        }


# The client is that of the class above.
@pytest.mark.nightly
class TestObjectsOnAzureOnABadDay(PayloadStoreFaultTests):
    store_class = "objects"

    @pytest.fixture
    def network(self, azurite: Azurite, toxiproxy: Toxiproxy) -> Iterator[Proxy]:
        proxy = toxiproxy.proxy(f"azurite-{uuid.uuid4().hex[:8]}", azurite.address)
        yield proxy
        proxy.remove()

    @pytest.fixture
    def config(self, azurite: Azurite, container: str, network: Proxy) -> Mapping[str, object]:
        return {
            **azurite.objects_config(container),
            "objects.endpoint": f"http://{network.address}/{azurite.account}",
            "objects.retry.attempts": 2,
            "objects.connection.timeout.ms": 500,
            "objects.request.timeout.ms": 500,
        }


@pytest.fixture(scope="module")
def server() -> Iterator[OffloadServer]:
    with OffloadServer(users={"alice": "alice-secret"}) as running:
        yield running


class TestHopStoreOnABadDay(PayloadStoreFaultTests):
    store_class = "hop"

    @pytest.fixture
    def network(self, server: OffloadServer, toxiproxy: Toxiproxy) -> Iterator[Proxy]:
        proxy = toxiproxy.proxy(f"hop-{uuid.uuid4().hex[:8]}", server.url.removeprefix("http://"))
        yield proxy
        proxy.remove()

    @pytest.fixture
    def config(self, server: OffloadServer, network: Proxy) -> Mapping[str, object]:
        return {
            "hop.offload.url": f"http://{network.address}",
            "hop.username": "alice",
            "hop.password": "alice-secret",
            "hop.scram.mechanism": "SCRAM-SHA-256",
            "hop.retry.attempts": 2,
            "hop.connection.timeout.ms": 500,
            "hop.request.timeout.ms": 500,
        }
