"""Runs a program that fetches or builds a server, with a time limit and the tail of its output in errors."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from serde_chain.testing.services.errors import ServiceDownloadError

_TAIL_LINES = 15


def run_tool(
    command: Sequence[str], *, what: str, folder: Path, seconds: float, environment: Mapping[str, str] | None = None
) -> None:
    """Run a program to its end.

    Args:
        command: The program and its arguments.
        what: The activity, for messages: ``fetching the broker``.
        folder: Its working folder.
        seconds: Time limit in seconds.
        environment: Its variables; by default those of this process.

    Raises:
        ServiceDownloadError: The program failed, or exceeded the time limit.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{what} took more than {seconds:g} s; check the network and try again"
        raise ServiceDownloadError(message) from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-_TAIL_LINES:])
        message = (
            f"{what} failed with exit code {done.returncode}; check the network and try again. The end of its output:\n"
            f"{tail}"
        )
        raise ServiceDownloadError(message)
