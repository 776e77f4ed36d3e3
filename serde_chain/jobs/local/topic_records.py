"""Reads records of topics with one consumer, and the references in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from payload_stores.message_headers import headers_of
from payload_stores.options import Option, integer
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.codec import Record
from serde_chain.errors import JobError
from serde_chain.jobs.topic_bounds import GROUP, Ends

# Records beyond a deleted beginning are not missing: no reader sees the others any more.
_SETTINGS: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 16_384,
}
# A client with a small receive.message.max.bytes has a smaller one.
_FETCH: Final = Option("fetch.max.bytes", integer(0), 16 << 20)


def read_records(config: Mapping[str, object], first: Ends, ends: Ends, isolation: str) -> Iterator[Record]:
    """Read the records between some offsets, of one topic after the other.

    Records removed from a partition's beginning in the meantime are omitted.

    Args:
        config: Flat configuration of a client.
        first: Start offsets by partition.
        ends: End offsets by partition.
        isolation: ``read_uncommitted`` for the whole log, ``read_committed`` for what readers see.

    Raises:
        ConfigError: librdkafka refuses the configuration.
        JobError: A partition is unreadable, or no record came in time.
    """
    most = min(_FETCH.read(config), _FETCH.default)
    settings = {**_SETTINGS, _FETCH.name: most, "isolation.level": isolation}
    with PartitionReader(config, GROUP, failure=JobError, **settings) as reader:
        for topic in dict.fromkeys(topic for topic, _ in ends):
            of_topic = {at: (first[topic, at], end) for (name, at), end in ends.items() if name == topic}
            for messages in reader.batches(topic, of_topic):
                yield from map(_record, messages)


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.value(),
        message.key(),
        headers_of(message),
        message.partition(),
        _timestamp(message),
        message.offset(),
    )


def _timestamp(message: Any) -> int | None:
    """A record's timestamp in ms; None if it has none."""
    _kind, time_ms = message.timestamp()
    return int(time_ms) if time_ms >= 0 else None


def is_marked(record: Record, markers: frozenset[str] | None) -> bool:
    """Whether a record may have a reference: it has one of the markers, if all records with a reference have one."""
    headers: Iterable[Any] = record.headers or ()
    return markers is None or any(name in markers for name, _ in headers)
