"""A user's program: records through Kafka."""

from typing import assert_type

import confluent_kafka

from serde_chain import Consumer, Producer, SerializationError


def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message[object, object]) -> None:
    print(error, message.topic())  # noqa: T201


def revoked(consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
    consumer.commit(offsets=partitions, asynchronous=False)


with Producer({"bootstrap.servers": "localhost", "value.serializers": "json, zstd"}) as producer:
    producer.produce("alerts", {"id": 1}, "key", headers=[("kind", b"test")], on_delivery=delivered)
    producer.produce("alerts", value={"id": 2}, headers={"kind": b"test"})
    assert_type(producer.flush(10), int)
    assert_type(producer.produce_batch("alerts", [{"value": {"id": 3}}]), int)

with Consumer("client.properties") as consumer:
    consumer.subscribe(["alerts"], on_revoke=revoked)
    try:
        message = consumer.poll(1.0)
    except SerializationError as error:
        if error.partition is not None and error.offset is not None:
            consumer.seek(confluent_kafka.TopicPartition("alerts", error.partition, error.offset))
    else:
        if message is not None and message.error() is None:
            print(message.value(), message.offset())  # noqa: T201
    for each in consumer.consume(100, timeout=1.0):
        assert_type(each.partition(), int | None)
