"""What a topic costs each day with its payloads in S3: requests, dollars, hours, memory, out of measured figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.reports import REPORT, sections

__all__ = ["Costs", "Load", "Prices", "Sweep", "at_scale", "costs_of", "further", "memory"]

# Items of a page of ListObjectsV2, and of one DeleteObjects.
_PAGE: Final = 1000
# Bytes of the local engine's file, by listed payload and by reference (docs/operations-of-stores.md).
_FILE_BYTES: Final = (200, 60)


@dataclass(frozen=True)
class Prices:
    """A store's list prices, in dollars per 1,000 requests; deletions are free in S3.

    Attributes:
        write: PUT, COPY, POST and LIST.
        read: GET and HEAD.
    """

    write: float
    read: float


@dataclass(frozen=True)
class Load:
    """A topic, and how it is swept.

    Attributes:
        records: Records per day.
        large: The share of records with a payload.
        record_bytes: Mean size of a record in the log, placeholders included.
        retention_days: How long the topic keeps records.
        sweep_days: Days between two sweeps.
    """

    records: float
    large: float = 0.01
    record_bytes: int = 1000
    retention_days: float = 7
    sweep_days: float = 1

    @property
    def payloads(self) -> float:
        """Payloads per day."""
        return self.records * self.large


@dataclass(frozen=True)
class Costs:
    """Measured costs, in µs of CPU time.

    Attributes:
        list: A listed payload, by the store's client and the engine.
        read: A record of a log in which 1 % are large.
        compare: Comparing a listed payload.
        delete: A payload with a random id, by the store's client and with its line in the manifest.
        delete_alone: Another payload: a look at it, and its deletion.
    """

    list: float
    read: float
    compare: float
    delete: float
    delete_alone: float


@dataclass(frozen=True)
class Sweep:
    """One sweep of a topic whose payloads are deleted by sweeps alone.

    Attributes:
        load: The topic.
        costs: What an engine takes.
    """

    load: Load
    costs: Costs

    @property
    def listed(self) -> float:
        """Payloads in the store, the deleted ones included."""
        return self.load.payloads * (self.load.retention_days + self.load.sweep_days)

    @property
    def log(self) -> float:
        """Records to read."""
        return self.load.records * self.load.retention_days

    @property
    def orphans(self) -> float:
        """Payloads to delete: those whose records have expired since the last sweep."""
        return self.load.payloads * self.load.sweep_days

    @property
    def list_requests(self) -> float:
        """Requests of the listing."""
        return self.listed / _PAGE

    def core_hours(self) -> dict[str, float]:
        """CPU time by step, in hours, with random ids."""
        costs, hour = self.costs, 3600e6
        return {
            "list": self.listed * costs.list / hour,
            "read": self.log * costs.read / hour,
            "compare": self.listed * costs.compare / hour,
            "delete": self.orphans * costs.delete / hour,
        }

    @property
    def file_bytes(self) -> float:
        """The local engine's temporary file, or as much on Spark's disks."""
        listed, referred = _FILE_BYTES
        return self.listed * listed + self.load.payloads * self.load.retention_days * referred


def costs_of(engine: str, store: str, folder: Path = REPORT) -> Costs:
    """Costs out of the report.

    Args:
        engine: ``local`` or ``Spark``.
        store: ``s3`` or ``objects``.
        folder: The report.

    Raises:
        LookupError: It has not all of them.
    """
    rows = _figures(folder)

    def last(table: str, name: str) -> float:
        """The row of most payloads."""
        found = [figure for (of, named, _), figure in rows.items() if (of, named) == (table, name)]
        if not found:
            raise LookupError(f"the report has no row {name!r} of {table}: make bench ARGS='at_scale deletes'")
        return found[-1]

    return Costs(
        list=last("at-scale-further", f"{engine}, list") + 1e6 / last("sweep-listing-cpu", store),
        read=last("at-scale-records", engine),
        compare=last("at-scale-further", f"{engine}, compare"),
        delete=1e6 / last("sweep-deletes-cpu", f"{store}, random ids"),
        delete_alone=1e6 / last("sweep-deletes-cpu", f"{store}, content ids"),
    )


def _figures(folder: Path) -> dict[tuple[str, str, str], float]:
    """The medians of a report, by table, row and position."""
    return {
        (table.name, row.name, row.at): statistics.median(row.ours)
        for section in sections(folder)
        for table in section.tables
        for row in table.rows
    }


def further(folder: Path = REPORT) -> None:
    """Print what each further payload takes, by engine and step, for pages."""
    _print_by_place(folder, "at-scale-further", "{:.1f} µs")


def memory(folder: Path = REPORT) -> None:
    """Print the peak memory by engine and step, for pages."""
    _print_by_place(folder, "at-scale-memory", "{:.0f} MiB")


def _print_by_place(folder: Path, table: str, form: str) -> None:
    by_row: dict[str, list[str]] = {}
    for (of, name, _), figure in _figures(folder).items():
        if of == table:
            by_row.setdefault(name, []).append(form.format(figure))
    for name, cells in by_row.items():
        print(f"| {name} | {' | '.join(cells)} |")


def at_scale(
    prices: Prices, loads: Sequence[Load], *, store: str = "s3", cores: int = 16, folder: Path = REPORT
) -> None:
    """Print the table of the model, for pages; cog calls it (``make tables``).

    Args:
        prices: The store's.
        loads: A column each.
        store: ``s3`` or ``objects``.
        cores: Spark's.
        folder: The report.
    """
    print(f"| records per day | {' | '.join(f'{load.records:,.0f}' for load in loads)} |")
    print(f"|---|{'--:|' * len(loads)}")
    local, spark = ([Sweep(load, costs_of(engine, store, folder)) for load in loads] for engine in ("local", "Spark"))
    for name, cells in (*_amounts(prices, local), *_times(local, spark, cores)):
        print(f"| {name} | {' | '.join(cells)} |")


def _amounts(prices: Prices, sweeps: Sequence[Sweep]) -> Iterator[tuple[str, list[str]]]:
    loads = [each.load for each in sweeps]
    yield "payloads per day", [f"{load.payloads:,.0f}" for load in loads]
    yield "their uploads, PUT", [_dollars(load.payloads * prices.write / 1000) for load in loads]
    yield "their downloads by a group of readers, GET", [_dollars(load.payloads * prices.read / 1000) for load in loads]
    yield "**a sweep every**", [f"**{load.sweep_days:g} day{'s' * (load.sweep_days != 1)}**" for load in loads]
    yield "payloads in the store", [f"{each.listed:,.0f}" for each in sweeps]
    yield "LIST requests", [f"{each.list_requests:,.0f}" for each in sweeps]
    yield "LIST requests, cost", [_dollars(each.list_requests * prices.write / 1000) for each in sweeps]
    yield "records in the log", [f"{each.log:,.0f}" for each in sweeps]
    yield "their size, 1 kB each", [f"{each.log * each.load.record_bytes / 1e9:,.0f} GB" for each in sweeps]
    yield "payloads to delete", [f"{each.orphans:,.0f}" for each in sweeps]
    yield "HEAD requests for ids of the content, cost", [_dollars(each.orphans * prices.read / 1000) for each in sweeps]
    yield "temporary file, or Spark's disks", [f"{each.file_bytes / 1e9:,.2f} GB" for each in sweeps]


def _times(local: Sequence[Sweep], spark: Sequence[Sweep], cores: int) -> Iterator[tuple[str, list[str]]]:
    for engine, several in (("local engine", local), ("Spark", spark)):
        hours = [each.core_hours() for each in several]
        for step in ("list", "read", "compare"):
            yield f"CPU time, {engine}: {step}", [_duration(each[step]) for each in hours]
    yield "CPU time, deletions: random ids", [_duration(each.core_hours()["delete"]) for each in local]
    alone = [each.orphans * each.costs.delete_alone / 3600e6 for each in local]
    yield "CPU time, deletions: ids of the content", [_duration(hours) for hours in alone]
    by_one = [_duration(sum(each.core_hours().values())) for each in local]
    yield "**all, random ids: local engine, one core**", [f"**{time}**" for time in by_one]
    together = [_duration(_with_cores(each.core_hours(), cores)) for each in spark]
    yield f"**Spark, {cores} cores, and the driver's deletions**", [f"**{time}**" for time in together]


def _with_cores(hours: Mapping[str, float], cores: int) -> float:
    return hours["delete"] + sum(spent for step, spent in hours.items() if step != "delete") / cores


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _duration(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 100:
        return f"{seconds:,.0f} s" if seconds >= 1 else "< 1 s"
    return f"{seconds / 60:,.0f} min" if seconds < 6000 else f"{hours:,.1f} h"
