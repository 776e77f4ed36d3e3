"""The options by which commands are told which records of a topic they are about."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from serde_chain.cli.arguments import PARTITION

__all__ = ["Selection", "selecting", "selection"]

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_RANGE: Final = re.compile(r"(\d{1,19})?(?:(\.\.|-)(\d{1,19})?)?")


@dataclass(frozen=True)
class Selection:
    """Which records of a topic.

    Attributes:
        partition: Of this partition only.
        first: From this offset on.
        last: Up to this offset.
        since_ms: From this time on, in ms since the epoch.
        newest: The newest of each partition; how many.
        key: With this encoded key only.
        count: At most so many.

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
        """Whether a record is one of them, by its key and its offset; where they begin is known by partition only.

        Args:
            message: The record, as it came.
        """
        return (self.key is None or message.key() == self.key) and (self.last is None or message.offset() <= self.last)


def _offsets(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[int | None, int | None] | None:
    """Read ``A..B``, ``A-B``, ``A..``, ``..B`` or ``A``; both ends belong to it."""
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
    """Read a time: ISO 8601, in UTC where it says no zone; or ms since the epoch."""
    if value is None or re.fullmatch(r"\d{1,15}", value):
        return None if value is None else int(value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither ISO 8601, such as 2026-11-22T10:00Z, nor a number of ms"
        ) from None
    since = ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    return max(since, 0)  # to a broker, negative ones mean something else


_OPTIONS: Final = (
    click.option("--partition", type=PARTITION, help="Records of this partition only.  [default: all]"),
    click.option(
        "--offsets", callback=_offsets, metavar="A..B", help="Records with these offsets: 10..19, 10.., ..19, or 10."
    ),
    click.option(
        "--from", "since", callback=_time, metavar="TIMESTAMP", help="Records from this time on: ISO 8601 (UTC), or ms."
    ),
    click.option("--last", "newest", type=click.IntRange(1), metavar="N", help="The newest N of each partition."),
    click.option("--key", help="Records with this key only: its text, as it stands in the record."),
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
    """Put the options of :func:`selecting` together.

    Raises:
        click.UsageError: They say in two ways where to begin.
    """
    first, last = offsets or (None, None)
    if sum(begin is not None for begin in (first, since, newest)) > 1:
        raise click.UsageError("--offsets, --from and --last say in different ways where to begin: choose one")
    return Selection(partition, first, last, since, newest, None if key is None else key.encode(), count)
