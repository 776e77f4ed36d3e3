"""The record around a stage's data, and functions that read and write headers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from serde_chain.errors import EncodeError

__all__ = [
    "ENTRY_INDEX",
    "ENTRY_TIMESTAMP",
    "KEY",
    "VALUE",
    "Context",
    "Header",
    "Headers",
    "RecordContext",
    "ValueT",
    "get_header",
    "header_pairs",
    "key_of",
    "put_record",
    "remove_headers",
    "require_headers",
    "set_header",
    "set_headers",
    "topic_of",
]

if TYPE_CHECKING:
    # Part of what type checkers know; the standard library has defaults of type variables since Python 3.13 only.
    from typing_extensions import TypeVar

    ValueT = TypeVar("ValueT", default=Any)
else:
    from typing import TypeVar

    ValueT = TypeVar("ValueT")
"""The values of a client's records: ``Consumer[Alert]``; anything for a plain ``Consumer``."""

KEY: Final = "key"
VALUE: Final = "value"

# Headers that readers add to the record, for its frame's values in decimal digits: docs/entry-metadata.md.
ENTRY_TIMESTAMP: Final = "serde-chain-entry-timestamp"
ENTRY_INDEX: Final = "serde-chain-entry-index"

Header: TypeAlias = tuple[str, bytes | str | None]
Headers: TypeAlias = list[Header] | dict[str, Any]


class Context(Protocol):
    """The context passed to every stage: ours, or ``confluent_kafka.serialization.SerializationContext``."""

    topic: Any
    field: Any
    headers: Any


class RecordContext:
    """The record around a key or a value.

    A substitute for confluent_kafka's ``SerializationContext``.

    Attributes:
        topic: Topic of the record.
        field: ``key`` or ``value``.
        headers: The record's headers as ``(name, bytes)`` pairs. Stages add to and remove from this list in place.
        key: The record's encoded key, while its value is processed.
        partition: Partition, when known.
        timestamp: Record timestamp in ms since the epoch, when known.
        offset: Offset, when reading.

    Example:
        >>> ctx = RecordContext("alerts", "value", headers=[], key=b"M 51")
        >>> ctx.topic, ctx.field
        ('alerts', 'value')
    """

    __slots__ = ("topic", "field", "headers", "key", "partition", "timestamp", "offset")  # noqa: RUF023, their order

    def __init__(  # noqa: PLR0917, in the order of a record's parts
        self,
        topic: str,
        field: str,
        headers: Headers | None = None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.topic, self.field, self.headers = topic, field, headers
        self.key, self.partition, self.timestamp, self.offset = key, partition, timestamp, offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordContext):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in RecordContext.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RecordContext({', '.join(f'{name}={getattr(self, name)!r}' for name in RecordContext.__slots__)})"


def topic_of(ctx: Context | None, stage: str) -> str:
    """The record's topic, for a stage that requires it.

    Args:
        ctx: The stage's context.
        stage: The stage's name, for the message.

    Raises:
        EncodeError: There is no context, or it has no topic.
    """
    if ctx is None or not ctx.topic:
        raise EncodeError(
            f"{stage} needs the record's topic", hint="Pass a RecordContext or SerializationContext that has one"
        )
    return str(ctx.topic)


def key_of(ctx: Context | None) -> bytes | None:
    """The record's encoded key; None if the context has none, as those of confluent_kafka."""
    return ctx.key if isinstance(ctx, RecordContext) else None


def get_header(ctx: Context | None, name: str) -> bytes | None:
    """The value of the last header with a name (Kafka's ``lastHeader``), as bytes; None if there is none."""
    headers = ctx.headers if ctx is not None else None
    if not headers:
        return None
    pairs = headers.items() if isinstance(headers, dict) else headers
    last: bytes | str | None = None
    for header, value in pairs:
        if header == name:
            last = value
    return last.encode() if isinstance(last, str) else last


def set_header(ctx: Context | None, name: str, value: bytes) -> None:
    """Set a header in place, replacing all with that name.

    Args:
        ctx: The context.
        name: Header name.
        value: Header value.

    Raises:
        EncodeError: The context has no list of headers. A list assigned to a foreign context would be lost, since
            confluent_kafka sends the list that its caller passed to ``produce``.
    """
    set_headers(ctx, {name: value})


def set_headers(ctx: Context | None, values: Mapping[str, bytes]) -> None:
    """Set headers in place, replacing all with their names, in one pass for any number of them.

    Args:
        ctx: The context.
        values: The headers' values by name.

    Raises:
        EncodeError: As in :func:`set_header`.
    """
    headers = require_headers(ctx)
    if isinstance(headers, dict):
        headers.update(values)
    else:
        headers[:] = [header for header in headers if header[0] not in values]
        headers.extend(values.items())


def require_headers(ctx: Context | None) -> Headers:
    """The record's headers, for a stage that will write some.

    Raises:
        EncodeError: The context has no list of headers; see :func:`set_header`.
    """
    if ctx is not None and ctx.headers is None and isinstance(ctx, RecordContext):
        ctx.headers = []
    headers = ctx.headers if ctx is not None else None
    if isinstance(headers, (list, dict)):
        return headers
    raise EncodeError(
        "headers cannot be written: the record was passed without a list of headers",
        hint="Pass headers=[] (a new list for each record) to produce(), or use serde_chain.Producer",
    )


def remove_headers(ctx: Context | None, names: Collection[str]) -> None:
    """Remove all headers with one of these names, in place."""
    headers = ctx.headers if ctx is not None else None
    if isinstance(headers, dict):
        for name in names:
            headers.pop(name, None)
    elif isinstance(headers, list):
        headers[:] = [header for header in headers if header[0] not in names]


def header_pairs(ctx: Context | None) -> tuple[tuple[str, bytes | None], ...]:
    """All headers of a record in order, with values as bytes."""
    headers = (ctx.headers if ctx is not None else None) or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def put_record(
    ctx: Context | None, headers: Iterable[tuple[str, bytes | None]], key: bytes | None, timestamp: int | None
) -> None:
    """Replace a placeholder's headers, key and timestamp by those of the stored record.

    Topic and position stay, and so do time and index of entry, which belong to the position.

    Args:
        ctx: The context, changed in place.
        headers: Headers.
        key: The encoded key; None keeps the placeholder's, which is equal.
        timestamp: Timestamp in ms since the epoch; None keeps the placeholder's.
    """
    if ctx is None:
        return
    of_entry = (ENTRY_TIMESTAMP, ENTRY_INDEX)
    kept = [header for header in header_pairs(ctx) if header[0] in of_entry]
    stored = [header for header in headers if header[0] not in of_entry]
    if isinstance(ctx.headers, dict):
        ctx.headers.clear()
        ctx.headers.update([*stored, *kept])
    elif isinstance(ctx.headers, list):
        ctx.headers[:] = [*stored, *kept]
    if isinstance(ctx, RecordContext):  # those of confluent_kafka have neither
        ctx.key = ctx.key if key is None else key
        ctx.timestamp = ctx.timestamp if timestamp is None else timestamp
