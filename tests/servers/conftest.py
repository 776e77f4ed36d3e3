"""Servers that Go builds first, and a proxy that disturbs the way to them."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.azurite import Azurite
from tests.servers.fake_gcs import FakeGcs
from tests.servers.minio import MinioServer
from tests.servers.toxiproxy import Proxy, Toxiproxy
from tests.servers.versitygw import VersityGateway

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.servers)


@pytest.fixture(scope="session")
def versity() -> Iterator[VersityGateway]:
    with VersityGateway() as running:
        yield running


@pytest.fixture
def versity_bucket(versity: VersityGateway) -> str:
    return versity.create_bucket()


@pytest.fixture(scope="session")
def toxiproxy() -> Iterator[Toxiproxy]:
    with Toxiproxy() as running:
        yield running


@pytest.fixture
def versity_proxy(versity: VersityGateway, toxiproxy: Toxiproxy) -> Iterator[Proxy]:
    """The way to the S3 server, undisturbed until the test says otherwise."""
    proxy = toxiproxy.proxy(f"versity-{uuid.uuid4().hex[:8]}", versity.url.removeprefix("http://"))
    yield proxy
    proxy.remove()


@pytest.fixture(scope="session")
def minio() -> Iterator[MinioServer]:
    with MinioServer() as running:
        yield running


@pytest.fixture
def minio_bucket(minio: MinioServer) -> str:
    return minio.create_bucket()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    with Azurite() as running:
        yield running


@pytest.fixture
def container(azurite: Azurite) -> str:
    return azurite.create_container()


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    with FakeGcs() as running:
        yield running


@pytest.fixture
def gcs_bucket(fake_gcs: FakeGcs) -> str:
    return fake_gcs.create_bucket()
