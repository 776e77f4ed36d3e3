"""Runs a program that fetches or builds a server: with a time limit, and the end of its output in the error."""

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
        command: The program, with its arguments.
        what: What it does, for messages: ``fetching the broker``.
        folder: Its working folder.
        seconds: How long it may take.
        environment: Its variables; those of this process by default.

    Raises:
        ServiceDownloadError: It failed, or the time is up.
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
