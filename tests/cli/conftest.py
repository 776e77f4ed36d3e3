"""The command line, as a user calls it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from click.testing import CliRunner

from serde_chain.cli.commands import commands
from serde_chain.testing.services.ports import free_ports, port_answers

# pyspark leaves the sockets of results to the garbage collector.
COMMAND = [
    *(sys.executable, "-W", "error", "-W", "ignore:unclosed <socket:ResourceWarning"),
    *("-c", "from serde_chain.cli import main; main()"),
]


def environment(columns: int | None = 200) -> dict[str, str]:
    """The environment of a command."""
    wide = {} if columns is None else {"COLUMNS": str(columns)}
    return {**os.environ, **wide, "NO_COLOR": "1"}


def run(
    *arguments: object, code: int = 0, columns: int | None = 200, stdin: str | None = None, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run ``serde-chain`` in this process, which saves half a second of imports; it ends with this exit code.

    What loggers and librdkafka say is not in the output: see `run_process`.
    """
    words = [*map(str, arguments)]
    with chdir(folder or Path.cwd()):
        done = CliRunner().invoke(commands, words, stdin, environment(columns), prog_name="serde-chain")
    # Another exception would be a traceback for a user.
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code == code, done.output
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def run_process(
    *arguments: object, code: int = 0, columns: int | None = 200, stdin: str | None = None, folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run ``serde-chain`` in a process of its own; it ends with this exit code, and without a traceback."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        input=stdin,
        cwd=folder,
        env=environment(columns),
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def chosen_ports(*counts: int) -> list[int]:
    """Free ports, each with the given number of free ones after it."""
    chosen: list[int] = []
    while len(chosen) < len(counts):
        (port,) = free_ports(1)
        after = range(port, port + counts[len(chosen)] + 1)
        if not any(port_answers(each) for each in after) and not set(after) & set(chosen):
            chosen.append(port)
    return chosen


@contextmanager
def services_running(*arguments: object) -> Iterator[list[str]]:
    """``serde-chain services``, with what it prints until its servers answer; ended by Ctrl-C."""
    with subprocess.Popen(
        [*COMMAND, "services", *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        try:
            yield lines
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[0]
    assert (process.returncode, rest) == (0, "")
