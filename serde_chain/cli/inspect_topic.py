"""``serde-chain inspect``: records as stored in a topic, without a download."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from rich.table import Table

from serde_chain.catalogue import find_format, settings_of
from serde_chain.cli import arguments
from serde_chain.cli.arguments import example
from serde_chain.cli.files import save
from serde_chain.cli.outline import as_line, field_json
from serde_chain.cli.output import Screen, iso_time, plain, position
from serde_chain.cli.selection import Selection, selecting, selection
from serde_chain.codecs import codec_of
from serde_chain.record import KEY, VALUE, RecordContext, get_header
from serde_chain.schemas.schema_id import split_confluent, split_glue
from serde_chain.self_describing import header_name
from serde_chain.stages.encryption import envelope
from serde_chain.stages.large_message.options import ACCEPT
from serde_chain.wire import large_fields
from serde_chain.wire.entry_metadata import EntryMetadataError, peek, strip
from serde_chain.wire.reference_format import Reference

if TYPE_CHECKING:
    from serde_chain.cli.decoding import DecodedRecord
    from serde_chain.config import Config

_PREVIEW_BYTES: Final = 60
_INLINE: Final = "inline"
_OF_RECORD: Final = ("decoded", "saved", "saved bytes", "images")


@click.command(epilog=example("inspect client.toml images --last 1 --payload ."))
@arguments.configured()
@click.option("--offset", type=click.IntRange(0), help="First record to show.  [default: the first existing one]")
@selecting
@click.option("--count", type=click.IntRange(1), help="Number of records.  [default: 1; those of --offsets or --last]")
@click.option("--decode", is_flag=True, help="Show the decoded value, which downloads its payload.")
@click.option(
    "--payload",
    "target",
    type=click.Path(path_type=Path),
    help="Save the decoded value: as this file, or in this folder.",
)
@arguments.timeout(10.0)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts: one object per record.")
def inspect(  # noqa: PLR0917, click passes them by name
    config: dict[str, object],
    topic: str,
    offset: int | None,
    partition: int | None,
    offsets: tuple[int | None, int | None] | None,
    since: int | None,
    newest: int | None,
    key: str | None,
    count: int | None,
    decode: bool,
    target: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Show records as stored in TOPIC.

    CONFIG is a client's configuration (.toml or .properties). Nothing is downloaded without --decode or --payload.
    """
    if offset is not None and offsets is not None:
        raise click.UsageError("--offset and --offsets exclude each other")
    asked = offsets or (None if offset is None else (offset, None))
    if count is None and offsets is None and newest is None:
        count = 1
    wanted = selection(partition, asked, since, newest, key, count)
    if target is not None and not target.is_dir() and count != 1:
        raise click.UsageError("--payload requires a folder for several records")
    if target is not None and not target.parent.is_dir():
        raise click.UsageError(f"--payload: the folder {target.parent} does not exist")
    shown = ShownParts(decode=decode or target is not None, target=target, as_json=as_json)
    print_records(config, topic, wanted, shown, timeout=timeout)


class ShownParts(NamedTuple):
    """The parts of a record to show in addition to its position and bytes."""

    decode: bool = False
    target: Path | None = None
    as_json: bool = False


def print_records(config: Config, topic: str, wanted: Selection, shown: ShownParts, *, timeout: float) -> None:
    """Fetch raw records and print a description.

    Offsets without a record (transaction markers, compacted records) are skipped.

    Args:
        config: Flat configuration.
        topic: Topic.
        wanted: The selection; fewer records are shown if the topic ends before.
        shown: The parts to show.
        timeout: Maximum wait for the broker and for each record, in seconds.

    Raises:
        ConfigError: The Kafka client refuses its configuration.
        RecordUnavailableError: The record does not exist, or the broker does not answer.
        SerializationError: A value to decode is undecodable.
    """
    from serde_chain.cli.decoding import Decoding
    from serde_chain.cli.records import RecordUnavailableError, batches, open_reader, places

    formats = formats_of(config)
    with ExitStack() as stack:
        reader = stack.enter_context(open_reader(config, timeout))
        decoding = None
        if shown.decode:
            decoding = stack.enter_context(closing(Decoding(config, lazy=shown.target is not None)))
        where = places(reader, topic, wanted)
        found = False
        for batch in batches(reader, topic, where, wanted):
            seen = [describe(message, formats) for message in batch]
            read = [None] * len(batch) if decoding is None else decoding.read(batch)
            for description, result in zip(seen, read, strict=True):
                found = True
                _print({**description, **({} if result is None else _decoded(result, shown))}, as_json=shown.as_json)
    if not found:
        raise RecordUnavailableError(
            _nothing(where, wanted), topic=topic, partition=wanted.partition, offset=wanted.first
        )


def _nothing(where: Mapping[int, tuple[int, int]], wanted: Selection) -> str:
    """The reason why no record is shown."""
    if wanted.key is not None:
        return "no record there has this key"
    if all(start >= end for start, end in where.values()):
        of = "partition" if len(where) == 1 else "topic"
        return f"the {of} has no records" + (" from this time on" if wanted.since_ms is not None else "")
    return (
        f"no record has this offset or a later one, up to {max(end for _, end in where.values())}: transaction markers "
        "and compaction leave such gaps"
    )


def _decoded(read: DecodedRecord, shown: ShownParts) -> dict[str, Any]:
    from serde_chain.cli.records import RecordUnavailableError

    if read.error is not None:
        raise read.error
    message = read.message
    try:
        if shown.target is None or message.value() is None:
            return {"decoded": field_json(message.value()) if shown.as_json else as_line(message.value())}
        saved = save(message, shown.target)
    except RecursionError:
        raise RecordUnavailableError(
            "the value is nested too deeply to be shown",
            topic=message.topic(),
            partition=message.partition(),
            offset=message.offset(),
        ) from None
    images = {"images": [str(image) for image in saved.images]} if saved.images else {}
    return {"saved": str(saved.path), "saved bytes": saved.size, **images}


