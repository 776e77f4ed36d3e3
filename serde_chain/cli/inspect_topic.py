"""``serde-chain inspect``: records as they are stored in a topic, without a download."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from rich.console import Console
from rich.table import Table
from rich.text import Text

from serde_chain import config as configuration
from serde_chain.catalogue import find_format
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.codecs import codec_of
from serde_chain.errors import ContextualError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.schemas.schema_id import split_confluent
from serde_chain.stages.encryption import envelope
from serde_chain.stages.large_message.options import ACCEPT
from serde_chain.wire.entry_metadata import EntryMetadataError, peek, strip
from serde_chain.wire.reference_format import Reference

__all__ = ["describe", "print_records", "table"]

_PREVIEW_BYTES = 60
# Errors contain what librdkafka would print, and a few records need no large queue.
_QUIET: Final[dict[str, Any]] = {"log_level": 0, "queued.max.messages.kbytes": 16_384}


class RecordUnavailableError(ContextualError):
    """A record cannot be fetched for display."""

    context_fields = ("topic", "partition", "offset")


def print_records(
    path: Path, topic: str, partition: int, first: int | None, count: int, *, timeout: float, as_json: bool
) -> None:
    """Fetch records as raw bytes and print a description.

    Offsets without a record (transaction markers, compacted records) are passed over.

    Args:
        path: Client configuration.
        topic: Topic.
        partition: Partition.
        first: First offset; None for the first one present.
        count: How many records; fewer if the partition ends before.
        timeout: Longest wait for the broker and for each record, in seconds.
        as_json: Print JSON, one line a record.

    Raises:
        ConfigError: The Kafka client refuses its configuration.
        RecordUnavailableError: The topic, partition or record does not exist, or the broker does not answer.
    """
    config = configuration.load(path)
    # hop's mark is unambiguous, and nothing is fetched here.
    formats = dict.fromkeys((*ACCEPT.read(config), "hop"))
    own: dict[str, Any] = {key: config[key] for key in ("isolation.level",) if key in config}
    console = Console()
    settings = {**_QUIET, **own}
    with PartitionReader(
        config, "serde-chain-inspect", failure=RecordUnavailableError, timeout_s=timeout, **settings
    ) as reader:
        start, end = _range(reader, topic, partition, first)
        shown = 0
        for message in islice(reader.read(topic, partition, start, end), count):
            seen = describe(message, formats)
            if as_json:
                console.print(json.dumps(seen), soft_wrap=True, highlight=False, markup=False)
            else:
                console.print(table(seen))
            shown += 1
    if not shown:
        raise RecordUnavailableError(
            f"there is no record from this offset on, up to {end}: transaction markers and compaction leave such gaps",
            topic=topic,
            partition=partition,
            offset=start,
        )


def _range(reader: PartitionReader, topic: str, partition: int, first: int | None) -> tuple[int, int]:
    """Where to begin, and the end of the partition."""
    count = reader.count(topic)
    if partition >= count:
        raise RecordUnavailableError(
            f"the topic has {count} partition{'s' * (count > 1)}, counted from 0", topic=topic, partition=partition
        )
    low, high = reader.bounds(topic, partition)
    where: dict[str, Any] = {"topic": topic, "partition": partition, "offset": first}
    if low == high:
        raise RecordUnavailableError("the partition has no records", **where)
    if first is not None and first < low:
        raise RecordUnavailableError(f"the first record still present has the offset {low}", **where)
    if first is not None and first >= high:
        raise RecordUnavailableError(
            f"the partition ends before: its last offset is {high - 1}",
            hint="To see records of open transactions, set isolation.level = read_uncommitted",
            **where,
        )
    return low if first is None else first, high


def describe(message: confluent_kafka.Message[Any, Any], formats: Iterable[str] = ("kip1159",)) -> dict[str, Any]:
    """Describe a raw record.

    Args:
        message: The record as it came from the broker.
        formats: Large-message formats to recognize.

    Returns:
        Its place, headers, and for key and value the size in the record and either the reference with the payload's
        size and digest, or the likely kind of the bytes.
    """
    headers = [(name, _text(value)) for name, value in _pairs(message.headers())]
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        "headers": headers,
        "key": _field(message.key(), message, KEY, formats),
        "value": _field(message.value(), message, VALUE, formats),
    }


def table(seen: dict[str, Any]) -> Table:
    """Lay out the result of :func:`describe`."""
    layout = Table(
        title=f"{seen['topic']} / {seen['partition']} / {seen['offset']}", title_justify="left", show_header=False
    )
    layout.add_column()
    layout.add_column(overflow="fold")
    layout.add_row("timestamp", f"{seen['timestamp_ms']} ms")
    for name, value in seen["headers"]:
        # Texts, since a record's content may look like rich's markup.
        layout.add_row(Text(f"header {name}"), Text(str(value)))
    for field in (KEY, VALUE):
        for name, value in seen[field].items():
            layout.add_row(f"{field}: {name}", Text(f"{value:,}" if isinstance(value, int) else str(value)))
    return layout


def _field(
    data: bytes | None, message: confluent_kafka.Message[Any, Any], field: str, formats: Iterable[str]
) -> dict[str, Any]:
    if data is None:
        return {"is": "null" if field == KEY else "a tombstone"}
    ctx = RecordContext(str(message.topic()), field, _pairs(message.headers()))
    try:
        metadata = peek(data)
    except EntryMetadataError as error:
        return {"is": f"malformed entry metadata: {error.message}", "bytes": len(data)}
    if metadata is None:
        return _payload(data, ctx, field, formats)
    # Its size counts with the frame, as the broker's limits do.
    said = {"time of entry, ms": metadata.broker_timestamp, "index": metadata.index}
    known = {label: value for label, value in said.items() if value is not None}
    return {**_payload(bytes(strip(data)), ctx, field, formats), "bytes": len(data), **known}


def _payload(data: bytes, ctx: RecordContext, field: str, formats: Iterable[str]) -> dict[str, Any]:
    for name in formats:
        try:
            placeholder = find_format(name).read(data, ctx, is_key=field == KEY)
        except ValueError as error:
            return {"is": f"a malformed {name} reference: {error}", "bytes": len(data)}
        if isinstance(placeholder, Reference):
            offloaded = {
                "payload bytes": placeholder.size,
                "payload digest": placeholder.digest,
                "compression": placeholder.compression,
            }
            known = {label: value for label, value in offloaded.items() if value is not None}
            return {"is": f"a reference ({name})", "bytes": len(data), "reference": placeholder.url, **known}
    return {"is": _look(data), "bytes": len(data), "begins with": _text(data[:_PREVIEW_BYTES])}


def _look(data: bytes) -> str:
    codec = codec_of(data)
    if codec is not None:
        return f"inline, compressed with {codec.name}"
    with contextlib.suppress(ValueError):
        return f"inline, encrypted with the key {envelope.key_of(envelope.split(data).head)[0]}"
    with contextlib.suppress(ValueError):
        return f"inline, perhaps with schema id {split_confluent(data)[0]}"
    return "inline"


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    return list(headers.items() if isinstance(headers, dict) else headers or ())


def _text(value: bytes | str | None) -> str | None:
    """Text where it is text, hexadecimal digits otherwise."""
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex(" ")
    return text if text.isprintable() else value.hex(" ")
