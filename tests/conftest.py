"""Fixtures for all tests: the real servers, each started once, when a test first asks for it."""

import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry
from tests.environments import Environment, build_wheel, install_wheel, make_environment
from tests.hypothesis_profiles import load_profile
from tests.spark.sessions import session_of_tests

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession


load_profile()


class NewTopic(Protocol):
    """Creates a topic that no other test has, and returns its name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start: those of a shell's background process would ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the quick tests first, and those with Spark last, when its memory is needed by no other."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            # pyspark leaves the sockets of results to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    items.sort(key=_cost)


def _cost(item: pytest.Item) -> int:
    fixtures = getattr(item, "fixturenames", ())
    costs = {"s3_server": 1, "broker": 2, "registry": 3, "spark": 4}
    return max((cost for name, cost in costs.items() if name in fixtures), default=0)


@pytest.fixture(scope="session")
def broker() -> Iterator[KafkaBroker]:
    # The broker looks 30 s after its start, and every 5 minutes, for segments whose newest record is older than a week,
    # as those of tests with timestamps of their own are.
    hundred_years = timedelta(days=36_500)
    with KafkaBroker(config={"log.retention.hours": str(hundred_years // timedelta(hours=1))}) as running:
        yield running


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as running:
        yield running


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    with session_of_tests() as session:
        yield session


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """The Chromium of the machine; of one module, since an event loop runs in this thread meanwhile."""
    from tests.browsers import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def new_topic(broker: KafkaBroker) -> NewTopic:
    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        broker.create_topic(name, partitions, config)
        return name

    return create


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    return s3_server.create_bucket()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Gives the environment that an install line brings, such as ``'serde-chain[kafka,avro]' pandas``; each once."""

    bare = install_wheel(tmp_path_factory.mktemp("environment"), wheel)

    @cache
    def make(line: str) -> Environment:
        return bare if line == "serde-chain" else make_environment(tmp_path_factory.mktemp("environment"), bare, line)

    return make
