"""Options shared by several commands, and the end of their help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

# Libraries count in whole milliseconds.
_SHORTEST_S: Final = 0.001
_LONGEST_S: Final = 2_000_000
# Of commands whose default is the reader's.
_DEFAULT: Final = "60, and 8 for the first answer"
# The second is librdkafka's older name, the third its simulated cluster.
_BROKERS: Final = ("bootstrap.servers", "metadata.broker.list", "test.mock.num.brokers")
FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
PARTITION: Final = click.IntRange(0, 2**31 - 1)


def configured(
    *words: str, needs_topic: bool = True, several: bool = False, by_line: bool = False
) -> Callable[[_Command], _Command]:
    """The arguments of commands that read a configuration: ``CONFIG TOPIC``, or like kcat, ``-b BROKERS -t TOPIC``.

    The command gets ``config``, a flat configuration, ``topic``, or ``topics`` if there may be several, and ``words``,
    if others follow.

    Args:
        *words: The name of the words that follow, in the help.
        needs_topic: Whether a topic must be given.
        several: Whether several topics may be given.
        by_line: Whether ``config`` is the path of the file, unless settings override it: to tell mistakes by line.
    """
    names = ("CONFIG", ("TOPIC..." if several else "TOPIC") if needs_topic else "[TOPIC]", *words)

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def run(given: tuple[str, ...], settings: dict[str, str], **more: Any) -> Any:
            from serde_chain.config import load

            brokers, named, file = (more.pop(name) for name in ("brokers", "named", "named_file"))
            rest = list(given)
            if brokers is None and file is None:
                if not rest:
                    raise click.UsageError("Missing argument 'CONFIG', or -b.")
                file = path_of(rest.pop(0), FILE, "CONFIG")
            if not several and not named and rest:
                named = rest.pop(0)
            elif several and not named:
                named, rest = tuple(rest), []
            if needs_topic and not named:
                raise click.UsageError("Missing argument 'TOPIC', or -t.")
            _refuse_config_as_topic(brokers, given, named)
            if rest and not words:
                raise click.UsageError(f"Got unexpected extra argument{'s' * (len(rest) > 1)} ({' '.join(rest)})")
            own = {**({} if brokers is None else {"bootstrap.servers": brokers}), **settings}
            is_file = by_line and file is not None and not own
            config = file if is_file else load({**({} if file is None else load(file)), **own})
            _require_brokers(config)
            topic = {"topics" if several else "topic": named}
            return command(config=config, **topic, **({"words": tuple(rest)} if words else {}), **more)

        options: tuple[Callable[[Any], Any], ...] = (
            click.argument("given", nargs=-1, metavar=" ".join(names)),
            click.option("-b", "--brokers", metavar="HOST:PORT,...", help="Brokers; then there is no CONFIG."),
            click.option("-t", "--topic", "named", multiple=several, help="The topic, instead of TOPIC."),
            click.option(
                "-X",
                "--set",
                "settings",
                multiple=True,
                callback=settings,
                metavar="KEY=VALUE",
                help="A setting, instead of CONFIG's; may be given several times.",
            ),
            # The first version's spelling still works in scripts.
            click.option("--config", "named_file", type=FILE, hidden=True),
        )
        decorated: Any = run
        for option in reversed(options):
            decorated = option(decorated)
        return cast("_Command", decorated)

    return decorate


def _refuse_config_as_topic(brokers: str | None, given: tuple[str, ...], named: str | tuple[str, ...] | None) -> None:
    """Refuse ``-b BROKERS CONFIG TOPIC``, which would take the file's name for the topic."""
    is_topic = bool(given) and given[0] in ((named,) if isinstance(named, str) else named or ())
    if brokers is not None and is_topic and given[0].endswith((".toml", ".properties")) and Path(given[0]).is_file():
        raise click.UsageError(
            f"-b excludes CONFIG, and {given[0]} is a file: use -X bootstrap.servers={brokers} instead of -b, "
            "or -t for a topic of that name"
        )


def _require_brokers(config: Path | Mapping[str, Any]) -> None:
    """Refuse a configuration without brokers, for which the client would wait; a file is left to its command."""
    if not isinstance(config, Path) and not any(config.get(key) for key in _BROKERS):
        raise click.UsageError("no brokers: set bootstrap.servers in CONFIG, or by -X bootstrap.servers=HOST:PORT")


def path_of(word: str, kind: click.Path, name: str) -> Path:
    """A word of a command as a path.

    Args:
        word: The word.
        kind: What it must be.
        name: Its name in the help.

    Raises:
        click.BadParameter: It is something else.
    """
    try:
        path: Any = kind.convert(word, None, None)
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint=f"'{name}'") from None
    return cast("Path", path)


def settings(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse settings: ``key=value``. The callback of an option."""
    parsed = {}
    for value in values:
        key, equals, content = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter("one is not KEY=VALUE")  # not shown: it may be a password
        parsed[key.strip()] = content
    return parsed


def timeout(seconds: float | None, what: str = "an answer") -> Callable[[_Command], _Command]:
    """The option ``--timeout``: a number of seconds, above zero.

    Args:
        seconds: The default. None: 60, and 8 for the first answer.
        what: The awaited event, for the help.
    """
    return click.option(
        "--timeout",
        default=seconds,
        type=float,
        show_default=_DEFAULT if seconds is None else True,
        callback=_seconds,
        metavar="SECONDS",
        help=f"Maximum wait for {what}, in seconds.",
    )


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not _SHORTEST_S <= value <= _LONGEST_S:  # false for NaN too
        raise click.BadParameter(f"{value:g} is not a number of seconds from {_SHORTEST_S} to {_LONGEST_S:,}")
    return value


def example(*commands: str) -> str:
    """The end of a command's help: examples.

    Args:
        *commands: Without ``serde-chain``; ``tests/cli/test_help.py`` runs them.
    """
    # The first line prevents click from joining them into one paragraph.
    return "\n".join(("\b", "Example:", *(f"  serde-chain {command}" for command in commands)))
