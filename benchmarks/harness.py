"""Side-by-side timing: contenders take turns, round by round, so that a machine's moods hit all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

__all__ = ["Comparison", "Transfers", "measure", "print_table"]

_ROUNDS = 41
_SECONDS_PER_TURN = 0.02


@dataclass(frozen=True)
class Comparison:
    """Two ways to do the same.

    Attributes:
        name: What is compared.
        ours: Our way.
        theirs: The floor, or the peer.
        against: What ``theirs`` is.
        target: The largest ratio ours / theirs that is wanted; None where it is shown for information.
    """

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    against: str
    target: float | None = None


@dataclass(frozen=True)
class Result:
    """Medians in seconds of CPU time per call."""

    comparison: Comparison
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours / self.theirs


@dataclass
class Transfers:
    """Turns in which payloads are moved, by the clock and by the CPU of this process.

    Attributes:
        total_bytes: What is moved in one turn.
        wall: Seconds of each turn.
        cpu: Seconds of CPU of each turn.
    """

    total_bytes: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Measure a turn."""
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)

    def rate(self) -> float:
        """MB a second, by the median."""
        return self.total_bytes / 1e6 / statistics.median(self.wall)

    def cpu_per_gb(self) -> float:
        """Seconds of CPU a GB, by the median."""
        return statistics.median(self.cpu) / (self.total_bytes / 1e9)


def measure(comparison: Comparison, rounds: int = _ROUNDS) -> Result:
    """Time a comparison in interleaved rounds.

    Args:
        comparison: What to time.
        rounds: How many rounds; each gives every contender one turn of about 20 ms.

    Returns:
        Medians over the rounds.
    """
    sides = (comparison.ours, comparison.theirs)
    counts = [_calls_per_turn(side) for side in sides]
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 else (1, 0):
                times[side].append(_turn(sides[side], counts[side]))
    finally:
        gc.enable()
    return Result(comparison, statistics.median(times[0]), statistics.median(times[1]))


def print_table(title: str, results: list[Result], note: str = "") -> bool:
    """Print results; returns whether all targets are reached."""
    table = Table(title=title, title_justify="left")
    for heading in ("", "ours, µs", "against, µs", "ratio", "wanted", "against what"):
        table.add_column(heading, justify="left" if heading in {"", "against what"} else "right")
    for result in results:
        wanted = result.comparison.target
        reached = wanted is None or result.ratio <= wanted
        table.add_row(
            result.comparison.name,
            f"{result.ours * 1e6:.2f}",
            f"{result.theirs * 1e6:.2f}",
            f"[{'green' if reached else 'bold red'}]{result.ratio:.3f}[/]",
            "" if wanted is None else f"≤ {wanted:.2f}",
            result.comparison.against,
        )
    console = Console()
    console.print(table)
    if note:
        console.print(note, soft_wrap=True)
    return all(result.comparison.target is None or result.ratio <= result.comparison.target for result in results)


def _calls_per_turn(call: Callable[[], object]) -> int:
    for _ in range(20):
        call()
    started = time.process_time()
    calls = 0
    while time.process_time() - started < _SECONDS_PER_TURN:
        call()
        calls += 1
    return max(calls, 1)


def _turn(call: Callable[[], object], count: int) -> float:
    repeats = range(count)
    started = time.process_time()
    for _ in repeats:
        call()
    return (time.process_time() - started) / count
