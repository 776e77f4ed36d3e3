"""``python -m benchmarks [NAME …]``: run all benchmarks, or those named."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import sys

NAMES = (
    "chain", "clients", "pipeline", "event_loop", "avro", "formats", "arrow", "hop", "s3", "stores", "kafka_store",
    "memory", "spark",
)  # fmt: skip
_LONGEST_SECONDS = 1800


def main() -> None:
    """Run benchmarks and print their tables; with ``--check``, a missed target is an error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    names = arguments.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    missed = [name for name in names if not _run(name)]
    print(f"\nTargets missed in: {', '.join(missed)}" if missed else "\nAll targets are reached.")
    sys.exit(1 if missed and arguments.check else 0)


def _run(name: str) -> bool:
    # Every peer has a time limit of its own; should one be missed, this says where it waits, and ends the process. Its
    # servers end with it.
    faulthandler.dump_traceback_later(_LONGEST_SECONDS, exit=True)
    try:
        return bool(importlib.import_module(f"benchmarks.{name}").run())
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
