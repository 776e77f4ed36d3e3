"""False-positive delivery reports.

A broker accepts any sequence number from a producer without records in the partition (KIP-98). So if it refuses the
first batch, for instance because it is not the partition's leader yet, it accepts the second one, which is in flight
already. librdkafka then reports the first batch as "implicitly" delivered too, and never sends it again. This happens
in the first moments of a topic. Such a report has no offset.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

__all__ = ["failure_of"]

_UNKNOWN: Final = (
    "the broker has acknowledged later records of this producer, and not this one, which may be in no log: "
    "send it again; in a transaction, abort, and send all of it again"
)


def failure_of(error: KafkaError | None, message: Any) -> KafkaError | None:
    """The error of a delivery report, if there is one; also of a report without an offset.

    Only for producers with ``acks=all`` that prefer a duplicate record to a lost one: the offset is also missing if a
    broker's response was lost.

    Args:
        error: The report's own error.
        message: Its message.

    Returns:
        The error, which requires an abort of the transaction.
    """
    if error is not None or message.offset() is not None:
        return error
    return KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, _UNKNOWN, False, False, True)
