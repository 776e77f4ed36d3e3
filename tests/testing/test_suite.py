"""The exported suite for stages, run as an author runs it: it finds faults, and says where it had nothing to check."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from payload_stores.options import Option, text
from serde_chain import Data, DecodeError, Deserializer, EncodeError, Serializer, StagePair
from serde_chain.testing import SerializerTests

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
    for reason in ("`misfits`, the values", "`foreign`, the bytes", "`stage` is the pair itself"):
        assert reason in said
    code, said = results(tmp_path, pair() + NAMED)
    assert code == 0, said
    assert "is empty" not in said


@pytest.mark.full
def test_a_serializer_that_varies_is_not_compared_with_itself(tmp_path: Path) -> None:
    code, said = results(tmp_path, pair(varies="no remedy") + NAMED)
    assert code == 0, said
    assert "may give different bytes for equal data" in said


@pytest.mark.full
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
        (
            pair().replace("bytes(data)\n", "bytes(data)[: bytes(data).rfind(b'>') + 1]\n") + NAMED,
            "test_trailing_bytes_are_refused",
        ),
        (pair() + NAMED.replace("7", '"text"'), "test_values_that_do_not_fit_are_refused"),
        (pair() + NAMED.replace("no brackets", "<in brackets>"), "test_foreign_bytes_are_refused"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, fault: str, test: str) -> None:
    code, said = results(tmp_path, fault)
    assert code == 1, said
    assert f"TestShift::{test}" in said


@pytest.mark.full
def test_missing_settings_fail_once(tmp_path: Path) -> None:
    code, said = results(
        tmp_path, "from serde_chain.testing import SerializerTests\n\nclass TestIt(SerializerTests): ...\n"
    )
    assert code == 1, said
    assert "1 failed" in said
    assert "error" not in said.splitlines()[-1]
    expected = "TestIt does not set stage = StagePair(MySerializer, MyDeserializer) and values = st.binary()"
    assert f"AssertionError: {expected}" in said
    code, said = results(
        tmp_path, "from payload_stores.testing import PayloadStoreTests\n\nclass TestIt(PayloadStoreTests): ...\n"
    )
    assert code == 1, said
    assert "1 failed" in said
    assert "error" not in said.splitlines()[-1]
    assert "AssertionError: TestIt does not set store_class = MyStore" in said


class Options:
    takes: Data | None = Data.BYTES
    gives: Data | None = Data.BYTES
    options: ClassVar[tuple[Option[Any], ...]] = (Option("frame.mark", text, "", doc="a mark"),)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)  # type: ignore[misc]


class Frame(Options, Serializer[bytes]):
    max_overhead = 1

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        if type(data) is str:
            raise EncodeError("text")
        return None if data is None else b"<" + bytes(data)


class Unframe(Options, Deserializer[bytes]):
    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        if data is not None and bytes(data[:1]) != b"<":
            raise DecodeError("no frame")
        return None if data is None else bytes(data[1:])


class TwoMore(Frame):
    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return None if data is None else b"<" + bytes(data) + (b">" if data else b"")


class Undocumented(Frame):
    options = (Option("frame.mark", text, ""),)


class Unprefixed(Frame):
    options = (Option("mark", text, "", doc="a mark"),)


class Forgetful(Frame):
    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        pass


class Undeclared(Frame):
    options = ()

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        super().configure(config, is_key)
        Options.options[0].read(config)


class IntoObjects(Frame):
    takes = Data.OBJECT


class WrongErrors(Unframe):
    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        if data is not None and bytes(data[:1]) != b"<":
            raise ValueError("no frame")
        return super().__call__(data, ctx)


class Frames(SerializerTests):
    stage = StagePair(Frame, Unframe)
    values = st.binary()
    misfits = ("text",)
    foreign = (b">",)
    detects_truncation = False


def made(serializer: type[Frame] = Frame, deserializer: type[Unframe] = Unframe) -> tuple[Frame, Unframe]:
    stages = serializer(), deserializer()
    for stage in stages:
        stage.configure({}, is_key=False)
    return stages


@pytest.mark.parametrize(
    ("stages", "settings", "test", "message"),
    [
        (
            made(TwoMore),
            {},
            "test_it_adds_no_more_than_it_declares",
            "max_overhead is 1, and the serializer added 2 bytes",
        ),
        (made(IntoObjects), {}, "test_it_adds_no_more_than_it_declares", "a serializer with max_overhead takes bytes"),
        (made(Undocumented), {}, "test_it_declares_what_it_is", "options without a doc: frame.mark: write Option"),
        (made(Unprefixed), {}, "test_it_declares_what_it_is", r"without a prefix .*: mark: write prefix\.mark"),
        (
            made(Forgetful),
            {},
            "test_it_declares_what_it_is",
            r"Forgetful\.configure does not call super\(\)\.configure",
        ),
        (made(), {"detects_truncation": True}, "test_what_is_cut_off_is_refused", "or set detects_truncation = False"),
        (
            made(deserializer=WrongErrors),
            {},
            "test_foreign_bytes_are_refused",
            r"raised ValueError \(no frame\) for b'>' of `foreign`: raise DecodeError",
        ),
        (made(), {"foreign": (b"<",)}, "test_foreign_bytes_are_refused", "accepted b'<' of `foreign` and returned b''"),
        (
            made(),
            {"misfits": (7.5,)},
            "test_values_that_do_not_fit_are_refused",
            r"raised TypeError .* for 7\.5 of `misfits`: raise EncodeError",
        ),
        (
            made(deserializer=WrongErrors),
            {},
            "test_damaged_bytes_give_a_value_or_a_documented_error",
            r"raised ValueError \(no frame\) for .* which is damaged: raise DecodeError",
        ),
    ],
)
def test_a_failed_test_says_what_to_do(stages: Any, settings: dict[str, Any], test: str, message: str) -> None:
    getattr(Frames(), test)(made())
    with pytest.raises(AssertionError, match=message):
        getattr(type("Faulty", (Frames,), settings)(), test)(stages)


def test_an_undeclared_option_is_found() -> None:
    suite = Frames()
    suite.test_the_options_that_it_reads_are_declared({}, is_key=False)
    faulty = type("Faulty", (Frames,), {"stage": StagePair(Undeclared, Unframe)})()
    with pytest.raises(AssertionError, match=r"Undeclared reads frame\.mark, not in its `options`"):
        faulty.test_the_options_that_it_reads_are_declared({}, is_key=False)
