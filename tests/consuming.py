"""Reads topics in tests."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import TopicPartition

from serde_chain import Consumer


def consumed(config: Mapping[str, Any], topic: str, count: int) -> list[Any]:
    """The first messages of a topic's first partition; none of them is an error."""
    found: list[Any] = []
    with Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            found.append(message)
    return found