def _print(seen: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(seen))
    else:
        Screen().print(table(seen))


def formats_of(config: Config) -> Iterable[str]:
    """The reference formats for :func:`describe`: includes hop, whose mark is unambiguous, as nothing is fetched.

    Args:
        config: Flat configuration.
    """
    named = (name for is_key in (False, True) for name in ACCEPT.read(settings_of(config, is_key=is_key)))
    return dict.fromkeys((*named, "hop"))


def describe(message: Any, formats: Iterable[str] = ("kip1159",)) -> dict[str, Any]:
    """Describe a raw record.

    Args:
        message: The raw record.
        formats: Large-message formats to recognize.

    Returns:
        Its position and headers, and for key and value the size in the record and either the reference with the
        payload's size and digest, or the likely kind of the bytes. ``fields`` of the value are those that its header
        names: path, size and digest of each, or the text of the header's mistake.
    """
    headers = [(name, _text(value)) for name, value in _pairs(message.headers())]
    return {
        **position(message),
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
    layout.add_row("timestamp", iso_time(seen["timestamp_ms"]))
    for name, value in seen["headers"]:
        layout.add_row(plain(f"header {name}"), plain(value))
    for field in (KEY, VALUE):
        for name, value in facts(seen[field]):
            layout.add_row(f"{field}: {name}", plain(f"{value:,}" if isinstance(value, int) else value))
    for name in _OF_RECORD:
        if name in seen:
            layout.add_row(name, plain(seen[name]))
    return layout


def facts(seen: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The facts of a key or a value, each on a line of its own.

    Args:
        seen: The description of a key or a value.

    Example:
        >>> field = {"path": "stamp", "payload bytes": 9000, "payload digest": "sha256:00"}
        >>> list(facts({"bytes": 90, "fields": [field]}))
        [('bytes', 90), ('field stamp', '9,000 bytes in the store, sha256:00')]
    """
    for name, fact in seen.items():
        if isinstance(fact, list):
            for field in fact:
                size, digest = field["payload bytes"], field["payload digest"]
                yield f"field {field['path']}", f"{size:,} bytes in the store, {digest}"
        else:
            yield name, fact


def _field(data: bytes | None, message: Any, field: str, formats: Iterable[str]) -> dict[str, Any]:
    seen = _stored(data, message, field, formats)
    count = len(seen["fields"]) if isinstance(seen.get("fields"), list) else 0
    if count and seen["is"].startswith(_INLINE):
        seen["is"] += f"; {count} of its fields {'is' if count == 1 else 'are'} in the store"
    return seen


def _stored(data: bytes | None, message: Any, field: str, formats: Iterable[str]) -> dict[str, Any]:
    if data is None:
        return {"is": "null" if field == KEY else "a tombstone"}
    ctx = RecordContext(str(message.topic()), field, _pairs(message.headers()), key=message.key())
    listed = get_header(ctx, header_name(is_key=field == KEY))
    more: dict[str, Any] = {} if listed is None else {"stages": _text(listed)}
    if field == VALUE and (header := get_header(ctx, large_fields.HEADER)) is not None:
        more |= {"fields": _moved(header)}
    try:
        metadata = peek(data)
    except EntryMetadataError as error:
        return {"is": f"malformed entry metadata: {error.message}", "bytes": len(data)}
    if metadata is None:
        return {**_payload(data, ctx, field, formats), **more}
    # Its size includes the frame, as in the broker's limits.
    said = {"time of entry, ms": metadata.broker_timestamp, "index": metadata.index}
    known = {label: value for label, value in said.items() if value is not None}
    return {**_payload(bytes(strip(data)), ctx, field, formats), "bytes": len(data), **known, **more}


def _moved(header: bytes) -> list[dict[str, Any]] | str:
    """The fields whose payloads are in the store."""
    try:
        entries = large_fields.decode(header)
    except ValueError as error:
        return f"the header {large_fields.HEADER} is malformed: {error}"
    return [
        {"path": large_fields.join(path), "payload bytes": size, "payload digest": digest}
        for path, size, digest in entries
    ]


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
    if data.startswith(b"Obj\x01"):
        return f"{_INLINE}, an Avro container file{_schema_of(data)}"
    codec = codec_of(data)
    if codec is not None:
        return f"{_INLINE}, compressed with {codec.name}"
    with contextlib.suppress(ValueError):
        return f"{_INLINE}, encrypted with the key {envelope.key_of(envelope.split(data).head)[0]}"
    with contextlib.suppress(ValueError):
        return f"{_INLINE}, perhaps with schema id {split_confluent(data)[0]}"
    with contextlib.suppress(ValueError):
        return f"{_INLINE}, perhaps with Glue's schema version {split_glue(data)}"
    return _INLINE


def _schema_of(data: bytes) -> str:
    """The name of the schema in a container file, if it can be read."""
    from serde_chain.stages.avro.container import schema_name

    try:
        return f" of {schema_name(data)}"
    except (ValueError, RecursionError):
        return ""


def _pairs(headers: Any) -> list[tuple[str, Any]]:
    return list(headers.items() if isinstance(headers, dict) else headers or ())


def _text(value: bytes | str | None) -> str | None:
    """Text if it is text, otherwise hexadecimal digits."""
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex(" ")
    return text if text.isprintable() else value.hex(" ")
