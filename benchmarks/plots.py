"""Plots of tables with an axis, by matplotlib: PNG for viewing, SVG for pages."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Row, Table, quartiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FORMATS", "draw"]

FORMATS: Final = ("png", "svg")
# Figures further apart than this are plotted on a logarithmic scale.
_FAR: Final = 10


def draw(table: Table, folder: Path) -> None:
    """Plot the lines of a table, ours solid and those of peers dashed, with quartiles as bars.

    Args:
        table: A table with an axis.
        folder: Destination of ``<name>.png`` and ``<name>.svg``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same figures produce the same file; text stays text.
    with mpl.rc_context({"svg.hashsalt": table.name, "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
        axes = figure.subplots()
        _lines(table, axes)
        axes.set(xlabel=table.axis, ylabel=table.unit)
        axes.set_title(table.title, fontsize=10, loc="left")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
        for kind in FORMATS:
            figure.savefig(folder / f"{table.name}.{kind}", metadata={"Date": None} if kind == "svg" else None)


def _lines(table: Table, axes: Axes) -> None:
    from matplotlib.ticker import LogFormatter

    places = list(dict.fromkeys(row.at for row in table.rows))
    medians = []
    for label, style, points in _series(table):
        middle = [statistics.median(rounds) for rounds in points.values()]
        edges = [quartiles(rounds) for rounds in points.values()]
        bars = [[abs(edge[side] - value) for edge, value in zip(edges, middle, strict=True)] for side in (0, 1)]
        axes.errorbar(
            [places.index(at) for at in points], middle, bars, fmt=style, label=label, capsize=3, markersize=5
        )
        medians += middle
    axes.set_xticks(range(len(places)), places)
    if max(medians) > _FAR * min(medians) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter())
    else:
        axes.set_ylim(bottom=0)


def _series(table: Table) -> Iterator[tuple[str, str, dict[str, Sequence[float]]]]:
    """Lines as label, style and rounds by position: ours, then those of peers, each peer's figures once."""
    ours: dict[str, list[Row]] = {}
    for row in table.rows:
        ours.setdefault(row.name, []).append(row)
    for name, rows in ours.items():
        yield name, "o-", {row.at: row.ours for row in rows}
    peers: list[tuple[str, str, dict[str, Sequence[float]]]] = []
    for name, rows in ours.items():
        points = {row.at: row.theirs for row in rows if row.theirs}
        if points and all(points != others for _, _, others in peers):
            peers.append((name, next(row.against for row in rows if row.theirs), points))
    against = [peer for _, peer, _ in peers]
    for name, peer, points in peers:
        yield peer if against.count(peer) == 1 else f"{name}: {peer}", ".--", points
