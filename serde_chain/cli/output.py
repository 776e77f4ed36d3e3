"""The output of commands: a running count, and a result as text or JSON."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
from rich.text import Text

# Unicode's categories Cc and Cs, other line ends, characters that change the text direction (UAX #9, section 2), and
# characters without width; joiners stay where they join letters or emoji.
_CONTROLS: Final = re.compile(
    "\\r(?!\\n)|[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff"
    "\\ud800-\\udfff]|(?<![^\\x00-\\x7f])[\\u200c\\u200d]|[\\u200c\\u200d](?![^\\x00-\\x7f])"
)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# A table is as wide as its content.
_UNWRAPPED: Final = 100_000


class Screen(Console):
    """Standard output for tables. A closed pipe ends the program like any other output.

    Lines are wrapped on a terminal only: a reference in two parts is not found by ``grep``.
    """

    def __init__(self) -> None:
        super().__init__(width=None if is_terminal() or "COLUMNS" in os.environ else _UNWRAPPED)

    def on_broken_pipe(self) -> None:
        """Raise the error that :class:`~serde_chain.cli.program.Program` handles."""
        raise BrokenPipeError


class _Plain(ProgressColumn):
    """The activity, as shown by :func:`plain`: a topic's name may be any text until the broker refuses it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def render(self, task: Task) -> Text:
        return plain(self._text.format(task=task))


class CountProgress:
    """Shows a running count on standard error; entering it returns the function that sets the count.

    Args:
        what: The activity.
        is_shown: Whether to show it on a terminal; it is never shown elsewhere.
    """

    _text = "{task.description}: {task.completed:,} records"

    def __init__(self, what: str, *, is_shown: bool = True) -> None:
        columns = (SpinnerColumn(), _Plain(self._text), TimeElapsedColumn())
        console = Console(stderr=True)
        # It would leave empty lines in a log.
        self._bar = Progress(*columns, console=console, transient=True, disable=not (is_shown and console.is_terminal))
        self._task = self._bar.add_task(what, total=None, bytes=0)

    def __enter__(self) -> Any:
        self._bar.start()
        return lambda count: self._bar.update(self._task, completed=count)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Throughput(CountProgress):
    """Shows the number of records and bytes; entering it returns the function that sets both."""

    _text = "{task.description}: {task.completed:,} records, {task.fields[bytes]:,} bytes"

    def __enter__(self) -> Any:
        """Start; see the class."""
        self._bar.start()
        return lambda count, size: self._bar.update(self._task, completed=count, bytes=size)


class Status(CountProgress):
    """Shows a job's activity; entering it returns the function that sets it: a text and a number."""

    _text = "{task.description}: {task.completed:,}"

    def __enter__(self) -> Any:
        """Start; see the class."""
        self._bar.start()
        return lambda what, count: self._bar.update(self._task, description=what, completed=count)


def say(content: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result: JSON on one line for scripts, text otherwise."""
    click.echo(json.dumps(content) if as_json else printable(text))


def complain(error: object) -> None:
    """Print an error, on standard error."""
    click.echo(f"Error: {printable(str(error))}", err=True)


def printable(text: str) -> str:
    r"""Text that a terminal shows and does not interpret: control characters are escaped, as in JSON.

    Line ends and tabs stay; a carriage return does not, since it would let the following text hide the line.

    Example:
        >>> print(printable("M\x1b[31m 51\rM 87\n"), end="")
        M\u001b[31m 51\u000dM 87
    """
    return text if text.isprintable() else _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(content: object) -> Text:
    """The same for rich's output, whose markup the text may resemble."""
    return Text(printable(str(content)))


def iso_time(ms: int) -> str:
    """A record's time, in ms since the epoch, in the format of ``--from``.

    Example:
        >>> iso_time(1_795_346_801_671)
        '2026-11-22T11:26:41.671Z'
    """
    with contextlib.suppress(OverflowError):
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{ms} ms"


def position(message: Any) -> dict[str, Any]:
    """A record's position and time, for scripts.

    Args:
        message: The record, raw or in its final form.
    """
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
    }


def is_terminal() -> bool:
    """Whether output goes to a terminal, which a running count would disturb."""
    return sys.stdout.isatty()


def make_folder(path: Path) -> None:
    """Create a folder for output, if it does not exist.

    Raises:
        click.UsageError: It cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"the folder {path} cannot be created: {error.strerror}") from error


def number(count: int, what: str) -> str:
    """A number of things, in words.

    Example:
        >>> number(1, "partition"), number(2000, "partition")
        ('1 partition', '2,000 partitions')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def are(count: int) -> str:
    """The verb behind a number of things.

    Example:
        >>> are(1), are(2)
        ('is', 'are')
    """
    return "is" if count == 1 else "are"
