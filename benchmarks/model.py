"""What a topic costs each day with its payloads in S3: requests, dollars, hours, memory, out of measured figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.reports import REPORT, sections

__all__ = ["Costs", "Load", "Prices", "Sweep", "at_scale", "costs_of"]

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

    def delete_hours(self, in_flight: int, seconds: float, *, together: bool) -> float:
        """How long one driver deletes: as long as its core computes, or its requests wait.

        Args:
            in_flight: Deletions at a time (``--deletes``).
            seconds: What the server takes for a thousand at once, or for a look and a deletion.
            together: Whether ids are random.
        """
        waits = self.orphans / (_PAGE if together else 1) * seconds / in_flight
        computes = self.orphans * (self.costs.delete if together else self.costs.delete_alone) / 1e6
        return max(waits, computes) / 3600

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
    rows = {
        (table.name, row.name, row.at): statistics.median(row.ours)
        for section in sections(folder)
        for table in section.tables
        for row in table.rows
    }

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


def at_scale(prices: Prices, loads: Sequence[Load], *, store: str = "s3", folder: Path = REPORT) -> None:
    """Print the table of the model, for pages; cog calls it (``make tables``).

    Args:
        prices: The store's.
        loads: A column each.
        store: ``s3`` or ``objects``.
        folder: The report.
    """
    print(f"| records per day | {' | '.join(f'{load.records:,.0f}' for load in loads)} |")
    print(f"|---|{'--:|' * len(loads)}")
    for name, cells in _rows(prices, loads, {name: costs_of(name, store, folder) for name in ("local", "Spark")}):
        print(f"| {name} | {' | '.join(cells)} |")


def _rows(prices: Prices, loads: Sequence[Load], costs: Mapping[str, Costs]) -> Iterator[tuple[str, Iterable[str]]]:
    local, spark = ([Sweep(load, costs[engine]) for load in loads] for engine in ("local", "Spark"))
    yield "payloads per day", (f"{load.payloads:,.0f}" for load in loads)
    yield "days between sweeps", (f"{load.sweep_days:g}" for load in loads)
    yield "uploads, per day", (_dollars(load.payloads * prices.write / 1000) for load in loads)
    yield "downloads by one group of readers, per day", (_dollars(load.payloads * prices.read / 1000) for load in loads)
    yield "one sweep: payloads in the store", (f"{each.listed:,.0f}" for each in local)
    yield "LIST requests", (f"{each.list_requests:,.0f}" for each in local)
    yield "these", (_dollars(each.list_requests * prices.write / 1000) for each in local)
    yield "records to read", (f"{each.log:,.0f}" for each in local)
    yield "at 1 kB each, GB", (f"{each.log * each.load.record_bytes / 1e9:,.0f}" for each in local)
    yield "payloads to delete", (f"{each.orphans:,.0f}" for each in local)
    yield "HEAD requests, ids of the content", (_dollars(each.orphans * prices.read / 1000) for each in local)
    for engine, several in (("local engine, one core", local), ("Spark, core hours", spark)):
        hours = [each.core_hours() for each in several]
        yield f"{engine}: CPU hours", (_hours(sum(each.values())) for each in hours)
        for step in hours[0]:
            yield f"{step}, h", (_hours(each[step]) for each in hours)
    yield "temporary file, or Spark's disks, GB", (f"{each.file_bytes / 1e9:,.1f}" for each in local)


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


def _hours(hours: float) -> str:
    return f"{hours:,.2f}" if hours >= 0.01 else "< 0.01"
