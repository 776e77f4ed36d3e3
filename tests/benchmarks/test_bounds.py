"""What is within its bounds, and what is reported otherwise."""

import re
from pathlib import Path

import pytest

from benchmarks.bounds import Bounds
from benchmarks.harness import Row, Table

FILE = """
tolerance = 0.1
[speed]
"chain, 1 KB against by hand" = { most = 1.0 }
"chain*" = { least = 0.5, tolerance = 0 }
"alone" = { most = 20 }
[other]
"*" = { most = 3 }
[pure.speed]
"*" = { most = 0.5 }
"""
ROW = Row("chain", [1.0], "by hand", [1.0], "1 KB")


@pytest.fixture
def bounds(tmp_path: Path) -> Bounds:
    path = tmp_path / "bounds.toml"
    path.write_text(FILE, encoding="utf-8")
    return Bounds(path, compiled=True)


def speed(*rows: Row) -> list[Table]:
    return [Table("speed", "Speed", "ms", [ROW, Row("chain", [1.0]), Row("alone", [20.0]), *rows])]


def test_bounds_without_the_compiled_part(tmp_path: Path) -> None:
    path = tmp_path / "bounds.toml"
    path.write_text(FILE, encoding="utf-8")
    bounds = Bounds(path, compiled=False)
    assert str(bounds.of("speed", ROW)) == "≤ 0.5"
    assert str(bounds.of("other", ROW)) == "≤ 3"
    assert sorted(bounds.tables) == ["other", "speed"]


def test_all_within(bounds: Bounds) -> None:
    assert bounds.misses(speed()) == []


def test_the_first_pattern_that_matches_counts(bounds: Bounds) -> None:
    assert str(bounds.of("speed", ROW)) == "≤ 1"
    assert str(bounds.of("speed", Row("chain", [1.0], "a peer", [1.0]))) == "≥ 0.5"
    assert bounds.of("speed", Row("other", [1.0])) is None
    assert bounds.of("another table", ROW) is None


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (Row("chain", [1.09], "by hand", [1.0], "1 KB"), ""),  # within the tolerance
        (Row("chain", [1.11], "by hand", [1.0], "1 KB"), "chain, 1 KB against by hand: 1.110, wanted ≤ 1 ± 10%"),
        (Row("chain", [0.49], "a peer", [1.0]), "chain against a peer: 0.490, wanted ≥ 0.5 ± 0%"),
        (Row("alone", [19.0, 23.0, 23.0]), "alone: 23.000, wanted ≤ 20 ± 10%"),
        (Row("alone", [-1.0]), ""),  # no bound below
        (Row("other", [1e9], "by hand", [1.0]), ""),
    ],
)
def test_a_row_out_of_bounds(bounds: Bounds, row: Row, missed: str) -> None:
    assert bounds.misses(speed(row)) == ([f"speed: {missed}"] if missed else [])


def test_a_bound_that_no_row_has_is_reported(bounds: Bounds) -> None:
    assert bounds.misses([Table("speed", "Speed", "ms", [Row("chain", [1.0]), ROW])]) == [
        "speed: no row is called 'alone'"
    ]


@pytest.mark.parametrize("compiled", [False, True])
def test_bounds_are_of_tables_that_a_benchmark_makes(compiled: bool) -> None:
    programs = " ".join(
        path.read_text(encoding="utf-8") for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py")
    )
    named = re.findall(r'(Table|tables)\(\s*f?"([^"]+)"', programs)
    named += [("Table", f"{name}-cpu") for call, name in named if call == "tables"]  # in wall time, and in CPU time
    made = [re.sub(r"\\{(?:way|share|party|every|figure)\\}", r"[\\w-]+", re.escape(name)) for _, name in named]
    unknown = [name for name in Bounds(compiled=compiled).tables if not re.fullmatch("|".join(made), name)]
    assert unknown == []
