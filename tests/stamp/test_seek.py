"""Finding records by time on a real broker."""

from typing import Any

import confluent_kafka
import pytest

from serde_chain.errors import StampError
from serde_chain.stamp import offset_at
from serde_chain.stamp import seek as module
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.entry_metadata import frame
from tests.conftest import NewTopic

pytestmark = pytest.mark.full


def test_the_first_record_of_a_time_is_found(
    broker: KafkaBroker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, config = new_topic(2), {**broker.client_config(), "log_level": 0}
    producer = confluent_kafka.Producer({**config, "transactional.id": topic})
    producer.init_transactions(60)
    times: dict[int, int] = {}
    for batch in range(20):  # the marks between transactions take offsets too
        producer.begin_transaction()
        for number in range(50):
            time = 1000 + 10 * (50 * batch + number)
            value: Any = None if number == 7 else frame(bytes(100), broker_timestamp=time)

            def note(_error: Any, message: Any, framed: Any = value, at: int = time) -> None:
                if framed is not None:
                    times[message.offset()] = at

            producer.produce(topic, value, partition=1, key=b"k", on_delivery=note)
        if batch % 5 == 4:
            producer.flush(30)
            producer.abort_transaction(30)  # these records are not there
            for offset in [offset for offset, at in times.items() if at >= 1000 + 10 * 50 * batch]:
                del times[offset]
        else:
            producer.commit_transaction(30)
    reads = []
    search = module.search

    def counted(read: Any, low: int, high: int, wanted: int) -> int:
        def count(start: int, end: int) -> Any:
            reads.append(start)
            return read(start, end)

        return search(count, low, high, wanted)

    monkeypatch.setattr(module, "search", counted)
    for wanted in (0, 1000, 1001, 1070, 5555, 9000):
        expected = min(offset for offset, at in times.items() if at >= wanted)
        reads.clear()
        assert offset_at(config, topic, 1, wanted) == expected
        assert len(reads) <= 12  # of about a thousand
    assert offset_at(config, topic, 1, 10**9) > max(times)
    assert offset_at(config, topic, 0, 0) == 0
    with pytest.raises(StampError):
        offset_at({**config, "bootstrap.servers": "127.0.0.1:1"}, topic, 0, 0, timeout_s=1)
