"""Bounds of the figures, from ``bounds.toml``: limits that a release must meet."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Final

from benchmarks.harness import Row, Table
from serde_chain.stages.avro.native import library

__all__ = ["BOUNDS", "Bound", "Bounds"]

BOUNDS: Final = Path(__file__).with_name("bounds.toml")


@dataclass(frozen=True)
class Bound:
    """The bound of a figure.

    Attributes:
        most: The highest accepted figure.
        least: The lowest.
        tolerance: The share by which it may be missed, since no two runs are alike.
    """

    most: float = float("inf")
    least: float = float("-inf")
    tolerance: float = 0.0

    def allows(self, figure: float) -> bool:
        """Whether a figure is within the bound and its tolerance."""
        return self.least * (1 - self.tolerance) <= figure <= self.most * (1 + self.tolerance)

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if isfinite(self.least) else f"≤ {self.most:g}"


class Bounds:
    """The bounds of a file: for each table, patterns of :attr:`Row.label` with their bounds.

    Args:
        path: A TOML file, as described at the top of ``bounds.toml``.
        compiled: Whether the compiled part is used; by default where serde-chain is built with it.
    """

    def __init__(self, path: Path = BOUNDS, *, compiled: bool | None = None) -> None:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        pure = tables.pop("pure", {})
        if not (library() is not None if compiled is None else compiled):
            tables |= pure
        common = {"tolerance": tables.pop("tolerance", 0.0)}
        self._of_tables: Mapping[str, Mapping[str, Bound]] = {
            name: {pattern: Bound(**{**common, **wanted}) for pattern, wanted in patterns.items()}
            for name, patterns in tables.items()
        }

    @property
    def tables(self) -> list[str]:
        """The names of the tables that have bounds."""
        return list(self._of_tables)

    def of(self, table: str, row: Row) -> Bound | None:
        """The bound of a row, by the first pattern that matches; None without a match."""
        patterns = self._of_tables.get(table, {})
        return next((bound for pattern, bound in patterns.items() if fnmatchcase(row.label, pattern)), None)

    def misses(self, tables: Iterable[Table]) -> list[str]:
        """Rows out of bounds, and patterns that no row matches; a line for each."""
        lines = []
        for table in tables:
            for row in table.rows:
                bound = self.of(table.name, row)
                if bound is not None and not bound.allows(row.figure):
                    lines.append(f"{table.name}: {row.label}: {row.figure:.3f}, wanted {bound} ± {bound.tolerance:.0%}")
            lines += [
                f"{table.name}: no row is called {pattern!r}"
                for pattern in self._of_tables.get(table.name, ())
                if not any(fnmatchcase(row.label, pattern) for row in table.rows)
            ]
        return lines
