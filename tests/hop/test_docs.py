"""The page for users coming from hop-client: its code runs, with what the page tells to install."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environments import Environment, install_line, python_blocks

pytestmark = pytest.mark.full

PAGE = (Path(__file__).parents[2] / "docs" / "hop.md").read_text(encoding="utf-8")


def test_code_runs_against_the_trial_broker(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    [servers] = re.findall(r"```py\n(# hop_broker\.py\n.*?)```", PAGE, re.DOTALL)
    [program] = python_blocks(PAGE)
    command = [sys.executable, "-c", servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        try:
            assert running.stdout is not None
            listens = running.stdout.readline()
            address = listens.removeprefix("Kafka listens on ").strip()
            printed = installed(install_line(PAGE)).run(program.replace("localhost:9092", address), tmp_path)
        finally:
            running.communicate("\n", timeout=100)
    assert printed == "b'M 51' 2000000 b'blanco'\n"
    assert running.returncode == 0
