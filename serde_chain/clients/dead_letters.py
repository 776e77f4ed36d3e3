"""Dead letters: original records, with headers that name their origin and error.

============================================  =====================================================
``serde-chain-error-kind``                    the error's class
``serde-chain-error-message``                 its text, shortened
``serde-chain-error-stage``                   the stage that failed, if known
``serde-chain-error-topic``                   the topic of the record
``serde-chain-error-partition``, ``-offset``  its partition and offset, as decimal digits
``serde-chain-error-timestamp``               its timestamp in ms since the epoch, likewise, if it had one
``serde-chain-error-dropped``                 parts of the record that are missing because of its size
============================================  =====================================================

All values are UTF-8. They follow the record's own headers.

They can make a record of the largest size too large. Then the letter loses the message, then all headers but the
record's position, and finally parts of the record, so that no record stops a consumer. The whole record is still at its
position.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from serde_chain.errors import DeadLetterError, SerializationError

Header = tuple[str, bytes | str | None]

_PREFIX: Final = "serde-chain-error-"
_NAMES: Final = ("kind", "message", "stage", "topic", "partition", "offset", "timestamp", "dropped")
_POSITION: Final = frozenset(map(_PREFIX.__add__, ("topic", "partition", "offset", "timestamp")))
_LONGEST_MESSAGE: Final = 1_000
_MOST_DIGITS: Final = 18
# Bytes by which a dead letter may exceed its record: the longest message, the longest topic name, and header names.
ROOM_BYTES: Final = 4_096

_log = logging.getLogger("serde_chain")


class Origin(NamedTuple):
    """The position of a record.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        offset: Its offset.
        timestamp: Its timestamp in ms since the epoch; None if it has none.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None


class Letter(NamedTuple):
    """A dead letter.

    Attributes:
        key: The record's key.
        value: The record's value.
        headers: The record's own headers, and those of the error.
        dropped: Missing parts of the record.
    """

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    dropped: str = ""


class DeadLetter(NamedTuple):
    """The parsed headers of a dead letter.

    Attributes:
        origin: The record's original position.
        headers: The record's own headers.
        dropped: Parts of the record that are missing because of its size: of ``value``, ``headers`` and ``key``.
    """

    origin: Origin
    headers: list[Header]
    dropped: tuple[str, ...] = ()


def header_name(fact: str) -> str:
    """The header of a fact about a dead letter: ``kind``, ``message``, ``stage``, ``topic``, ``partition`` and so on.

    Example:
        >>> header_name("offset")
        'serde-chain-error-offset'
    """
    return _PREFIX + fact


def error_headers(error: SerializationError, origin: Origin) -> list[Header]:
    """The headers that make a dead letter of a record.

    Args:
        error: The record's error.
        origin: The record's position.

    Example:
        >>> from serde_chain import DecodeError
        >>> headers = error_headers(DecodeError("truncated"), Origin("images", 0, 7, None))
        >>> dict(headers)["serde-chain-error-kind"], dict(headers)["serde-chain-error-offset"]
        (b'DecodeError', b'7')
    """
    said: dict[str, object] = {
        "kind": type(error).__name__,
        "message": str(error)[:_LONGEST_MESSAGE],
        "stage": error.stage,
        **origin._asdict(),
    }
    return [
        (header_name(name), str(said[name]).encode("utf-8", "replace")) for name in _NAMES if said.get(name) is not None
    ]


def letters(record: Letter, error: SerializationError, origin: Origin) -> Iterator[Letter]:
    """The dead letters of a record, to be tried in order while the topic refuses them for their size.

    Args:
        record: Original key, value and headers.
        error: The record's error.
        origin: The record's position.

    Example:
        >>> from serde_chain import DecodeError
        >>> full, *smaller = letters(Letter(None, b"x", []), DecodeError("truncated"), Origin("images", 0, 7, None))
        >>> full.value, smaller[-1].value, dict(smaller[-1].headers)["serde-chain-error-dropped"]
        (b'x', None, b'value, headers, key')
    """
    about = error_headers(error, origin)
    yield record._replace(headers=[*record.headers, *about])
    yield record._replace(headers=[*record.headers, *(each for each in about if each[0] != header_name("message"))])
    yield record._replace(headers=[*record.headers, *(each for each in about if each[0] in _POSITION)])
    for dropped in (("value",), ("value", "headers"), ("value", "headers", "key")):
        kept = [] if "headers" in dropped else record.headers
        key = None if "key" in dropped else record.key
        names = ", ".join(dropped)
        yield Letter(key, None, [*kept, *about, (header_name("dropped"), names.encode())], names)


def taken(letter: Letter, origin: Origin) -> None:
    """Log a letter that its topic accepted without a part of the record."""
    if letter.dropped:
        _log.warning(
            "the dead letter of %s, partition %d, offset %d, lacks its %s: with that, it is too large for its topic",
            *origin[:3],
            letter.dropped,
        )


def not_taken(error: SerializationError, topic: str, said: str, *, transient: bool) -> DeadLetterError:
    """The error of a dead letter that its topic refuses.

    Args:
        error: The record's error.
        topic: The dead-letter topic.
        said: The reason of the refusal.
        transient: Whether the topic may accept it later.

    Example:
        >>> from serde_chain import DecodeError
        >>> not_taken(DecodeError("truncated"), "images-dead", "unknown topic", transient=False).dead_letter_topic
        'images-dead'
    """
    return DeadLetterError(
        f"the record cannot be read ({type(error).__name__}: {error.message}), and the dead-letter topic does not "
        f"take it: {said}",
        hint="Create the topic with a max.message.bytes that is no smaller, and the permission to write, or set "
        "serde.error.policy to skip; until then, the consumer stays at the record",
        dead_letter_topic=topic,
        stage=error.stage,
        field=error.field,
        topic=error.topic,
        partition=error.partition,
        offset=error.offset,
    ).marked(transient=transient)


def read_dead_letter(headers: Sequence[Header] | None) -> DeadLetter:
    """Parse the headers of a dead letter.

    The last header of each name counts: a replayed record may have been a dead letter before.

    Args:
        headers: The headers.

    Raises:
        ValueError: They do not name the record's position.

    Example:
        >>> from serde_chain import DecodeError
        >>> more = error_headers(DecodeError("truncated"), Origin("images", 0, 7, None))
        >>> letter = read_dead_letter([("traceparent", b"00-1"), *more])
        >>> letter.origin.topic, letter.origin.offset, letter.headers
        ('images', 7, [('traceparent', b'00-1')])
    """
    own = list(headers or ())
    said: dict[str, str] = {}
    for name in _NAMES:
        at = next((at for at in reversed(range(len(own))) if own[at][0] == header_name(name)), None)
        if at is not None:
            value = own.pop(at)[1]
            said[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
    topic = said.get("topic")
    if not topic:
        raise ValueError(f"there is no header {header_name('topic')}")
    timestamp = _number(said, "timestamp") if "timestamp" in said else None
    dropped = tuple(said["dropped"].split(", ")) if "dropped" in said else ()
    return DeadLetter(Origin(topic, _number(said, "partition"), _number(said, "offset"), timestamp), own, dropped)


def _number(said: dict[str, str], name: str) -> int:
    value = said.get(name)
    if value is None:
        raise ValueError(f"there is no header {header_name(name)}")
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        raise ValueError(f"the header {header_name(name)} is {value[:50]!r} instead of a number")
    return int(value)
