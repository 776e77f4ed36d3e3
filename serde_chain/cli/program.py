"""The end of every command: exit code, Ctrl-C, closed pipes, and tracebacks on request."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from payload_stores.errors import ContextualError
from serde_chain.testing.services.errors import ServiceError

FAILED: Final = 1
INTERRUPTED: Final = 130
"""The exit code of a program ended by SIGINT."""
CLOSED: Final = 141
"""The exit code of a program ended by SIGPIPE: the reader of its output, such as ``head``, is gone."""

_DEBUG: Final = "--debug"
_STACK: Final = re.compile(r"\s*\n(?:\tat |Traceback \(most recent call last\))")


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event set by SIGINT and SIGTERM, for a command that shuts down cleanly; a second signal ends it at once."""
    stop = threading.Event()

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.default_int_handler)
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM, sent by systemd and Kubernetes to end a process, behave like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():  # only there are handlers set, and called
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    # Spark handles SIGINT itself; shells let programs in the background ignore it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


# What users of kcat look for; its -b, -t, -X and -f are here too.
_OF_KCAT: Final = {
    "-C": "serde-chain consume",
    "-P": "serde-chain produce",
    "-L": "serde-chain browse without a topic, or serde-chain doctor",
    "-G": "serde-chain consume, which joins no group",
    "-F": "the argument CONFIG",
    "-e": "how serde-chain consume ends, unless --follow is set",
    "-o": "--from TIMESTAMP, --last N or --offsets A..B of serde-chain consume",
    "-c": "--count N of serde-chain consume",
    "-p": "--partition N of serde-chain consume",
    "-K": "--key-separator TEXT of serde-chain produce, or a format of serde-chain consume: -f '%k:%s\\n'",
    "-H": "--header NAME=VALUE of serde-chain produce",
    "-l": "--lines of serde-chain produce",
    "-J": "--json of serde-chain consume",
    "-k": "--key TEXT of serde-chain produce",
    "-z": "-X compression.type=CODEC of serde-chain produce; a stage such as zstd compresses each value",
    "-s": "-X value.deserializers=STAGES, such as avro",
    "-r": "-X schema.registry.url=URL",
    "-Z": "null in a line of serde-chain produce --records",
    "-Q": "--from TIMESTAMP of serde-chain consume",
    "-m": "--timeout SECONDS",
    "-d": "-X debug=CONTEXTS",
}
_BEFORE_A_COMMAND: Final = dict.fromkeys(
    ("-b", "-t", "-X", "-f"), "an option of each command: serde-chain consume -b BROKERS -t TOPIC"
)


@contextmanager
def _pointing(ours: Mapping[str, str]) -> Iterator[None]:
    """Let the error of an option of kcat's name ours.

    Args:
        ours: Our words by kcat's options.
    """
    try:
        yield
    except click.NoSuchOption as error:
        option = error.option_name
        if option not in ours:
            raise
        pointer = f"No such option '{option}'. kcat's {option} is {ours[option]}."
        raise click.NoSuchOption(option, pointer, ctx=error.ctx) from None


class Program(click.Group):
    """The group of all commands. An error in a command becomes a line on standard error and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept ``--debug`` anywhere, up to a bare ``--``."""
        options = args[: args.index("--")] if "--" in args else args
        rest = [*(arg for arg in options if arg != _DEBUG), *args[len(options) :]]
        with _pointing(_OF_KCAT | _BEFORE_A_COMMAND):
            return super().parse_args(ctx, [_DEBUG, *rest] if len(rest) < len(args) else rest)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see the class."""
        try:
            with _terminated_as_interrupted(), _pointing(_OF_KCAT):
                result = super().invoke(ctx)
            sys.stdout.flush()  # report a closed pipe here, instead of by the interpreter on exit
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(CLOSED) from None
        except (KeyboardInterrupt, click.Abort):
            click.echo("Interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:  # noqa: BLE001  a user gets one line for any error
            from serde_chain.cli.output import complain, printable

            if ctx.params["debug"]:
                click.echo(printable(traceback.format_exc()), err=True, nl=False)
            complain(_reason(error))
            raise click.exceptions.Exit(FAILED) from None
        return result


def _reason(error: Exception) -> str:
    """An error in one line; foreign errors include their type."""
    if isinstance(error, (ContextualError, ServiceError)):
        return str(error)
    # Spark's errors include the stack of the JVM or of a worker.
    return f"{type(error).__name__}: {_STACK.split(str(error), maxsplit=1)[0]}. Add {_DEBUG} for a traceback"
