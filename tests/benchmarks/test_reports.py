"""A report out of tables: what it says, what it draws, what it keeps of earlier runs, and what it says is missing."""

import json
import sys
from pathlib import Path

import matplotlib.image
import pytest

from benchmarks.harness import Row, Table
from benchmarks.reports import Section, number, sections, write

ROWS = [
    Row("serialize", [1.0, 2.0, 3.0], "by hand", [1.0, 1.0, 2.0], "1 KB"),
    Row("serialize", [10.0, 20.0, 30.0], "by hand", [10.0, 10.0, 20.0], "10 KB"),
    Row("alone", [4.0, 4.0, 5.0], theirs=[], at="1 KB"),
]
TABLE = Table("sizes", "By size", "µs a record", ROWS, axis="size", note="Figures are of one machine.")


def section(name: str, **more: object) -> Section:
    machine = {"CPU": "Z80", "cores": "1", "memory": "64 KiB", "system": "CP/M", "Python": "3.11.2", "load": "0.0"}
    fixed = {"date": "2026-11-22 11:00", "commit": "abc", "machine": machine, "versions": {"zstd": "1", "peer": ""}}
    return Section(**{"benchmark": name, "title": f"About {name}.", **fixed, **more})  # type: ignore[arg-type]


@pytest.fixture
def bounds(tmp_path: Path) -> Path:
    path = tmp_path / "bounds.toml"
    path.write_text('[sizes]\n"*, 1 KB against by hand" = { most = 1.05 }\n', encoding="utf-8")
    return path


def test_the_page(tmp_path: Path, bounds: Path) -> None:
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    lines = (tmp_path / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("| ")] == [
        "|  | ours, µs a record | against | theirs | ratio | quartiles | wanted |",
        "| serialize, 1 KB | 2.00 | by hand | 1.00 | 2.00 | 1.25 to 1.75 | ≤ 1.05 |",
        "| serialize, 10 KB | 20.0 | by hand | 10.0 | 2.00 | 1.25 to 1.75 |  |",
        "| alone, 1 KB | 4.00 |  |  |  | 4.00 to 4.50 |  |",
    ]
    assert "Figures are of one machine." in lines
    assert (
        "2026-11-22 11:00 UTC; commit abc; 1 cores of Z80, 64 KiB, CP/M; load 0.0 at the start; "
        "Python 3.11.2, zstd 1; not installed: peer." in lines
    )
    assert "![By size: µs a record by size](sizes.svg)" in lines


def test_the_figures_of_all_rounds_are_kept(tmp_path: Path, bounds: Path) -> None:
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    (kept,) = sections(tmp_path)
    assert kept == section("chain", tables=[TABLE])
    row = json.loads((tmp_path / "chain.json").read_text(encoding="utf-8"))["tables"][0]["rows"][0]
    assert row["median"] == {"ours": 2, "theirs": 1}
    assert (row["figure"], row["quartiles"]) == (2, [1.25, 1.75])


def test_plots_show_every_line(tmp_path: Path, bounds: Path) -> None:
    write(section("chain", tables=[TABLE, Table("bare", "No axis", "ms", ROWS)]), tmp_path, bounds)
    assert {path.name for path in tmp_path.glob("*.[ps][nv]g")} == {"sizes.png", "sizes.svg"}
    assert matplotlib.image.imread(tmp_path / "sizes.png").shape[:2] == (480, 840)
    drawn = (tmp_path / "sizes.svg").read_text(encoding="utf-8")
    for text in ("serialize", "alone", "by hand", "1 KB", "10 KB", "µs a record", "By size"):
        assert f">{text}</text>" in drawn


def test_the_same_figures_make_the_same_files(tmp_path: Path, bounds: Path) -> None:
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_replaces_its_own_benchmark_only(tmp_path: Path, bounds: Path) -> None:
    write(section("avro", tables=[TABLE]), tmp_path, bounds)
    write(section("chain", date="2026-11-21 10:00"), tmp_path, bounds)
    write(section("chain", date="2026-11-23 10:00"), tmp_path, bounds)
    assert [(each.benchmark, each.date[:10]) for each in sections(tmp_path)] == [
        ("avro", "2026-11-22"),
        ("chain", "2026-11-23"),
    ]
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "2026-11-22 11:00" in page
    assert "2026-11-21" not in page


def test_without_matplotlib_there_are_tables(tmp_path: Path, bounds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Plots are missing, since matplotlib was not installed." in page
    assert "| serialize, 1 KB |" in page
    assert "sizes.svg" not in page
    assert not (tmp_path / "sizes.svg").exists()  # of the run before


def test_what_was_not_run_or_says_little_is_named(tmp_path: Path, bounds: Path) -> None:
    write(section("s3", missing="Go is not installed", quick=True), tmp_path, bounds)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Not run: Go is not installed" in page
    assert "quick run" in page


def test_the_page_says_whether_all_figures_are_of_one_commit(tmp_path: Path, bounds: Path) -> None:
    page = tmp_path / "README.md"
    write(section("chain", seconds=90.0), tmp_path, bounds)
    write(section("avro", seconds=30.0), tmp_path, bounds)
    text = page.read_text(encoding="utf-8")
    assert "Measured at one commit, abc, 2026-11-22." in text
    assert "All benchmarks together took 2.0 minutes." in text
    assert "commit abc; 1.5 minutes;" in text
    write(section("arrow", commit="def", date="2026-11-23 10:00"), tmp_path, bounds)
    text = page.read_text(encoding="utf-8")
    assert "**Measured at 2 different commits**: avro, chain at abc, 2026-11-22; arrow at def, 2026-11-23." in text
    assert "together took" not in text  # unknown for one of them


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.4, "1,234"), (99.94, "99.9"), (10.0, "10.0"), (2.345, "2.35"), (0.0, "0.00"), (0.00123, "0.0012")],
)
def test_numbers_have_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text
