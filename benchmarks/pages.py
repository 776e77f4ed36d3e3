"""Figures of the report on the documentation's pages; cog calls these functions (``make tables``).

Below each table, a line says which commit was measured, and when: figures of several commits may not fit together.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

from benchmarks.harness import Row, Table
from benchmarks.reports import PURE_REPORT, REPORT, Section, number, origin, sections

__all__ = ["MEMORY", "SPEED", "at_once", "by_place", "measured", "quote", "whole"]

_Found: TypeAlias = tuple[Section, Table, Row]

SPEED: Final = {
    "MB/s up / down": ("payloads-up: {}", "payloads-down: {}"),
    "ms from `produce` to `poll`, one payload at a time": ("payloads-latency: {}",),
    "client's CPU, s/GB up / down": ("payloads-cpu-up: {}", "payloads-cpu-down: {}"),
}
"""Of the benchmark ``payloads``, for :func:`by_place`."""
MEMORY: Final = {
    "MiB in the writer": ("payloads-writer: {}",),
    "MiB in the reader": ("payloads-reader: {}",),
    "MiB in the broker": ("payloads-broker: {}",),
}
"""Likewise, with one payload at a time."""
_NOT_YET: Final = "The report has no figures of this yet; `make bench` measures them."
_PARTIES: Final = {"writer": "writers", "reader": "reader", "broker": "broker"}


def quote(*patterns: str, folder: Path = REPORT, pure: Path | None = PURE_REPORT) -> None:
    """Print a table of single rows of the report.

    Args:
        patterns: Of ``<table>: <label>``; the first row that matches each is printed.
        folder: The report.
        pure: The report without the compiled part, of rows that differ; None for a table without it.

    Raises:
        LookupError: If the report has no such row.
    """
    rows, of_pure = _rows_of(folder), {} if pure is None else _rows_of(pure)
    used: list[Section] = []
    last = ("", "") if pure is None else (" without the compiled part |", "--:|")
    print(f"| what | against | ratio |{last[0]}\n|---|---|--:|{last[1]}")
    for pattern in patterns:
        key = next((key for key in rows if fnmatchcase(key, pattern)), None)
        if key is None:
            raise LookupError(f"the report has no row {pattern!r}")
        section, table, row = rows[key]
        used += [section, *([of_pure[key][0]] if key in of_pure else [])]
        place = f", {table.axis}: {row.at}" if table.axis else ""
        without = number(of_pure[key][2].figure) if key in of_pure else "the same"
        end = "" if pure is None else f" {without} |"
        print(f"| {table.title}: {row.name}{place} | {row.against} | {number(row.figure)} |{end}")
    print(f"\n{origin(used, brief=True)}")


def whole(*names: str, folder: Path = REPORT) -> None:
    """Print tables of the report, with their medians.

    Args:
        names: Names of the tables; for one that the report does not have, a line says so.
        folder: The report.
    """
    used: list[Section] = []
    found = {table.name: (section, table) for section in sections(folder) for table in section.tables}
    for name in names:
        if name not in found:
            print(f"{_NOT_YET}\n")
            continue
        section, table = found[name]
        used.append(section)
        peers = list(dict.fromkeys(row.against for row in table.rows if row.theirs))
        more = f" {' or '.join(peers)} | ratio |" if peers else ""
        print(f"| {table.title} | {table.unit} |{more}\n|---|--:|{'--:|--:|' if peers else ''}")
        for row in table.rows:
            cells = [statistics.median(row.ours), *((statistics.median(row.theirs), row.figure) if row.theirs else ())]
            print(f"| {row.name} | {' | '.join(map(number, cells))} |")
        print()
    if used:
        print(origin(used, brief=True))


def by_place(ways: Sequence[str], figures: Mapping[str, Sequence[str]], *, folder: Path = REPORT) -> None:
    """Print medians of several ways, with a column for each place on the axis, such as a payload's size.

    Without these tables in the report, a line says so.

    Args:
        ways: Names of rows, or of the peer of all rows of a table.
        figures: Title of each group of rows; its tables and names of rows, with ``{}`` for the way. Several are
            shown in one cell.
        folder: The report.

    Raises:
        LookupError: If the report has the tables, but no such row.
    """
    of_report = sections(folder)
    medians: dict[tuple[str, str], float] = {}
    places: dict[str, dict[str, None]] = {}  # in order
    used: dict[str, Section] = {}
    for section in of_report:
        for table in section.tables:
            for row in table.rows:
                medians[f"{table.name}: {row.name}", row.at] = statistics.median(row.ours)
                if row.theirs:
                    medians.setdefault((f"{table.name}: {row.against}", row.at), statistics.median(row.theirs))
                if row.at:  # not that of sums
                    places.setdefault(table.name, {})[row.at] = None
                used[table.name] = section
    tables = [series.partition(":")[0] for group in figures.values() for series in group]
    if not used.keys() >= set(tables):
        print(_NOT_YET)
        return
    columns = [*places[tables[0]]]
    print(f"| | | {' | '.join(columns)} |\n|---|---|{'--:|' * len(columns)}")
    for title, group in figures.items():
        for at, way in enumerate(ways):
            cells = (" / ".join(_cell(medians, series.format(way), place) for series in group) for place in columns)
            print(f"| {'' if at else title} | `{way}` | {' | '.join(cells)} |")
    print(f"\n{origin([used[name] for name in tables], brief=True)}")


def _cell(medians: Mapping[tuple[str, str], float], name: str, place: str) -> str:
    try:
        return number(medians[name, place])
    except KeyError:
        raise LookupError(f"the report has no row {name!r} at {place!r}") from None


def at_once(ways: Sequence[str], *, folder: Path = REPORT) -> None:
    """Print the memory of several producers in one process, and of a reader of all, by store."""
    rows = {key: row for key, (_, table, row) in _rows_of(folder).items() if table.name == "payloads-at-once"}
    by_name = {row.name: row for row in rows.values()}
    if not by_name:
        print(_NOT_YET)
        return
    raised = next(iter(by_name.values())).against
    print(f"| MiB | {' | '.join(f'`{way}`' for way in (raised, *ways))} |\n|---|{'--:|' * (len(ways) + 1)}")
    for party, title in _PARTIES.items():
        several = [by_name[f"{way}, {party}"] for way in ways]
        cells = [statistics.median(several[0].theirs), *(statistics.median(row.ours) for row in several)]
        print(f"| {title} | {' | '.join(map(number, cells))} |")


def measured(*benchmarks: str, folder: Path = REPORT) -> None:
    """Print when, and at which commit, benchmarks were run, for figures that are computed from theirs."""
    print(origin([section for section in sections(folder) if section.benchmark in benchmarks], brief=True))


def _rows_of(folder: Path) -> dict[str, _Found]:
    """The rows of a report, with their tables, by ``<table>: <label>``."""
    return {
        f"{table.name}: {row.label}": (section, table, row)
        for section in sections(folder)
        for table in section.tables
        for row in table.rows
    }
