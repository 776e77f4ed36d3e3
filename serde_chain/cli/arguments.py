"""Options shared by several commands, and the end of their help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

__all__ = ["FILE", "PARTITION", "example", "timeout"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

# Libraries count in whole milliseconds.
_SHORTEST_S: Final = 0.001
_LONGEST_S: Final = 2_000_000
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
PARTITION: Final = click.IntRange(0, 2**31 - 1)


def timeout(seconds: float, what: str = "an answer") -> Callable[[_Command], _Command]:
    """The option ``--timeout``: a number of seconds, above zero.

    Args:
        seconds: The default.
        what: The awaited event, for the help.
    """
    return click.option(
        "--timeout",
        default=seconds,
        show_default=True,
        callback=_seconds,
        metavar="SECONDS",
        help=f"Maximum wait for {what}, in seconds.",
    )


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if not _SHORTEST_S <= value <= _LONGEST_S:  # false for NaN too
        raise click.BadParameter(f"{value:g} is not a number of seconds from {_SHORTEST_S} to {_LONGEST_S:,}")
    return value


def example(*commands: str) -> str:
    """The end of a command's help: examples.

    Args:
        *commands: Without ``serde-chain``; ``tests/cli/test_help.py`` runs them.
    """
    # The first line prevents click from joining them into one paragraph.
    return "\n".join(("\b", "Example:", *(f"  serde-chain {command}" for command in commands)))
