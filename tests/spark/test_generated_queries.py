"""Random queries fetch what they need, each payload once, and have the results of queries of inline payloads.

``SERDE_CHAIN_QUERIES=10000`` makes the test of plans longer, ``SERDE_CHAIN_SEED=7`` makes other queries of both.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from serde_chain.spark import decode
from tests.spark.counting import counting, downloads
from tests.spark.queries import COUNT, LARGE, PATHS, SCHEMA, Generated, alert, generate, has_large
from tests.spark.records import KAFKA, encoded, row
from tests.spark.test_decode import plan_of

PLANS = int(os.environ.get("SERDE_CHAIN_QUERIES", "40"))
SEED = int(os.environ.get("SERDE_CHAIN_SEED", "2"))


class Topic(NamedTuple):
    """Records with payloads in a store, and the same with theirs inline."""

    folder: Path
    alerts: DataFrame
    inline: DataFrame
    names: dict[str, tuple[str, int]]

    def downloaded(self) -> Counter[tuple[str, int]]:
        """How often the fields of records were fetched since the last call, by field and offset."""
        return Counter({self.names[Path(name).name]: count for name, count in downloads(self.folder).items()})


def settings(folder: Path) -> dict[str, Any]:
    return {
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "key.deserializer": "string",
        "avro.schema": json.dumps(SCHEMA),
        "large.fields.paths": PATHS,
        "large.fields.min.bytes": 100,
        **counting(folder),
    }


@pytest.fixture(params=["native", "arrow"])
def topic(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Topic]:
    config = settings(tmp_path)
    rows = []
    for at in range(COUNT):
        headers: list[Any] = []
        key, value, topic, _, *others = row(encoded(config, alert(at), headers), headers, at, key=b"k%d" % at)
        rows.append((key, value, topic, at % 2, *others))
    raw = spark.createDataFrame(rows, KAFKA).coalesce(1).persist()
    alerts = raw.transform(decode(config, engine=request.param, tombstones=False))
    whole = [(key.decode(), alert(at), *others, None) for at, (key, _, *others, _) in enumerate(rows)]
    inline = spark.createDataFrame(whole, alerts.schema).coalesce(1).persist()
    kinds = {"s": "stamp", "c": "source.cutout", "h": "history"}
    files = [path for path in (tmp_path / "payloads" / "alerts").iterdir() if path.is_file()]
    contents = {path.name: re.match(rb"([sch])(\d)", path.read_bytes()) for path in files}
    yield Topic(
        tmp_path,
        alerts,
        inline,
        {name: (kinds[found[1].decode()], int(found[2])) for name, found in contents.items() if found is not None},
    )
    raw.unpersist()
    inline.unpersist()


def check(topic: Topic, query: Generated) -> None:
    """Compare the plan, the result, and the downloads with those expected."""
    frame = query.run(topic.alerts)
    check_plan(frame, query)
    found = frame.collect()
    counts = topic.downloaded()
    needed = {(name, at) for name, rows in query.rows.items() for at in rows}
    # Spark renames the columns of a second copy of a frame, and moves no filter below its steps.
    unfiltered = {(name, at) for name in query.fields for at in range(COUNT) if has_large(at)} if query.again else set()
    assert set(counts) <= needed | unfiltered, query.text
    assert max(counts.values(), default=1) <= 2, query.text
    assert {at for (_, at), count in counts.items() if count == 2} <= query.again, query.text
    if query.exact:
        assert needed <= set(counts), query.text
        expected = query.run(topic.inline).collect()
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), query.text


def check_plan(frame: DataFrame, query: Generated) -> None:
    """Each large field that a query uses has a step, others none."""
    steps = re.findall(r"fetch_field\[([^\]]*)\]\(", plan_of(frame))
    assert set(steps) <= query.fields, query.text
    assert len(steps) == len(set(steps)) or "union" in query.text, query.text
    if any(query.rows.values()):  # Spark may know that there are none
        assert set(steps) == query.fields, query.text


@pytest.mark.timeout(900)
def test_generated_queries(topic: Topic) -> None:
    """Ten queries, each with payloads in a store and with the same inline."""
    check_queries(topic, seed=1, count=10)


@pytest.mark.timeout(3600)
@pytest.mark.nightly
def test_many_generated_queries(topic: Topic) -> None:
    """Four minutes on a quiet machine."""
    check_queries(topic, seed=SEED, count=500)


def check_queries(topic: Topic, *, seed: int, count: int) -> None:
    random = Random(seed)
    for _ in range(count):
        check(topic, generate(random))


@pytest.mark.timeout(36000)
@pytest.mark.full
def test_plans_of_generated_queries(topic: Topic) -> None:
    """Faster than queries: which steps they have."""
    random = Random(SEED)
    for _ in range(PLANS):
        query = generate(random)
        check_plan(query.run(topic.alerts), query)
    assert {name for name, _ in topic.names.values()} == set(LARGE)
