"""Fetched messages into an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from payload_stores.plugins import require
from serde_chain.batch import Batch, BatchResult
from serde_chain.chain import DeserializerChain
from serde_chain.errors import SerializationError
from serde_chain.record import KEY, VALUE

__all__ = ["Decoded", "decode"]


class Decoded(NamedTuple):
    """What became of messages.

    Attributes:
        table: The messages up to the first that cannot be read.
        error: Why that one cannot be read; None if all can.
    """

    table: Any
    error: SerializationError | None


def decode(messages: Sequence[Any], key: DeserializerChain | None, value: DeserializerChain | None) -> Decoded:
    """Decode messages into a ``pyarrow.Table``.

    Args:
        messages: ``confluent_kafka.Message`` objects without an error.
        key: The chain of keys; None leaves them as bytes.
        value: The chain of values, likewise.
    """
    arrow: Any = require("pyarrow", "arrow")
    topics = [message.topic() for message in messages]
    keys = arrow.array([message.key() for message in messages], arrow.binary())
    headers: Any = [message.headers() for message in messages]
    positions = {
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "timestamp": [message.timestamp()[1] for message in messages],
    }
    results: list[BatchResult] = []
    for field, chain, data in (
        (KEY, key, keys),
        (VALUE, value, arrow.array([message.value() for message in messages], arrow.large_binary())),
    ):
        if chain is None:
            results.append(BatchResult(data if field == KEY else data.cast(arrow.binary()), headers, {}))
            continue
        known = None if field == KEY else keys
        batch = Batch(data, headers, topic=topics, field=field, keys=known, positions=positions)
        results.append(chain.read_batch(batch))
        headers = results[-1].headers
    bad = min((row for result in results for row in result.errors), default=None)
    error = None
    if bad is not None:
        error = next(result.errors[bad] for result in results if bad in result.errors)
        error.record = messages[bad]
    pairs = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    listed = [[{"key": name, "value": data} for name, data in found] if found else None for found in headers]
    moments = arrow.array(positions["timestamp"], arrow.int64()).view(arrow.timestamp("ms", "UTC"))
    table = arrow.table(
        {
            "topic": arrow.array(topics, arrow.string()),
            "partition": arrow.array(positions["partition"], arrow.int32()),
            "offset": arrow.array(positions["offset"], arrow.int64()),
            "timestamp": moments,
            "key": results[0].values,
            "headers": arrow.array(listed, arrow.list_(pairs)),
            "value": results[1].values,
        }
    )
    return Decoded(table if bad is None else table.slice(0, bad), error)
