"""Fetched messages into their final form."""

from __future__ import annotations

from typing import Any, NamedTuple

import confluent_kafka

from payload_stores.message_headers import headers_of
from serde_chain.chain import DeserializerChain
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.transfer import then

__all__ = ["Decoded", "begin"]


class Decoded(NamedTuple):
    """A message and its decoded parts, not yet assembled.

    Decoding does not change the message, and assembling can be repeated: so a signal handler that raises
    between two steps leaves nothing half done.

    Attributes:
        message: A ``confluent_kafka.Message``.
        came: Its key, value and headers as they came.
        final: Those of its final form.
        timestamp: Its timestamp in ms, if it becomes another one.
    """

    message: Any
    came: tuple[Any, Any, Any]
    final: tuple[Any, Any, Any]
    timestamp: int | None

    def finish(self) -> Any:
        """The message in its final form: itself, or another one where the timestamp is another."""
        if self.timestamp is None:
            self._put(self.final)
            return self.message
        # Nothing but its constructor sets a message's timestamp; it does not accept None where the broker sent none.
        message, (key, value, headers) = self.message, self.final
        said = {"latency": message.latency(), "leader_epoch": message.leader_epoch()}
        return confluent_kafka.Message(
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
            key=key,
            value=value,
            headers=headers,
            timestamp=(message.timestamp()[0] or confluent_kafka.TIMESTAMP_CREATE_TIME, self.timestamp),
            **{name: fact for name, fact in said.items() if fact is not None},
        )

    def undo(self) -> None:
        """Restore the message as it came."""
        self._put(self.came)

    def _put(self, parts: tuple[Any, Any, Any]) -> None:
        key, value, headers = parts
        self.message.set_key(key)
        self.message.set_value(value)
        if self.came[2] != self.final[2]:
            self.message.set_headers(headers)


def begin(message: Any, key: DeserializerChain | None, value: DeserializerChain | None) -> Any:
    """Decode key and value of a message, up to the first payload that has to be fetched.

    The value comes first: where it is a reference to a whole record, that record's key and timestamp are meant.

    Args:
        message: A ``confluent_kafka.Message`` without an error; not changed.
        key: The chain of keys; None leaves them as bytes.
        value: The chain of values, likewise.

    Returns:
        :class:`Decoded`, or a :class:`~serde_chain.transfer.Transfer` that leads to it.

    Raises:
        SerializationError: It cannot be read.
    """
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    raw_key, raw_value, headers = message.key(), message.value(), headers_of(message)
    kept: Any = list(headers) if headers else None
    moment = message.timestamp()[1]
    ctx = RecordContext(topic, VALUE, kept, raw_key, partition, moment, offset)

    def with_value(decoded_value: Any) -> Any:
        if key is None:
            return end(ctx.key, decoded_value)
        of_key = RecordContext(topic, KEY, kept, None, partition, ctx.timestamp, offset)
        return then(key.begin(ctx.key, of_key), lambda decoded_key: end(decoded_key, decoded_value))

    def end(decoded_key: Any, decoded_value: Any) -> Decoded:
        remaining = (kept or None) if headers else headers  # None, as in a record that never had any
        other = ctx.timestamp if ctx.timestamp != moment else None
        return Decoded(message, (raw_key, raw_value, headers), (decoded_key, decoded_value, remaining), other)

    return then(raw_value if value is None else value.begin(raw_value, ctx), with_value)
