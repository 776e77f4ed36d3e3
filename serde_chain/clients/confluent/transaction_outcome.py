"""The outcome of a transaction whose producer was fenced during the commit.

The fencing producer has ended the transaction by then: by an abort, or by finishing a commit whose response was lost.
So a reader of committed records either gets a record of it, or advances past it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from payload_stores.client_log import without_log

_POLL_SECONDS: Final = 0.2


def was_aborted(client: Mapping[str, Any], position: tuple[str, int, int], timeout: float) -> bool:
    """Whether a transaction was aborted, by its records in the log.

    Args:
        client: Settings of a Kafka client.
        position: Topic, partition and offset of one of its records.
        timeout: Longest time to read, in seconds.

    Returns:
        False if it was committed, or if the outcome is not known in time.
    """
    topic, partition, offset = position
    until = time.monotonic() + timeout
    reader = confluent_kafka.Consumer({
        **without_log({name: value for name, value in client.items() if not callable(value) or name == "oauth_cb"}),
        "group.id": f"serde-chain-outcome-{os.urandom(16).hex()}",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    })  # fmt: skip
    try:
        reader.assign([TopicPartition(topic, partition, offset)])
        while time.monotonic() < until:
            message = reader.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return (message.offset() or 0) > offset
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001, its documented name
                return False
            # The end of the committed records: after the record, or still before it.
            (at,) = reader.position([TopicPartition(topic, partition)])
            if max(at.offset, message.offset() or 0) > offset:
                return True
    except KafkaException:
        return False
    finally:
        reader.close()
    return False
