"""Decodes fetched messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka

from payload_stores.message_headers import headers_of
from serde_chain.codec import Decoded, Decoder, Record
from serde_chain.record import ValueT
from serde_chain.transfer import then

if TYPE_CHECKING:

    class Message(confluent_kafka.Message[Any, ValueT]):
        """A message with a decoded key and value, for type checkers: the original's are bytes."""

        def key(self) -> Any:
            """The decoded key."""

        def value(self) -> ValueT | None:  # type: ignore[override]
            """The decoded value; None for a tombstone."""

else:
    Message = confluent_kafka.Message


class DecodedMessage(NamedTuple):
    """A message and its decoded parts, not yet assembled.

    Decoding does not change the message, and assembly can be repeated, so a signal handler that raises between two
    steps leaves nothing half done.

    Attributes:
        message: A ``confluent_kafka.Message``.
        came: Its original key, value and headers.
        final: Its decoded key, value and headers.
        timestamp: Its new timestamp in ms, if it changes.
    """

    message: Any
    came: tuple[Any, Any, Any]
    final: tuple[Any, Any, Any]
    timestamp: int | None

    def finish(self) -> Any:
        """The decoded message: itself, or a new one if the timestamp changes."""
        if self.timestamp is None:
            self._put(self.final)
            return self.message
        # Only the constructor sets a message's timestamp; it does not accept None for facts that the broker omitted.
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
        """Restore the original message."""
        self._put(self.came)

    def _put(self, parts: tuple[Any, Any, Any]) -> None:
        key, value, headers = parts
        self.message.set_key(key)
        self.message.set_value(value)
        if self.came[2] != self.final[2]:
            self.message.set_headers(headers)


def decode_message(message: Any, decoder: Decoder) -> Any:
    """Decode key and value of a message, up to the first I/O.

    Args:
        message: A ``confluent_kafka.Message`` without an error; not changed.
        decoder: Decodes records.

    Returns:
        :class:`DecodedMessage`, or a :class:`~serde_chain.transfer.Transfer` that leads to it.

    Raises:
        SerializationError: It cannot be read.
    """
    key, value, headers = message.key(), message.value(), headers_of(message)
    moment = message.timestamp()[1]
    record = Record(message.topic(), value, key, headers, message.partition(), moment, message.offset())

    def end(decoded: Decoded) -> DecodedMessage:
        remaining = decoded.headers or (None if headers else headers)  # None, as in a record that never had any
        other = decoded.timestamp if decoded.timestamp != moment else None
        return DecodedMessage(message, (key, value, headers), (decoded.key, decoded.value, remaining), other)

    return then(decoder.decode(record), end)
