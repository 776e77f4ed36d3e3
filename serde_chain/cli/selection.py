"""The command options that select records of a topic."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from serde_chain.cli.arguments import PARTITION

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_DIGITS_OF_SECONDS: Final = 10
_DAY: Final = re.compile(r"(?P<day>today|yesterday)?\s*(?P<time>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?", re.IGNORECASE)
_RANGE: Final = re.compile(r"(\d{1,19})?(?:(\.\.|-)(\d{1,19})?)?")


@dataclass(frozen=True)
class Selection:
    """A selection of a topic's records.

    Attributes:
        partition: Only this partition.
        first: First offset.
        last: Last offset.
        since_ms: Earliest time, in ms since the epoch.
        newest: Number of newest records of each partition.
        key: Only this encoded key.
        count: Maximum number.

    Example:
        >>> Selection(partition=0, first=10, last=19)
        Selection(partition=0, first=10, last=19, since_ms=None, newest=None, key=None, count=None)
    """

    partition: int | None = None
    first: int | None = None
    last: int | None = None
    since_ms: int | None = None
    newest: int | None = None
    key: bytes | None = None
    count: int | None = None

    def takes(self, message: Any) -> bool:
        """Whether a record is selected by its key and offset; the start is known only per partition.

        Args:
            message: The raw record.
        """
        return (self.key is None or message.key() == self.key) and (self.last is None or message.offset() <= self.last)


def _offsets(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int | None, int | None] | None:
    """Parse ``A..B``, ``A-B``, ``A..``, ``..B`` or ``A``; both ends are included."""
    if value is None:
        return None
    match = _RANGE.fullmatch(value)
    if match is None or not (match[1] or match[3]):
        raise click.BadParameter(f"{value!r} is not a range of offsets, such as 10..19, 10.. or 10")
    first = None if match[1] is None else int(match[1])
    last = first if match[2] is None else None if match[3] is None else int(match[3])
    if first is not None and last is not None and last < first:
        raise click.BadParameter(f"{value!r} ends before it begins")
    return first, last


def _time(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Parse a time: a click callback for :func:`parse_time`."""
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_time(text: str, now: datetime | None = None) -> int:
    """Read a time, by default in UTC, as ms since the epoch.

    ISO 8601; ms since the epoch, or seconds if they have ten digits. For a form also ``11:35``, the last one before
    now, and ``today`` or ``yesterday``, with or without a time: scripts are better off with whole times. Ten digits are
    seconds from 2001 to 2286, and ms of 1970, of which no records are. Redpanda's ``rpk`` tells them apart by their
    digits too.

    Args:
        text: The time.
        now: The current time; None for whole times only.

    Raises:
        ValueError: It is none of these.

    Example:
        >>> noon = datetime(2026, 11, 22, 12, tzinfo=UTC)
        >>> parse_time("11:35", noon), parse_time("12:01", noon), parse_time("yesterday", noon)
        (1795347300000, 1795262460000, 1795219200000)
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,15}", text):
        return int(text) * (1000 if len(text) == _DIGITS_OF_SECONDS else 1)
    match = _DAY.fullmatch(text)
    try:
        if now is not None and match is not None and (match["day"] or match["time"]):
            hours, _, rest = (match["time"] or "0:00").partition(":")
            found = datetime.fromisoformat(f"{now.date()}T{hours:0>2}:{rest}+00:00")
            is_before = match["day"].lower() == "yesterday" if match["day"] else found > now
            found -= timedelta(days=is_before)
        else:
            found = datetime.fromisoformat(text)
    except ValueError:
        known = "ISO 8601, such as 2026-11-22T10:00Z" if now is None else "a time, such as 11:35 or 2026-11-22T10:00Z"
        raise ValueError(f"{text!r} is neither {known}, nor a number of ms or seconds") from None
    since = ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    return max(since, 0)  # negative times have another meaning to a broker


_OPTIONS: Final = (
    click.option("--partition", type=PARTITION, help="Records of this partition only.  [default: all]"),
    click.option(
        "--offsets", callback=_offsets, metavar="A..B", help="Records with these offsets: 10..19, 10.., ..19, or 10."
    ),
    click.option(
        "--from",
        "since",
        callback=_time,
        metavar="TIMESTAMP",
        help="Records from this time on: ISO 8601 (UTC), ms, or seconds.",
    ),
    click.option("--last", "newest", type=click.IntRange(1), metavar="N", help="The newest N of each partition."),
    click.option("--key", help="Records with this key only: its text, as stored in the record."),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that show records; :func:`selection` reads them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def selection(  # noqa: PLR0917, in the order of the options
    partition: int | None,
    offsets: tuple[int | None, int | None] | None,
    since: int | None,
    newest: int | None,
    key: str | None,
    count: int | None,
) -> Selection:
    """Combine the options of :func:`selecting`.

    Raises:
        click.UsageError: They set the start twice.
    """
    first, last = offsets or (None, None)
    if sum(begin is not None for begin in (first, since, newest)) > 1:
        raise click.UsageError("--offsets, --from and --last all set the start: choose one")
    return Selection(partition, first, last, since, newest, None if key is None else key.encode(), count)
