"""The report: the last result of each benchmark as JSON, and tables and plots derived from it.

``benchmarks/report/`` has ``<benchmark>.json`` with the figures of all rounds, ``README.md`` with the tables, and
plots of those with an axis, as PNG and SVG. A run replaces its own benchmarks, and keeps the rest with their dates.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks import plots
from benchmarks.bounds import BOUNDS, Bounds
from benchmarks.harness import Row, Table
from benchmarks.machine import commit, machine, versions

__all__ = ["PURE_REPORT", "QUICK_REPORT", "REPORT", "Section", "number", "origin", "sections", "show", "write"]

REPORT: Final = Path(__file__).with_name("report")
PURE_REPORT: Final = REPORT / "pure"
"""What differs without the compiled part."""
QUICK_REPORT: Final = Path(__file__).parents[1] / "build" / "benchmarks"
"""Where the figures of quick runs go, which say little: they do not take the place of others."""
_HEADINGS: Final = ("", "ours", "against", "theirs", "ratio", "quartiles", "wanted")


@dataclass(frozen=True)
class Section:
    """The result of a benchmark.

    Attributes:
        benchmark: Its name.
        title: Its subject.
        tables: Its measurements; empty if it could not run.
        missing: Why it could not.
        quick: Whether it ran with smaller counts, so that its figures say little.
        date: When it began, in UTC, to the minute.
        seconds: How long it took; 0 if that is unknown.
        commit: The measured commit.
        machine: The machine.
        versions: Of the libraries, empty if one is not installed.
    """

    benchmark: str
    title: str = ""
    tables: Sequence[Table] = ()
    missing: str = ""
    quick: bool = False
    date: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M"))
    seconds: float = 0
    commit: str = field(default_factory=commit)
    machine: Mapping[str, str] = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)


def show(table: Table, bounds: Bounds) -> None:
    """Print a table."""
    shown = RichTable(title=f"{table.title}, {table.unit}", title_justify="left", caption=table.note or None)
    for heading in _HEADINGS:
        shown.add_column(heading, justify="left" if heading in {"", "against"} else "right")
    for row, cells in zip(table.rows, _cells(table, bounds), strict=True):
        bound = bounds.of(table.name, row)
        shown.add_row(*cells, style="bold red" if bound is not None and not bound.allows(row.figure) else None)
    Console(width=120).print(shown)


def write(section: Section, folder: Path = REPORT, bounds: Path = BOUNDS) -> None:
    """Put a section into a report: its figures, its plots, and the page with the tables of all sections.

    Args:
        section: The result.
        folder: The report; its other benchmarks stay.
        bounds: The bounds, shown beside the figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Created beside the report, and moved there at the end: interrupting a run keeps the previous report.
    with TemporaryDirectory(prefix=".report-", dir=folder.parent) as name:
        made = Path(name)
        (made / f"{section.benchmark}.json").write_text(_as_json(section), encoding="utf-8")
        for table in section.tables:
            # A report without plots is better than none; its page says so.
            with suppress(ModuleNotFoundError):
                if table.axis:
                    plots.draw(table, made)
        older = {f"{table.name}.{kind}" for table in section.tables for kind in plots.FORMATS}
        plotted = {path.name for path in folder.glob("*.svg")} - older | {path.name for path in made.glob("*.svg")}
        others = [other for other in sections(folder) if other.benchmark != section.benchmark]
        of_report = sorted([*others, section], key=lambda each: each.benchmark)
        lines = _markdown(of_report, plotted, Bounds(bounds))
        (made / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for plot in older:
            (folder / plot).unlink(missing_ok=True)
        for path in made.iterdir():
            path.replace(folder / path.name)


def sections(folder: Path = REPORT) -> list[Section]:
    """All sections of a report, by name."""
    return [_from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def origin(of_report: Collection[Section], *, brief: bool = False) -> str:
    """Which commits were measured, and when.

    Args:
        of_report: Some sections of a report.
        brief: Whether to leave out the benchmarks measured at each commit, if there are several.
    """
    by_commit: dict[str, list[Section]] = {}
    for section in of_report:
        by_commit.setdefault(section.commit or "unknown", []).append(section)
    if len(by_commit) == 1:
        ((name, several),) = by_commit.items()
        return f"Measured at one commit, {name}, {_days(several)}."
    if brief:
        return f"**Measured at {len(by_commit)} different commits**, {_days(of_report)}."
    parts = []
    for name, several in sorted(by_commit.items(), key=lambda each: max(section.date for section in each[1])):
        benchmarks = ", ".join(sorted({section.benchmark for section in several}))
        parts.append(f"{benchmarks} at {name}, {_days(several)}")
    return f"**Measured at {len(by_commit)} different commits**: {'; '.join(parts)}."


def _days(several: Iterable[Section]) -> str:
    days = sorted({section.date[:10] for section in several})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def _as_json(section: Section) -> str:
    """The measurements with derived figures, for other programs."""
    content = asdict(section)
    for table, made in zip(section.tables, content["tables"], strict=True):
        for row, written in zip(table.rows, made["rows"], strict=True):
            rounds = {"ours": row.ours, "theirs": row.theirs}
            written |= {side: [_rounded(figure) for figure in figures] for side, figures in rounds.items()}
            written["median"] = {side: _rounded(statistics.median(each)) for side, each in rounds.items() if each}
            written["figure"] = _rounded(row.figure)
            written["quartiles"] = [_rounded(quartile) for quartile in row.spread]
    text = json.dumps(content, indent=1, ensure_ascii=False)
    # The rounds of a row are on one line.
    return re.sub(r"\[\s+(-?\d[^\[\]{}\"]*?)\s+\]", lambda listed: f"[{' '.join(listed[1].split())}]", text) + "\n"


def _rounded(figure: float) -> float:
    """Rounded to significant digits."""
    return float(f"{figure:.6g}")


def _from_json(text: str) -> Section:
    content: dict[str, Any] = json.loads(text)
    names = Row.__dataclass_fields__
    tables = [
        Table(**{**table, "rows": [Row(**{name: row[name] for name in names}) for row in table["rows"]]})
        for table in content.pop("tables")
    ]
    return Section(**content, tables=tables)


def _markdown(of_report: Sequence[Section], plotted: Collection[str], bounds: Bounds) -> Iterator[str]:
    yield "# Benchmark report\n"
    yield "Written by `make bench`. The files beside this one have the figures of all rounds.\n"
    if of_report:
        yield f"{origin(of_report)}\n"
    if of_report and all(section.seconds or section.missing for section in of_report):
        yield f"All benchmarks together took {_minutes(sum(section.seconds for section in of_report))}.\n"
    if any(table.axis and _plot(table) not in plotted for section in of_report for table in section.tables):
        yield "Plots are missing, since matplotlib was not installed.\n"
    for section in of_report:
        yield f"## {section.benchmark}\n"
        yield f"{section.title}\n"
        yield f"{_origin(section)}\n"
        if section.missing:
            yield f"Not run: {section.missing}\n"
        for table in section.tables:
            yield f"### {table.title}\n"
            yield from _rows(table, bounds)
            yield ""
            if table.note:
                yield f"{table.note}\n"
            if table.axis and _plot(table) in plotted:
                yield f"![{table.title}: {table.unit} by {table.axis}]({_plot(table)})\n"


def _plot(table: Table) -> str:
    return f"{table.name}.svg"


def _origin(section: Section) -> str:
    where = section.machine
    libraries = [f"{name} {number}" for name, number in section.versions.items() if number]
    absent = [name for name, number in section.versions.items() if not number]
    parts = [
        f"{section.date} UTC",
        f"commit {section.commit}" if section.commit else "",
        _minutes(section.seconds) if section.seconds else "",
        f"{where['cores']} cores of {where['CPU']}, {where['memory']}, {where['system']}",
        f"load {where['load']} at the start",
        f"Python {where['Python']}, {', '.join(libraries)}",
        f"Avro {where['Avro']}" if "Avro" in where else "",
        f"not installed: {', '.join(absent)}" if absent else "",
        "**a quick run with small counts, which says little**" if section.quick else "",
    ]
    return f"{'; '.join(filter(None, parts))}."


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes"


def _rows(table: Table, bounds: Bounds) -> Iterator[str]:
    headings = (*_HEADINGS[:1], f"ours, {table.unit}", *_HEADINGS[2:])
    yield f"| {' | '.join(headings)} |"
    yield "|---|--:|---|--:|--:|--:|--:|"
    for cells in _cells(table, bounds):
        yield f"| {' | '.join(cells)} |"


def _cells(table: Table, bounds: Bounds) -> Iterator[list[str]]:
    for row in table.rows:
        first, third = row.spread
        yield [
            f"{row.name}, {row.at}" if row.at else row.name,
            number(statistics.median(row.ours)),
            row.against,
            number(statistics.median(row.theirs)) if row.theirs else "",
            number(row.figure) if row.theirs else "",
            f"{number(first)} to {number(third)}",
            str(bounds.of(table.name, row) or ""),
        ]


def number(value: float) -> str:
    """A figure with three significant digits."""
    digits = next((digits for digits, size in ((0, 100), (1, 10)) if abs(value) >= size), 2)
    return f"{value:,.{digits}f}" if abs(value) >= 0.01 or not value else f"{value:.2g}"
