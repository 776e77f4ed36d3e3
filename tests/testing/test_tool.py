"""A program that fetches or builds a server: its failures are said, with the end of what it printed."""

import sys
from pathlib import Path

import pytest

from serde_chain.testing.services import ServiceDownloadError
from serde_chain.testing.services.tool import run_tool


def run(program: str, folder: Path, seconds: float = 60) -> None:
    run_tool([sys.executable, "-c", program], what="building it", folder=folder, seconds=seconds)


def test_a_program_that_succeeds(tmp_path: Path) -> None:
    run("open('made', 'w').close()", tmp_path)
    assert (tmp_path / "made").exists()


def test_a_program_that_fails(tmp_path: Path) -> None:
    with pytest.raises(ServiceDownloadError, match="building it failed with exit code 3; check the network") as raised:
        run("for at in range(40): print('line', at, flush=True)\nraise SystemExit(3)", tmp_path)
    tail = str(raised.value).splitlines()[1:]
    assert tail == [f"line {at}" for at in range(25, 40)]


def test_a_program_that_hangs(tmp_path: Path) -> None:
    with pytest.raises(ServiceDownloadError, match=r"building it took more than 0\.5 s; check the network"):
        run("import threading; threading.Event().wait(100)", tmp_path, seconds=0.5)
