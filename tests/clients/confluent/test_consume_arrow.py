"""Tables straight from a broker."""

from datetime import UTC, datetime
from typing import Any

import pytest

from serde_chain import Consumer, Producer, SerializationError
from serde_chain.testing.services import KafkaBroker

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'


def some(consumer: Consumer) -> Any:
    while not (table := consumer.consume_arrow(10, 1)).num_rows:
        pass
    return table


def test_good_records_come_before_the_error_and_after_it(broker: KafkaBroker, topic: str) -> None:
    base = broker.client_config()
    chain = {"value.serializers": "avro", "value.deserializers": "avro", "key.deserializer": "string"}
    with Producer({**base, "value.serializers": "avro", "key.serializer": "string", "avro.schema": SCHEMA}) as producer:
        for n in range(3):
            producer.produce(topic, {"n": n}, key=f"k{n}", headers=[("h", b"1")], timestamp=1000 + n)
    with Producer(base) as raw:
        raw.produce(topic, b"\xff")
        raw.produce(topic, b"\x08", key=b"k4")
    del chain["value.serializers"]
    reading = {**base, **chain, "avro.schema": SCHEMA, "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer({**reading, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        rows: list[dict[str, object]] = []
        while len(rows) < 3:
            rows += consumer.consume_arrow(3 - len(rows), 10).to_pylist()
        assert [row["value"] for row in rows] == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert rows[0] == {
            "topic": topic,
            "partition": 0,
            "offset": 0,
            "timestamp": datetime.fromtimestamp(1, UTC),
            "key": "k0",
            "headers": [{"key": "h", "value": b"1"}],
            "value": {"n": 0},
        }
        with pytest.raises(SerializationError) as caught:
            some(consumer)
        assert (caught.value.offset, caught.value.partition) == (3, 0)
        assert caught.value.record is not None
        found = some(consumer)
        assert found["value"].to_pylist() == [{"n": 4}]
        assert found["offset"].to_pylist() == [4]
