"""Records that could not be read, from Kafka to Kafka by Spark, and back."""

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

from serde_chain import ConfigError
from serde_chain.clients.confluent.replay import replay
from serde_chain.clients.dead_letters import read_dead_letter
from serde_chain.spark import dead_letters, decode
from serde_chain.testing.services import KafkaBroker

CONFIG = {"value.deserializers": "zstd, string", "key.deserializer": "string"}


@pytest.fixture(params=["arrow", pytest.param("native", marks=pytest.mark.full)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def consumed(broker: KafkaBroker, topic: str, count: int) -> list[Any]:
    settings = {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None
        found.append(message)
    consumer.close()
    return found


def test_dead_letters(spark: SparkSession, broker: KafkaBroker, new_topic: Callable[[], str], engine: str) -> None:
    topic, dead = new_topic(), new_topic()
    config = {**CONFIG, "value.deserializers": "string"} if engine == "native" else CONFIG
    with confluent_kafka.Producer(broker.client_config()) as producer:
        producer.produce(topic, b"\xff\xfe", b"bad", headers=[("trace", b"1"), ("trace", None)])
        producer.produce(topic, None, b"tombstone")
        producer.produce(topic, b"\xff", None)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    records = spark.read.format("kafka").options(**options).load()
    read = records.transform(decode(config, mode="PERMISSIVE", engine=engine, raw=True))
    assert [row["serde_raw"] is None for row in read.orderBy("offset").collect()] == [False, True, False]
    dead_letters(read, dead).write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
    first, second = sorted(consumed(broker, dead, 2), key=lambda message: bool(message.key() is None))
    assert (first.value(), first.key(), second.value(), second.key()) == (b"\xff\xfe", b"bad", b"\xff", None)
    letter = read_dead_letter(first.headers())
    assert (letter.origin.topic, letter.origin.offset, letter.headers) == (topic, 0, [("trace", b"1"), ("trace", None)])
    assert letter.origin.timestamp is not None
    assert b"field=value" in dict(first.headers())["serde-chain-error-message"]
    report = replay(broker.client_config(), dead, to=[topic])
    assert report.replayed == {topic: 2}
    again = consumed(broker, topic, 5)[3:]
    assert sorted(message.value() for message in again) == [b"\xff", b"\xff\xfe"]


def test_mistakes(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="raw=True keeps undecodable records, which FAILFAST does not"):
        decode(CONFIG, raw=True)
    with pytest.raises(ConfigError, match="no column serde_error"):
        dead_letters(spark.range(1), "dead")
