"""A sweep in Spark: what is read once, what Spark shows, what executors lose."""

import gc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from payload_stores import open_store
from payload_stores.base import PayloadStore
from serde_chain import Producer
from serde_chain.errors import JobError
from serde_chain.jobs import SweepReport
from serde_chain.jobs.reference_plan import plan_reading
from serde_chain.jobs.topic_bounds import READ_UNCOMMITTED, TopicBounds
from serde_chain.spark.jobs import listing, sweep, sweeping, topic_records
from serde_chain.spark.jobs.topic_records import TopicReader
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.jobs.conftest import Config, Send, payload, stored


@pytest.mark.full
def test_a_listing_of_several_pages(
    *,
    spark: SparkSession,
    config: Config,
    topic: str,
    send: Send,
    store: PayloadStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "_PAGE", 2)
    plans: list[str] = []
    not_in_use = sweeping.SparkSweep._not_in_use

    def watched(self: sweeping.SparkSweep, listed: DataFrame) -> DataFrame:
        left: Any = not_in_use(self, listed)
        plans.append(left._jdf.queryExecution().optimizedPlan().toString())
        return left  # type: ignore[no-any-return]

    monkeypatch.setattr(sweeping.SparkSweep, "_not_in_use", watched)
    send(topic, *map(payload, range(5)), payload(0))
    used = stored(store, topic)
    for number in range(5, 8):
        store.publish(topic, payload(number))
    report = sweep(spark, config, topic, grace_ms=0, delete=True)
    assert (report.live, report.listed, report.orphans, report.deleted) == (len(used), len(used) + 3, 3, 3)
    assert stored(store, topic) == used
    # However many pages there are, all records are read once.
    assert [plan.count("Join ") for plan in plans] == [1]


@pytest.mark.full
def test_the_login_reaches_the_broker_and_no_plan(
    *, spark: SparkSession, config: Config, topic: str, send: Send, store: PayloadStore, broker: KafkaBroker
) -> None:
    send(topic, payload(0))
    store.publish(topic, payload(1))
    login = broker.client_config("admin", mechanism="SCRAM-SHA-512")
    assert sweep(spark, {**config, **login}, topic, grace_ms=0, delete=True).deleted == 1
    plan = plan_reading(config, (topic,))
    reading = TopicReader(spark, {**config, **login}, plan, READ_UNCOMMITTED)
    with TopicBounds(config, plan.topics, READ_UNCOMMITTED) as bounds:
        first, ends = bounds.bounds()
    shown = reading.read(first, ends).rows._jdf.queryExecution().toString()
    assert "kafka" in shown.lower()
    assert "admin-secret" not in shown


@pytest.mark.full
@pytest.mark.parametrize("shared", ["nothing", "a temporary folder", "a checkpoint"])
def test_a_listing_that_executors_have_lost(
    *,
    spark: SparkSession,
    config: Config,
    s3_server: S3Server,
    bucket: str,
    topic: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shared: str,
) -> None:
    config |= {"large.message.payload.store.class": "s3", **s3_server.store_config(bucket)}
    with Producer(config) as producer:
        producer.produce(topic, payload(1))
    checkpoint = str(tmp_path / "checkpoint") if shared == "a checkpoint" else None
    if shared == "nothing":
        monkeypatch.setattr(sweeping.SparkSweep, "_shared", lambda *_: None)
    with closing(open_store("s3", config)) as store:
        used = stored(store, topic)
        store.publish(topic, payload(2))
        before = stored(store, topic)

        def lose(what: str, _count: int) -> None:
            if what == "records to read":
                # As when an executor ends, with what is on its disk.
                for kept in dict(spark.sparkContext._jsc.getPersistentRDDs()).values():
                    kept.unpersist()

        def run() -> SweepReport:
            return sweep(spark, config, topic, grace_ms=-2000, delete=True, progress=lose, checkpoint=checkpoint)

        if shared == "nothing":
            with pytest.raises(
                JobError, match=r"an executor that kept a part of the stores' listing has ended.*run it again"
            ):
                run()
            assert stored(store, topic) == before
            assert not [path for path in folder.iterdir() if path.stat().st_size]
        else:
            assert run().deleted == 1
            assert stored(store, topic) == used
    assert (tmp_path / "checkpoint").exists() is (checkpoint is not None)
    gc.collect()  # the socket of a result that did not come, while this test's filter of warnings counts


def test_long_partitions_are_read_by_several_tasks(
    spark: SparkSession, config: Config, topic: str, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_records, "_RECORDS_OF_TASK", 10)
    send(topic, *map(payload, range(45)))
    plan = plan_reading(config, (topic,))
    reading = TopicReader(spark, config, plan, READ_UNCOMMITTED)
    with TopicBounds(config, plan.topics, READ_UNCOMMITTED) as bounds:
        first, ends = bounds.bounds()
    assert reading._records(first, ends).rdd.getNumPartitions() == 5
    referring = reading.read(first, ends)
    assert (referring.counts, referring.rows.count()) == ({topic: 45}, 45)
    referring.rows.unpersist()
