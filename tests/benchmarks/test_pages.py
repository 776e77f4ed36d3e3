"""Tables of the documentation's pages out of a report, with the commits that were measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.harness import Row, Table
from benchmarks.pages import at_once, by_place, measured, quote, whole
from benchmarks.reports import write
from tests.benchmarks.test_reports import ROWS, TABLE, section

SIZES = ("1 MB", "20 MB")
RATES = [
    Table(
        f"rates-{way}",
        "Rates",
        "MB/s",
        [Row("s3", [1.0, rate, 900.0], "raised", [5.0] * 3, at) for at in SIZES],
        axis="size",
    )
    for way, rate in (("up", 100.0), ("down", 250.0))
]
CELLS = {"MB/s up / down": ("rates-up: {}", "rates-down: {}")}


@pytest.fixture
def bounds(tmp_path: Path) -> Path:
    path = tmp_path / "bounds.toml"
    path.write_text("", encoding="utf-8")
    return path


def test_rows(tmp_path: Path, bounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    slower = replace(TABLE, rows=[replace(row, ours=[30.0, 60.0, 90.0]) for row in ROWS])
    for rows, without in ((None, "the same"), ([slower], "6.00")):
        if rows is not None:
            write(section("chain", tables=rows), tmp_path / "pure", bounds)
        quote("sizes: serialize, 10 KB *", folder=tmp_path, pure=tmp_path / "pure")
        row = f"| By size: serialize, size: 10 KB | by hand | 2.00 | {without} |"
        assert capsys.readouterr().out.splitlines()[2:] == [row, "", "Measured at one commit, abc, 2026-11-22."]
    quote("sizes: serialize, 10 KB *", folder=tmp_path, pure=None)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "| what | against | ratio |",
        "|---|---|--:|",
        "| By size: serialize, size: 10 KB | by hand | 2.00 |",
    ]
    with pytest.raises(LookupError, match="no row 'sizes: none'"):
        quote("sizes: none", folder=tmp_path)


def test_ways_by_place(tmp_path: Path, bounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(section("rates", tables=RATES), tmp_path, bounds)
    by_place(["raised", "s3"], CELLS, folder=tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "| | | 1 MB | 20 MB |",
        "|---|---|--:|--:|",
        "| MB/s up / down | `raised` | 5.00 / 5.00 | 5.00 / 5.00 |",
        "|  | `s3` | 100 / 250 | 100 / 250 |",
        "",
        "Measured at one commit, abc, 2026-11-22.",
    ]
    with pytest.raises(LookupError, match="no row 'rates-up: hop' at '1 MB'"):
        by_place(["hop"], CELLS, folder=tmp_path)


def test_whole_tables(tmp_path: Path, bounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    peak = Table("peak", "Peak memory", "MiB", [Row("read", [3.0, 15.04, 20.0])])
    write(section("rates", tables=[RATES[0], peak]), tmp_path, bounds)
    whole("rates-up", "none", "peak", folder=tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "| Rates | MB/s | raised | ratio |",
        "|---|--:|--:|--:|",
        "| s3 | 100 | 5.00 | 20.0 |",
        "| s3 | 100 | 5.00 | 20.0 |",
        "",
        "The report has no figures of this yet; `make bench` measures them.",
        "",
        "| Peak memory | MiB |",
        "|---|--:|",
        "| read | 15.0 |",
        "",
        "Measured at one commit, abc, 2026-11-22.",
    ]
    whole("none", folder=tmp_path)
    assert capsys.readouterr().out.count("\n") == 2


def test_memory_at_once(tmp_path: Path, bounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(f"s3, {party}", [1.0], "raised", [99.0]) for party in ("writer", "reader", "broker")]
    write(section("payloads", tables=[Table("payloads-at-once", "Several", "MiB", rows)]), tmp_path, bounds)
    at_once(["s3"], folder=tmp_path)
    assert capsys.readouterr().out.splitlines()[::2] == [
        "| MiB | `raised` | `s3` |",
        "| writers | 99.0 | 1.00 |",
        "| broker | 99.0 | 1.00 |",
    ]


def test_what_is_not_in_the_report_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_place(["s3"], CELLS, folder=tmp_path)
    at_once(["s3"], folder=tmp_path)
    assert set(capsys.readouterr().out.splitlines()) == {
        "The report has no figures of this yet; `make bench` measures them."
    }


def test_figures_of_several_commits_say_so(tmp_path: Path, bounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(section("chain", tables=[TABLE]), tmp_path, bounds)
    write(section("rates", tables=RATES, commit="def", date="2026-11-23 10:00"), tmp_path, bounds)
    measured("chain", "rates", folder=tmp_path)
    measured("rates", folder=tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "**Measured at 2 different commits**, 2026-11-22 to 2026-11-23.",
        "Measured at one commit, def, 2026-11-23.",
    ]
