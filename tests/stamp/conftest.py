"""Topics to relay on the real broker."""

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from serde_chain.testing.services import KafkaBroker

Fill = Callable[[str, list[dict[str, Any]]], None]


@pytest.fixture
def config(broker: KafkaBroker) -> dict[str, Any]:
    """A client's configuration; librdkafka prints nothing."""
    return {**broker.client_config(), "log_level": 0}


@pytest.fixture
def fill(config: dict[str, Any]) -> Fill:
    """Write records, given as the arguments of ``produce``, to a topic."""

    def write(topic: str, records: list[dict[str, Any]]) -> None:
        producer = confluent_kafka.Producer({**config, "linger.ms": 20})
        for record in records:
            producer.produce(topic, **record)
            producer.poll(0)
        assert producer.flush(60) == 0

    return write
