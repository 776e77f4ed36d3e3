"""The exported suite for stages, run as an author runs it: it finds faults, and says where it had nothing to check."""

import subprocess
import sys
from pathlib import Path

import pytest

PAIR = """
from hypothesis import strategies as st
from serde_chain.base import Data, Deserializer, Serializer, StagePair
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.testing import SerializerTests


class Shift(Serializer[str]):
    varies = {varies}

    def __call__(self, data, ctx=None, /):
        if data is None:
            return None
        if not isinstance(data, str):
            raise EncodeError("expected text")
        return b"<" + data.encode() + b">"


class Unshift(Deserializer[str]):
    def __call__(self, data, ctx=None, /):
        if data is None:
            return None
        data = bytes(data)
        if len(data) < 2 or data[:1] != b"<" or {lax}data[-1:] != b">":
            raise DecodeError("not in brackets")
        try:
            return data[1:-1].decode()
        except ValueError as error:
            raise DecodeError("not text") from error


class TestShift(SerializerTests):
    stage = StagePair({stages})
    values = st.text(alphabet="abc<")
"""
FEW = """
from hypothesis import settings
settings.register_profile("few", max_examples=20, derandomize=True, deadline=None)
settings.load_profile("few")
"""
NAMED = """
    misfits = (7,)
    foreign = (b"no brackets",)
"""


def results(folder: Path, text: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(FEW)
    file = folder / "test_stage.py"
    file.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "no:cacheprovider", f"--rootdir={folder}", str(file)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout


def pair(stages: str = "Shift, Unshift", *, varies: str | None = None, lax: str = "") -> str:
    return PAIR.format(stages=stages, varies=repr(varies), lax=lax)


@pytest.mark.full
def test_what_is_not_named_is_skipped_with_a_reason(tmp_path: Path) -> None:
    code, said = results(tmp_path, pair())
    assert code == 0, said
    for reason in ("`misfits`, the values", "`foreign`, the bytes", "the pair has no registered name"):
        assert reason in said
    code, said = results(tmp_path, pair() + NAMED)
    assert code == 0, said
    assert "is empty" not in said


@pytest.mark.full
def test_a_serializer_that_varies_is_not_compared_with_itself(tmp_path: Path) -> None:
    code, said = results(tmp_path, pair(varies="no remedy") + NAMED)
    assert code == 0, said
    assert "may give different bytes for equal data" in said


def test_foreign_callables_declare_nothing(tmp_path: Path) -> None:
    code, said = results(tmp_path, pair("Shift().__call__, Unshift().__call__") + NAMED)
    assert code == 0, said
    assert "both are foreign callables, which declare nothing" in said
    assert "both are foreign callables without close()" in said


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "test"),
    [
        (pair(lax="0 and ") + NAMED, "test_what_is_cut_off_is_refused"),
        (pair() + NAMED.replace("7", '"text"'), "test_values_that_do_not_fit_are_refused"),
        (pair() + NAMED.replace("no brackets", "<in brackets>"), "test_foreign_bytes_are_refused"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, fault: str, test: str) -> None:
    code, said = results(tmp_path, fault)
    assert code == 1, said
    assert f"TestShift::{test}" in said
