"""The command line, as a user calls it."""

import os
import subprocess
import sys
from pathlib import Path

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
