"""Topics and stores with payloads in use and orphans."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from payload_stores import open_store
from payload_stores.base import PayloadStore, SupportsList
from serde_chain import Producer, jobs
from serde_chain.jobs import MigrateReport, Problem, SweepReport
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Config = dict[str, Any]
Send = Callable[..., None]
Sweep = Callable[..., SweepReport]
Migrate = Callable[..., MigrateReport]
Audit = Callable[..., tuple[int, list[Problem]]]

ENGINES = ["local", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(params=ENGINES)
def sweep(request: pytest.FixtureRequest) -> Sweep:
    """A sweep by either engine."""
    if request.param == "local":
        return jobs.sweep
    from serde_chain.spark import jobs as spark_jobs

    return partial(spark_jobs.sweep, request.getfixturevalue("spark"))


@pytest.fixture(params=ENGINES)
def audit(request: pytest.FixtureRequest) -> Audit:
    """An audit by either engine, which returns the number of references, and the problems."""
    if request.param == "local":
        return local_audit
    return partial(spark_audit, request.getfixturevalue("spark"))


def local_audit(*arguments: Any, **options: Any) -> tuple[int, list[Problem]]:
    report = jobs.audit(*arguments, **options)
    assert len(report.problems) == len(list(report.problems))
    return report.references, list(report.problems)


def spark_audit(spark: "SparkSession", *arguments: Any, **options: Any) -> tuple[int, list[Problem]]:
    from serde_chain.spark import jobs as spark_jobs

    report = spark_jobs.audit(spark, *arguments, **options)
    rows = report.problems.orderBy("topic", "partition", "offset", "reference").collect()
    return report.references, [Problem(*row) for row in rows]


@pytest.fixture(params=ENGINES)
def migrate(request: pytest.FixtureRequest) -> Migrate:
    """A migration by either engine."""
    if request.param == "local":
        return jobs.migrate
    from serde_chain.spark import jobs as spark_jobs

    return partial(spark_jobs.migrate, request.getfixturevalue("spark"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where manifests go."""
    place = tmp_path / "manifests"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Config:
    return {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
        "auto.offset.reset": "earliest",
        "group.id": "test",
    }


@pytest.fixture
def send(config: Config) -> Send:
    """Produce values, by a producer of the configuration with some settings more."""

    def produce(topic: str, *values: bytes | None, key: bytes | None = None, **settings: Any) -> None:
        with Producer({**config, **{name.replace("_", "."): value for name, value in settings.items()}}) as producer:
            for value in values:
                producer.produce(topic, value, key)

    return produce


@pytest.fixture
def store(config: Config) -> PayloadStore:
    return open_store(config["large.message.payload.store.class"], config)


def stored(store: PayloadStore, topic: str) -> set[str]:
    assert isinstance(store, SupportsList)
    return {info.reference for info in store.list(topic)}


def payload(number: int) -> bytes:
    return b"%06d" % number * 100
