"""The page for users coming from hop-client: its code runs, with what the page tells to install."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import chosen_ports, services_running
from tests.environments import Environment, install_line, python_blocks

pytestmark = pytest.mark.full

PAGE = (Path(__file__).parents[2] / "docs" / "hop.md").read_text(encoding="utf-8")


def test_code_runs_against_the_trial_broker(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    """The servers and the program of the page, in processes of their own."""
    [command] = re.findall(r"^\$ serde-chain (services .*)$", PAGE, re.MULTILINE)
    [program] = python_blocks(PAGE)
    port, endpoint = chosen_ports(1, 0)
    arguments = command.replace("8090", str(endpoint)).split()[1:]
    with services_running(*arguments, "--port", port, "--folder", tmp_path / "services"):
        at = program.replace("localhost:9093", f"localhost:{port + 1}")
        printed = installed(install_line(PAGE)).run(at, tmp_path)
    assert printed == "b'M 51' 2000000 b'blanco'\n"
