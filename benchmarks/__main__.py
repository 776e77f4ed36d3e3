"""``python -m benchmarks [NAME …]``: run all benchmarks, or those named, and write the report."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.bounds import BOUNDS, Bounds
from benchmarks.reports import QUICK_REPORT, REPORT, Section, show, write
from payload_stores import MissingDependencyError
from serde_chain.testing.services.errors import ServiceMissingError

NAMES = (
    "chain", "sizes", "clients", "latency", "in_flight", "event_loop", "avro", "formats", "arrow", "models", "alerts",
    "raw_parquet", "fields", "schemas", "large_records",
    "hop", "s3", "stores", "kafka_store", "payloads", "memory", "sweep", "at_scale", "deletes",
    "spark_decode", "spark_references", "spark_encode", "spark_memory",
)  # fmt: skip
_LONGEST_SECONDS = 1800


def main() -> None:
    """Run benchmarks, print their tables and write the report; with ``--check``, a figure out of bounds is an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a figure is out of its bounds")
    parser.add_argument("--quick", action="store_true", help="smaller counts: whether all works, not how fast")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FOLDER",
        help="where to (default: benchmarks/report; with --quick, build/benchmarks)",
    )
    parser.add_argument("--bounds", type=Path, default=BOUNDS, metavar="FILE", help="default: benchmarks/bounds.toml")
    arguments = parser.parse_args()
    names = arguments.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    bounds = Bounds(arguments.bounds)
    report = arguments.report or (QUICK_REPORT if arguments.quick else REPORT)
    misses = []
    started = time.monotonic()
    for name in names:
        section = _run(name, bounds, quick=arguments.quick)
        write(section, report, arguments.bounds)
        print(f"{name} took {section.seconds / 60:.1f} minutes")
        misses += [f"{name}: not run: {section.missing}"] if section.missing else bounds.misses(section.tables)
    print(f"\nAll took {(time.monotonic() - started) / 60:.1f} minutes.")
    print("\nOut of bounds:", *misses, sep="\n  ") if misses else print("\nAll figures are within their bounds.")
    sys.exit(1 if misses and arguments.check else 0)


def _run(name: str, bounds: Bounds, *, quick: bool) -> Section:
    # Every peer has its own time limit. If one fails, this reports where it waits, and ends the process with its
    # servers.
    faulthandler.dump_traceback_later(_LONGEST_SECONDS, exit=True)
    began, started = Section(name, quick=quick), time.monotonic()
    try:
        module = importlib.import_module(f"benchmarks.{name}")
        began = replace(began, title=(module.__doc__ or "").partition("\n")[0])
        tables = []
        for table in module.run(quick=quick):
            show(table, bounds)
            tables.append(table)
        return replace(began, tables=tables, seconds=round(time.monotonic() - started, 1))
    except (ModuleNotFoundError, MissingDependencyError, ServiceMissingError) as error:
        print(f"{name} was not run: {error}")
        return replace(began, missing=str(error))
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("Interrupted: the report has what was measured before", file=sys.stderr)
        sys.exit(130)
