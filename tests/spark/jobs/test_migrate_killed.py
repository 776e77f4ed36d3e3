"""A migration that is killed again and again writes every record once, in the order of its partition."""

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from payload_stores import open_store
from serde_chain import Producer
from serde_chain.jobs.migrating import State, _known
from serde_chain.jobs.migration_plan import plan_migration
from tests.jobs.conftest import Config, payload, stored
from tests.jobs.test_migrate import read
from tests.spark.jobs.children import (
    KILLS,
    copy_until,
    kill,
    migrate_all,
    migrate_and_stay,
    run,
    running,
    wait_for_more,
    written,
)

if TYPE_CHECKING:
    from tests.conftest import NewTopic

pytestmark = pytest.mark.full


@pytest.fixture(params=["whole", "fields"])
def config(config: Config, request: pytest.FixtureRequest) -> Config:
    """Chains that move whole values, and chains that move a field."""
    if request.param == "whole":
        return config
    return {
        **config,
        "value.serializers": "large-fields, json",
        "value.deserializers": "json, large-fields",
        "large.fields.paths": "image",
        "large.fields.min.bytes": 100,
    }


@pytest.fixture
def target(config: Config, tmp_path: Path) -> Config:
    return {**config, "local.path": str(tmp_path / "target")}


def fill(config: Config, topic: str, count: int, partitions: int) -> None:
    with Producer(config) as producer:
        for number in range(count):
            data = payload(number) if number % 3 else b"small %d" % number
            value = {"image": data.decode()} if "large.fields.paths" in config else data
            producer.produce(topic, value, b"%d" % number, number % partitions)


def test_a_task_that_is_killed_at_many_points(config: Config, target: Config, new_topic: "NewTopic") -> None:
    """Nine processes, one after the other."""
    source, copy = new_topic(1), new_topic(1)
    fill(config, source, 60, 1)
    plan = replace(plan_migration(config, target, source, copy), name=f"serde-chain-migrate-{copy}")
    _known(plan, State(plan.name, source, copy), 0, 0, 60)
    random = Random(14)
    for end in (20, 40, 60):
        # Of this project's calls and returns, these are the ones that copy twenty records, commit and close.
        for point in (random.randrange(15_000, 24_000), random.randrange(22_000, 28_000), sys.maxsize):
            with running(copy_until, plan, end, point) as process:
                process.join(60)
                assert process.exitcode in ({0} if point == sys.maxsize else {0, -signal.SIGKILL})
    [copied] = read(target, copy)
    assert [copied] == read(config, source)
    assert len(copied) == 60
    assert len(stored(open_store("local", target), copy)) == 40


@pytest.mark.timeout(400)
@pytest.mark.parametrize("config", ["whole", pytest.param("fields", marks=pytest.mark.nightly)], indirect=True)
def test_a_migration_that_is_killed(config: Config, target: Config, new_topic: "NewTopic", tmp_path: Path) -> None:
    """Processes with Spark, one after the other."""
    source, copy = new_topic(3), new_topic(3)
    fill(config, source, 300, 3)
    topics, checkpoint = (source, copy), str(tmp_path / "checkpoint")
    with written(config, copy, 3) as count:
        for number in range(min(KILLS, 2)):  # of two tasks at a time: the third partition is left for the next run
            done = tmp_path / f"done-{number}"
            with running(migrate_and_stay, config, target, topics, checkpoint, str(done)) as process:
                # On a busy machine it may be seen late, when all is copied: it is killed behind its work then.
                wait_for_more(partial(count_or_end, count, done), process)
                kill(process)
                assert process.exitcode == -signal.SIGKILL
    run(200, migrate_all, config, target, topics, checkpoint)
    copied = read(target, copy)
    assert copied == read(config, source)
    assert sum(map(len, copied)) == 300


def count_or_end(count: Callable[[], int], done: Path) -> int:
    return count() + done.exists()
