"""``python -m benchmarks [NAME …]``: run all benchmarks, or those named."""

from __future__ import annotations

import argparse
import importlib
import sys

NAMES = ("chain", "avro", "arrow", "memory", "spark")


def main() -> None:
    """Run benchmarks; exits with 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} (default: all)")
    names = parser.parse_args().names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    results = [importlib.import_module(f"benchmarks.{name}").run() for name in names]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
