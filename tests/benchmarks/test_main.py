"""``python -m benchmarks``: a small run of real measurements, with a report and bounds of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES, main
from benchmarks.reports import Section, sections, write

ROOT = Path(__file__).parents[2]


def run(
    folder: Path, bounds: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    file = folder / "bounds.toml"
    file.write_text(bounds, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        *arguments,
        "--report",
        str(folder / "report"),
        "--bounds",
        str(file),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=environment)


@pytest.mark.full
def test_a_quick_run_writes_and_checks(tmp_path: Path) -> None:
    """A process that measures, and draws pictures."""
    done = run(tmp_path, '[chain]\n"*" = { most = 1e9 }\n', "chain", "sizes", "--quick", "--check")
    assert not done.returncode, done.stderr
    assert "All figures are within their bounds." in done.stdout
    chain, sizes = sections(tmp_path / "report")
    assert [len(table.rows) for section in (chain, sizes) for table in section.tables] == [4, 10]
    assert chain.quick
    assert chain.versions["fastavro"]
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        *("README.md", "chain.json", "sizes.json", "sizes.png", "sizes.svg"),
    }


@pytest.mark.full
@pytest.mark.parametrize(("more", "code"), [(["--check"], 1), ([], 0)])
def test_what_is_out_of_bounds_is_named_and_only_checking_makes_it_an_error(
    tmp_path: Path, more: list[str], code: int
) -> None:
    done = run(tmp_path, '[chain]\n"serialize, 3 fields *" = { least = 1e9 }\n', "chain", "--quick", *more)
    assert done.returncode == code, done.stderr
    out = done.stdout[done.stdout.index("Out of bounds:") :].splitlines()
    assert len(out) == 2
    assert out[1].startswith("  chain: serialize, 3 fields against the library calls by hand: ")


@pytest.mark.full
def test_a_benchmark_that_fails_does_not_end_the_others(tmp_path: Path) -> None:
    """Its process ends, as at its time limit; the report keeps what it had."""
    (tmp_path / "bounds.toml").write_text("", encoding="utf-8")
    write(Section("avro", title="before"), tmp_path / "report")
    failing = tmp_path / "failing"
    failing.mkdir()
    (failing / "sitecustomize.py").write_text("import sys\nsys.modules['benchmarks.avro'] = object()\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(failing), str(ROOT)])}
    done = run(tmp_path, "", "chain", "avro", "sizes", "--quick", environment=environment)
    assert done.returncode == 1
    assert "has no attribute 'run'" in done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "Failed:", "  avro: it failed, as printed above; the report keeps its earlier figures, if any",
    ]  # fmt: skip
    titles = {section.benchmark: section.title for section in sections(tmp_path / "report")}
    assert titles.keys() == {"chain", "avro", "sizes"}
    assert titles["avro"] == "before"


def test_a_peer_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.delitem(sys.modules, "benchmarks.chain", raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "chain", "--check", "--report", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        main()
    (section,) = sections(tmp_path)
    assert section.tables == []
    assert "zstandard" in section.missing
    assert section.missing in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("more", "folder"), [(["--quick"], "quick"), ([], "report")])
def test_figures_of_a_quick_run_do_not_take_the_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], folder: str
) -> None:
    monkeypatch.setattr("benchmarks.__main__.REPORT", tmp_path / "report")
    monkeypatch.setattr("benchmarks.__main__.QUICK_REPORT", tmp_path / "quick")
    monkeypatch.setattr("benchmarks.one._run", lambda name, _bounds, quick: Section(name, quick=quick))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "chain", *more])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_a_benchmark_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path, "", "chian")
    assert done.returncode == 2
    assert "there is no benchmark chian" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_program(name: str) -> None:
    assert (ROOT / "benchmarks" / f"{name}.py").exists()
