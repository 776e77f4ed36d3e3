"""Decodes fetched messages into an Arrow table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from payload_stores.message_headers import headers_of
from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch
from serde_chain.arrow.selection import Columns
from serde_chain.chain import DeserializerChain
from serde_chain.errors import SerializationError
from serde_chain.record import VALUE
from serde_chain.wire import kip1159, large_fields

# Records per read after a failed record: those after the next failed one must be read again.
_CAREFUL: Final = 64


class Rows(NamedTuple):
    """The result of decoding messages.

    Attributes:
        table: The messages before the first failed one, or before the time was over.
        error: The error of the next one; None if it was not tried.
    """

    table: Any
    error: SerializationError | None


class ArrowReader:
    """Decodes messages into tables.

    Args:
        key: The chain of keys; None leaves them as bytes.
        value: The chain of values, likewise.
    """

    def __init__(self, key: DeserializerChain | None, value: DeserializerChain | None) -> None:
        self._key = key or DeserializerChain([])
        self._value = value or DeserializerChain([])
        self._careful = False

    def read(self, messages: Sequence[Any], seconds: float, columns: Sequence[str] | None = None) -> Rows:
        """Decode messages into a ``pyarrow.Table``.

        Args:
            messages: ``confluent_kafka.Message`` objects without an error.
            seconds: No new part starts after this time.
            columns: The fields of the values to read; None for all.
        """
        until = time.monotonic() + seconds
        most = min(_CAREFUL, len(messages)) if self._careful else len(messages)
        table, error = self._table(messages[:most], columns)
        while error is None and len(table) < len(messages) and time.monotonic() < until:
            most *= 2
            more, error = self._table(messages[len(table) : len(table) + most], columns)
            if more.schema != table.schema:
                # Without a reader's schema, a batch has the type of its records.
                return Rows(table, None)
            table = require("pyarrow", "arrow").concat_tables([table, more])
        self._careful = error is not None or len(table) < len(messages)
        return Rows(table, error)

    def _table(self, messages: Sequence[Any], columns: Sequence[str] | None) -> Rows:
        """Like :meth:`read`, in one step."""
        arrow: Any = require("pyarrow", "arrow")
        topics = [message.topic() for message in messages]
        positions = {
            "partition": [message.partition() for message in messages],
            "offset": [message.offset() for message in messages],
            "timestamp": [message.timestamp()[1] for message in messages],
        }
        batch = Batch(
            [message.value() for message in messages],
            [headers_of(message) for message in messages],
            topic=topics,
            field=VALUE,
            keys=[message.key() for message in messages],
            positions=positions,
            columns=columns,
        )
        # An offloaded whole record brings its own key, so values come first.
        (value,) = self._value.read_parts(batch)
        (key,) = self._key.read_parts(value.keys_batch())
        bad = min((*key.errors, *value.errors), default=None)
        error = None
        if bad is not None:
            error = key.errors.get(bad) or value.errors[bad]
            error.record = messages[bad]
        pairs = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
        left = key.headers_after()
        listed = [[{"key": name, "value": data} for name, data in headers] if headers else None for headers in left]
        moments = arrow.array(value.timestamps_after(), arrow.int64()).view(arrow.timestamp("ms", "UTC"))
        table = arrow.table(
            {
                "topic": arrow.array(topics, arrow.string()),
                "partition": arrow.array(positions["partition"], arrow.int32()),
                "offset": arrow.array(positions["offset"], arrow.int64()),
                "timestamp": moments,
                "key": key.column,
                "headers": arrow.array(listed, arrow.list_(pairs)),
                "value": value.column,
            }
        )
        return Rows(table if bad is None else table.slice(0, bad), error)


def bytes_of_columns(message: Any, *, columns: Sequence[str], otherwise: Callable[[Any], int]) -> int:
    """Size of the payloads that some columns of a record need, in bytes.

    Args:
        message: The record.
        columns: The columns.
        otherwise: Returns the size for a record whose whole value is offloaded, or that has no moved fields.
    """
    headers = dict(headers_of(message) or ())
    header = headers.get(large_fields.HEADER)
    if header is None or kip1159.MARKER in headers:
        return otherwise(message)
    selected = Columns(columns)
    try:
        return sum(entry.size for entry in large_fields.decode(header) if selected.has(entry.path))
    except ValueError:
        return 0  # raised when the record is read
