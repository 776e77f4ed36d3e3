"""``python -m benchmarks [NAME …]``: run all benchmarks, or those named, and write the report.

Several run in a process each, so that one that fails or hangs does not end the others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

from benchmarks.bounds import BOUNDS, Bounds
from benchmarks.one import measure
from benchmarks.reports import QUICK_REPORT, REPORT, sections

NAMES = (
    "chain", "sizes", "clients", "latency", "in_flight", "event_loop", "avro", "formats", "arrow", "models", "alerts",
    "raw_parquet", "fields", "schemas", "large_records",
    "hop", "s3", "stores", "kafka_store", "payloads", "memory", "sweep", "at_scale", "deletes",
    "spark_decode", "spark_references", "spark_encode", "spark_memory",
)  # fmt: skip


def main() -> None:
    """Run benchmarks, print their tables and write the report.

    Exits with 1 if a benchmark failed or, with ``--check``, if a figure is out of bounds.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
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
    failed = []
    started = time.monotonic()
    run = measure if len(names) == 1 else _measure_in_process
    for name in names:
        if not run(name, report, arguments.bounds, quick=arguments.quick):
            failed.append(f"{name}: it failed, as printed above; the report keeps its earlier figures, if any")
            continue
        section = next(section for section in sections(report) if section.benchmark == name)
        misses += [f"{name}: not run: {section.missing}"] if section.missing else bounds.misses(section.tables)
    print(f"\nAll took {(time.monotonic() - started) / 60:.1f} minutes.")
    print("\nOut of bounds:", *misses, sep="\n  ") if misses else print("\nAll figures are within their bounds.")
    if failed:
        print("\nFailed:", *failed, sep="\n  ")
    sys.exit(1 if failed or (misses and arguments.check) else 0)


def _measure_in_process(name: str, report: Path, bounds: Path, *, quick: bool) -> bool:
    """Run a benchmark in a process of its own; returns whether it succeeded."""
    process = multiprocessing.get_context("spawn").Process(
        target=measure, args=(name, report, bounds), kwargs={"quick": quick}
    )
    process.start()
    try:
        process.join()
    except KeyboardInterrupt:
        process.join()  # it was interrupted too, and stops its servers
        raise
    return process.exitcode == 0


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("Interrupted: the report has what was measured before", file=sys.stderr)
        sys.exit(130)
