"""Delivery reports that call a record delivered which no log has.

A broker takes any sequence number from a producer of whose records a partition has none yet (KIP-98). So where it
refuses the first batch, as one that is not the partition's leader yet, it takes the second one, which is on its way
already. librdkafka then calls the first delivered as well, "implicitly", and never sends it again. This happens in the
first moments of a topic. Such a report has no offset.
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

    Only for producers with ``acks=all``, and for which a record that is sent twice is better than none: an offset is
    missing, too, where a broker's answer was lost.

    Args:
        error: The report's own error.
        message: Its message.

    Returns:
        The error, which wants the transaction to be aborted.
    """
    if error is not None or message.offset() is not None:
        return error
    return KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, _UNKNOWN, False, False, True)
