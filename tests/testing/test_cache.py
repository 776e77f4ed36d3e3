"""The cache of what is fetched or built once."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from serde_chain.testing.services.cache import cache_folder, cached
from serde_chain.testing.services.errors import ServiceError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERDE_CHAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_lies_in_the_home_folder_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERDE_CHAIN_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/serde-chain")


def test_a_folder_is_filled_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Path] = []

    def fill(target: Path) -> None:
        calls.append(target)
        (target / "file").write_text("content")

    first = cached("parts/one-1.0", fill, what="part one")
    second = cached("parts/one-1.0", fill, what="part one")
    assert first == second == folder / "parts" / "one-1.0"
    assert (first / "file").read_text() == "content"
    assert len(calls) == 1
    assert capsys.readouterr().err.startswith("serde-chain: getting part one, once ...\n")


def test_a_failed_fill_leaves_nothing_and_is_tried_again(folder: Path) -> None:
    def fail(target: Path) -> None:
        (target / "half").touch()
        raise ConnectionError

    with pytest.raises(ConnectionError):
        cached("one", fail, what="one")
    assert not [path for path in folder.iterdir() if path.is_dir()]
    assert list(cached("one", lambda target: (target / "whole").touch(), what="one").iterdir()) == [
        folder / "one" / "whole"
    ]


def test_what_an_interrupted_process_left_is_not_used(folder: Path) -> None:
    (folder / "one.partial").mkdir(parents=True)
    (folder / "one.partial" / "half").touch()
    assert not list(cached("one", lambda _: None, what="one").iterdir())


def test_several_processes_fill_it_once(folder: Path, tmp_path: Path) -> None:
    program = """
import sys, time
from serde_chain.testing.services.cache import cached
def fill(target):
    time.sleep(0.3)
    with open(sys.argv[1], "a") as file:
        file.write("filled\\n")
cached("one", fill, what="one")
"""
    count = tmp_path / "count"
    processes = [subprocess.Popen([sys.executable, "-c", program, str(count)]) for _ in range(4)]
    assert [process.wait(30) for process in processes] == [0] * 4
    assert count.read_text() == "filled\n"
    assert (folder / "one").is_dir()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SERDE_CHAIN_CACHE", str(tmp_path / "file"))
    with pytest.raises(ServiceError, match="set SERDE_CHAIN_CACHE to a writable folder"):
        cached("one", lambda _: None, what="one")


def test_a_fetch_of_many_seconds_shows_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("serde_chain.testing.services.cache._PROGRESS_SECONDS", 0.01)
    shown = threading.Event()
    write = sys.stderr.write

    def watch(text: str) -> int:
        if re.fullmatch(r"serde-chain: getting part one \.\.\. \d+ s\n", text):
            shown.set()
        return write(text)

    monkeypatch.setattr(sys.stderr, "write", watch)
    cached("one", lambda _folder: None if shown.wait(30) else pytest.fail("no progress"), what="part one")
    assert capsys.readouterr().err.splitlines()[-1].startswith("serde-chain: got part one in ")
