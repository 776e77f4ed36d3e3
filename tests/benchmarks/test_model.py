"""The model of large topics: its arithmetic, by hand, and the figures that it takes from a report."""

from pathlib import Path

import pytest

from benchmarks.harness import Row, Table
from benchmarks.model import Costs, Load, Prices, Sweep, at_scale, costs_of, further
from benchmarks.reports import Section, write

COSTS = Costs(list=10, read=2, compare=5, delete=50, delete_alone=1000)
LOAD = Load(1e8, sweep_days=3)


def test_requests_and_hours() -> None:
    swept = Sweep(LOAD, COSTS)
    assert (swept.listed, swept.list_requests, swept.log, swept.orphans) == (10e6, 10_000, 7e8, 3e6)
    hours = {step: hours * 3600 for step, hours in swept.core_hours().items()}
    assert hours == pytest.approx({"list": 100, "read": 1400, "compare": 50, "delete": 150})
    assert swept.file_bytes == 10e6 * 200 + 7e6 * 60


def test_costs_are_those_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = tmp_path / "bounds.toml"
    bounds.write_text("")
    with pytest.raises(LookupError, match="no row 'local, list' of at-scale-further"):
        costs_of("local", "s3", tmp_path)
    steps = [
        Row(f"{engine}, {step}", [cost], at=at)
        for engine in ("local", "Spark")
        for at, cost in (("10 to 100", 99.0), ("100 to 1000", 4.0))
        for step in ("list", "compare")
    ]
    records = [Row("local", [2.0]), Row("Spark", [1.0])]
    tables = [Table("at-scale-further", "", "µs", steps), Table("at-scale-records", "", "µs", records)]
    write(Section("at_scale", tables=tables), tmp_path / "report", bounds)
    deletes = [Row("s3, random ids", [20_000.0]), Row("s3, content ids", [1000.0])]
    tables = [Table("sweep-listing-cpu", "", "", [Row("s3", [1e5])]), Table("sweep-deletes-cpu", "", "", deletes)]
    write(Section("deletes", tables=tables), tmp_path / "report", bounds)
    expected = Costs(list=14, read=2, compare=4, delete=50, delete_alone=1000)
    assert costs_of("local", "s3", tmp_path / "report") == expected
    at_scale(Prices(write=0.005, read=0.0004), [Load(1e6), LOAD], folder=tmp_path / "report")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| records per day | 1,000,000 | 100,000,000 |"
    assert "| their uploads, PUT | $0.05 | $5.00 |" in lines
    assert "| LIST requests | 80 | 10,000 |" in lines
    assert "| LIST requests, cost | $0.00 | $0.05 |" in lines
    assert "| their size, 1 kB each | 7 GB | 700 GB |" in lines
    assert "| CPU time, Spark: read | 7 s | 12 min |" in lines
    assert "| **all, random ids: local engine, one core** | **16 s** | **29 min** |" in lines
    # (140 + 700 + 40 s) / 16 + 150 s
    assert "| **Spark, 16 cores, and the driver's deletions** | **1 s** | **3 min** |" in lines
    further(tmp_path / "report")
    assert "| Spark, compare | 99.0 µs | 4.0 µs |" in capsys.readouterr().out.splitlines()
