"""Runs tests once more with another kind of Spark session: a process has one kind only."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent
# Rounds beside sweeps, of which there are two in any case; the session of all tests has the others.
FEW = "4"


def run_tests(kind: str, tests: Sequence[str], *, seconds: float) -> None:
    """Run tests in a process of their own; all of them have to pass.

    Args:
        kind: The session: a name in ``SESSIONS`` of ``tests/spark/sessions.py``.
        tests: What pytest takes, relative to this folder.
        seconds: How long they may take.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"{FOLDER}/{name}" for name in tests)]
    environment = {"SERDE_CHAIN_SWEEP_ROUNDS": FEW, **os.environ, "SERDE_CHAIN_TESTS_SPARK": kind}
    done = subprocess.run(
        command, cwd=FOLDER.parent.parent, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    # No name in the list is stale, and none is skipped.
    assert "skipped" not in done.stdout
