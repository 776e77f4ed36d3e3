"""References that lead to nothing, or to something else, are reported; all others are counted."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from payload_stores.base import PayloadStore
from serde_chain.errors import JobError
from serde_chain.spark.jobs import audit
from tests.spark.jobs.conftest import Config, Send, payload, stored


@pytest.mark.parametrize("payloads", [True, pytest.param(False, marks=pytest.mark.full)])
def test_what_is_gone_or_changed_is_reported(
    *, spark: SparkSession, config: Config, topic: str, send: Send, store: PayloadStore, payloads: bool
) -> None:
    config["large.message.fetch"] = "lazy"  # of readers; an audit fetches
    config["value.deserializers"] = "large-message"
    send(topic, b"small", *map(payload, range(4)), None)
    assert audit(spark, config, topic, payloads=payloads).problems.count() == 0
    by_content = {
        store.download(reference): Path(reference.removeprefix("file://")) for reference in stored(store, topic)
    }
    by_content[payload(1)].unlink()
    by_content[payload(2)].write_bytes(b"x" * 599)
    by_content[payload(3)].write_bytes(b"x" * 600)
    report = audit(spark, config, topic, payloads=payloads)
    assert report.references == 4
    problems = {row["offset"]: row["kind"] for row in report.problems.collect()}
    damaged = {4: "PayloadIntegrityError"} if payloads else {}  # only a download shows it
    assert problems == {2: "PayloadNotFoundError", 3: "PayloadIntegrityError", **damaged}
    assert report.problems.columns == ["topic", "partition", "offset", "reference", "kind", "message"]
    assert {row["topic"] for row in report.problems.collect()} == {topic}


def test_an_empty_topic_and_one_that_is_not_there(spark: SparkSession, config: Config, topic: str) -> None:
    report = audit(spark, config, [topic])
    assert (report.references, report.problems.count()) == (0, 0)
    with pytest.raises(JobError, match="cannot be read"):
        audit(spark, config, "nowhere")
