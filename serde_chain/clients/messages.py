"""One fetched message into its final form."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from serde_chain.chain import DeserializerChain
from serde_chain.errors import SerializationError
from serde_chain.record import KEY, VALUE, RecordContext

__all__ = ["decode_message"]


def decode_message(message: Any, key: DeserializerChain | None, value: DeserializerChain | None) -> Any:
    """Decode key and value of a message.

    The value comes first: where it is a reference to a whole record, that record's key and timestamp are meant.

    Args:
        message: A ``confluent_kafka.Message`` without an error; changed.
        key: The chain of keys; None leaves them as bytes.
        value: The chain of values, likewise.

    Returns:
        The message itself, or another one where the timestamp is another.

    Raises:
        SerializationError: It cannot be read; carries the message as it came.
    """
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    raw_key, headers = message.key(), message.headers()
    kept: Any = list(headers) if headers else None
    kind, moment = message.timestamp()
    ctx = RecordContext(topic, VALUE, kept, raw_key, partition, moment, offset)
    found_key, found_value = raw_key, message.value()
    try:
        if value is not None:
            found_value = value(found_value, ctx)
            found_key = ctx.key
        if key is not None:
            found_key = key(found_key, RecordContext(topic, KEY, kept, None, partition, ctx.timestamp, offset))
    except SerializationError as error:
        error.record = message
        raise
    remaining = (kept or None) if headers else headers  # None as of a record that never had any
    if ctx.timestamp is not None and ctx.timestamp != moment:
        # Nothing but its constructor sets a message's timestamp; it takes no None where the broker said nothing.
        said = {"latency": message.latency(), "leader_epoch": message.leader_epoch()}
        return confluent_kafka.Message(
            topic=topic,
            partition=partition,
            offset=offset,
            key=found_key,
            value=found_value,
            headers=remaining,
            timestamp=(kind or confluent_kafka.TIMESTAMP_CREATE_TIME, ctx.timestamp),
            **{name: found for name, found in said.items() if found is not None},
        )
    message.set_key(found_key)
    message.set_value(found_value)
    if remaining != headers:
        message.set_headers(remaining)
    return message
