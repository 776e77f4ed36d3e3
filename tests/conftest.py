"""Fixtures for all tests: the real servers, each started once in a run, and what the workers of a run share."""

import gc
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry
from tests import botocore_models, nightly, scheduling, shared_servers, tiers
from tests.environments import Environment, build_wheel, install_wheel, make_environment
from tests.hypothesis_profiles import load_profile
from tests.java_serdes import JavaSerde
from tests.spark.sessions import session_of_tests, start_cheaply

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession


load_profile()


class NewTopic(Protocol):
    """Creates a topic that no other test has, and returns its name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


OWNER = pytest.StashKey[shared_servers.Owner]()
ADDRESS = pytest.StashKey[tuple[str, bytes]]()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the processes that tests start, and find the servers of this run."""
    # The processes of a shell's background process would ignore it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    start_cheaply()
    if is_worker(config):
        address, key = config.workerinput["servers"]  # type: ignore[attr-defined]
        config.stash[shared_servers.BOARD] = shared_servers.connect(address, key)
        os.environ.update(shared_servers.variables(address, key))
    elif shared_servers.VARIABLE in os.environ:
        # Started by a test of such a worker.
        config.stash[shared_servers.BOARD] = shared_servers.connect_of_environment()
    else:
        config.stash[shared_servers.BOARD] = config.stash[OWNER] = shared_servers.Owner()


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a process of pytest-xdist's."""
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where this process answers."""
    owner = node.config.stash[OWNER]
    if ADDRESS not in node.config.stash:
        node.config.stash[ADDRESS] = shared_servers.serve(owner)
    node.workerinput["servers"] = node.config.stash[ADDRESS]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.UnitScheduling | None:
    """Replace pytest-xdist's default schedule; ``--dist`` may name another one."""
    if config.getoption("dist") != "load":
        return None
    return scheduling.UnitScheduling(config, log, config.stash[OWNER].units)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers."""
    if OWNER in config.stash:
        config.stash[OWNER].close()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Keep the garbage collector from the objects of all tests, now and later: none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    except pytest.UsageError as error:
        if is_worker(session.config):
            session.config.workeroutput["wrong"] = str(error)  # type: ignore[attr-defined]
        raise
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Report a wrong path or name of a test, for which pytest-xdist reports only that no tests ran."""
    wrong = getattr(node, "workeroutput", {}).get("wrong")
    if wrong is not None:
        raise pytest.UsageError(wrong)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out, and what all but `make nightly` do, and order the tests.

    For workers the longest units come first, otherwise the quick tests, and Spark last.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark"):
            # pyspark leaves the sockets of results to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
    tiers.mark_full(items)
    nightly.mark_nightly(items)
    items.sort(key=_cost, reverse=is_worker(config))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the servers that the selected tests need, while the first tests run."""
    if session.config.getoption("collectonly"):
        return
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    board = session.config.stash[shared_servers.BOARD]
    board.prepare(sorted(needed))
    if is_worker(session.config):
        # Before pytest-xdist's own hook, after which the units are asked for.
        board.note_units(scheduling.units(session.items))


def _cost(item: pytest.Item) -> float:
    if item.nodeid.startswith("tests/servers/"):
        # When their programs are built.
        return 0.5
    if item.get_closest_marker("spark"):
        # Those of hop wait for one another, in two workers: not both at the beginning.
        return 5 if item.nodeid.startswith("tests/hop/") else 6
    marker = item.get_closest_marker("timeout")
    limit = 0.0 if marker is None else float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    if limit > float(item.config.getini("timeout")):
        # Clusters, killed processes, a browser: minutes each, which no worker should begin last.
        return 5 + limit / 1_000_000
    if scheduling.unit(item) == scheduling.HOP:
        return 4
    fixtures = getattr(item, "fixturenames", ())
    costs = {
        "s3_server": 1, "broker": 2, "share_broker": 2,
        "registry": 3, "java_serde_of_glue": 3, "java_serde_of_apicurio": 3, "pulsar_reader": 2,
    }  # fmt: skip
    return max((cost for name, cost in costs.items() if name in fixtures), default=0)


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> KafkaBroker:
    running: KafkaBroker = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "broker")
    return running


@pytest.fixture(scope="session")
def registry(pytestconfig: pytest.Config) -> SchemaRegistry:
    running: SchemaRegistry = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "registry")
    return running


@pytest.fixture(scope="session")
def share_broker(pytestconfig: pytest.Config) -> KafkaBroker:
    """A broker with share groups."""
    running: KafkaBroker = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "share_broker")
    return running


@pytest.fixture(scope="session")
def s3_server(pytestconfig: pytest.Config) -> S3Server:
    botocore_models.keep()
    running: S3Server = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "s3_server")
    return running


@pytest.fixture(scope="session")
def java_serde_of_glue(pytestconfig: pytest.Config) -> JavaSerde:
    serde: JavaSerde = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "java_serde_of_glue")
    return serde


@pytest.fixture(scope="session")
def java_serde_of_apicurio(pytestconfig: pytest.Config) -> JavaSerde:
    serde: JavaSerde = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "java_serde_of_apicurio")
    return serde


@pytest.fixture(scope="session")
def pulsar_reader(pytestconfig: pytest.Config) -> JavaSerde:
    reader: JavaSerde = shared_servers.attach(pytestconfig.stash[shared_servers.BOARD], "pulsar_reader")
    return reader


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
