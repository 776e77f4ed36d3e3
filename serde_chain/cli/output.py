"""What commands print: a running count, and a result as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Counting", "Telling", "say"]


class Counting:
    """Shows a running count on standard error; entering it returns the function that sets the count.

    Args:
        what: What is going on.
    """

    _text = "{task.description}: {task.completed:,} records"

    def __init__(self, what: str) -> None:
        columns = (SpinnerColumn(), TextColumn(self._text), TimeElapsedColumn())
        console = Console(stderr=True)
        # In a log it would leave empty lines.
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Any:
        self._bar.start()
        return lambda count: self._bar.update(self._task, completed=count)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Telling(Counting):
    """Shows what a job is at; entering it returns the function that sets it: a text and a number."""

    _text = "{task.description}: {task.completed:,}"

    def __init__(self) -> None:
        super().__init__("starting Spark")

    def __enter__(self) -> Any:
        """Start; see the class."""
        self._bar.start()
        return lambda what, count: self._bar.update(self._task, description=what, completed=count)


def say(content: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result: JSON on one line for scripts, text otherwise."""
    Console().print(json.dumps(content) if as_json else text, soft_wrap=True, highlight=False, markup=False)
