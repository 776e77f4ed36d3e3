"""The command line, as a user calls it."""

import os
import subprocess
import sys


def run(*arguments: object, code: int = 0, columns: int = 200) -> "subprocess.CompletedProcess[str]":
    """Run ``serde-chain`` in a process of its own; it ends with this exit code, and without a traceback."""
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    done = subprocess.run(
        # pyspark leaves the sockets of results to the garbage collector.
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore:unclosed <socket:ResourceWarning",
            "-c",
            "from serde_chain.cli import main; main()",
            *map(str, arguments),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done
