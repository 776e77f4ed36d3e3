"""Runs one benchmark."""

from __future__ import annotations

import faulthandler
import importlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.bounds import Bounds
from benchmarks.reports import Section, show, write
from payload_stores import MissingDependencyError
from serde_chain.testing.services.errors import ServiceMissingError

__all__ = ["measure"]

_LONGEST_SECONDS: Final = 1800


def measure(name: str, report: Path, bounds: Path, *, quick: bool) -> bool:
    """Run a benchmark, and write its section of the report."""
    section = _run(name, Bounds(bounds), quick=quick)
    write(section, report, bounds)
    print(f"{name} took {section.seconds / 60:.1f} minutes")
    return True


def _run(name: str, bounds: Bounds, *, quick: bool) -> Section:
    # Every peer has its own time limit. If one fails, this reports where it waits, and ends the process.
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
