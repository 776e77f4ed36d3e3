"""A shared folder that is not mounted for a while: no record is passed over."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from serde_chain import SerializationError

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer


def test_records_wait_for_a_share_that_is_not_mounted(
    topic: str, tmp_path: Path, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    share, elsewhere = tmp_path / "share", tmp_path / "elsewhere"
    config = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 10,
        "large.message.payload.store.class": "local",
        "local.path": str(share),
    }
    producer = new_producer(config)
    for number in range(3):
        producer.produce(topic, b"%d" % number * 100)
    assert producer.flush(30) == 0
    share.rename(elsewhere)
    share.mkdir()  # the bare mount point
    consumer = new_consumer(config)
    consumer.subscribe([topic])
    for _ in range(2):
        with pytest.raises(SerializationError, match="no payload store in") as caught:
            fetch(consumer, 1)
        assert (caught.value.offset, caught.value.about_record) == (0, False)
    share.rmdir()
    elsewhere.rename(share)
    assert [message.value()[:1] for message in fetch(consumer, 3)] == [b"0", b"1", b"2"]
