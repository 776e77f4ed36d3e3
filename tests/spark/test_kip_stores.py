"""Stores written to KIP-1159's interface alone, in queries: workers import the class."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from serde_chain import Producer
from serde_chain.spark import decode, encode
from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic
from tests.spark.kip_store import Shelf

PAYLOADS = [b"small", b"large" * 100, None, b"other" * 100]


@pytest.mark.parametrize("store", [Shelf, f"{Shelf.__module__}.Shelf"], ids=["class", "name"])
def test_a_live_query_reads_and_writes(
    spark: SparkSession, broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path, store: Any
) -> None:
    config = {
        **broker.client_config(),
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": {"class": store, "shelf.room": str(tmp_path / "room")},
        "large.message.threshold.bytes": 100,
    }
    sent, copied = new_topic(), new_topic()
    with Producer(config) as producer:
        for payload in PAYLOADS:
            producer.produce(sent, payload)
    sink = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def records(reader: Any, topic: str) -> DataFrame:
        options = {**sink, "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
        frame: DataFrame = reader.format("kafka").options(**options).load().transform(decode(config))
        return frame

    written = records(spark.readStream, sent).select("value").transform(encode(config, topic=copied))
    writer = written.writeStream.format("kafka").options(**sink).option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    assert query.exception() is None
    found = records(spark.read, copied).orderBy("offset").collect()
    assert [row["value"] and bytes(row["value"]) for row in found] == PAYLOADS
    for topic in (sent, copied):
        assert len(list((tmp_path / "room" / topic).iterdir())) == 2
