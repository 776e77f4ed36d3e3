"""Side-by-side timing: contenders take turns, round by round, so that machine load affects all of them alike.

Every benchmark is a module with ``run(*, quick: bool) -> Iterable[Table]``. A :class:`Table` contains everything
measured: output, files, plots and the comparison with bounds follow from it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Row", "Table", "Transfers", "in_turns", "measure", "per_second", "quartiles", "sums"]

_ROUNDS = 25
_ROUNDS_OF_QUICK = 3
_SECONDS_PER_TURN = 0.02


@dataclass(frozen=True)
class Row:
    """Figures of one measurement, in the unit of its table.

    Attributes:
        name: What is measured: a row, or a line of the plot.
        ours: One figure per round.
        against: The floor, or the peer, that took turns with it; empty without a peer.
        theirs: Its figures, of the same rounds.
        at: Position on the table's axis, as text: ``"10 KB"``.
    """

    name: str
    ours: Sequence[float]
    against: str = ""
    theirs: Sequence[float] = ()
    at: str = ""

    @property
    def label(self) -> str:
        """Name, position and peer, as in the bounds: ``serialize, 10 KB against the calls by hand``."""
        place = f", {self.at}" if self.at else ""
        peer = f" against {self.against}" if self.against else ""
        return f"{self.name}{place}{peer}"

    @property
    def figure(self) -> float:
        """The ratio of the medians, ours over theirs; our median without a peer."""
        ours = statistics.median(self.ours)
        return ours / statistics.median(self.theirs) if self.theirs else ours

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of :attr:`figure` over the rounds."""
        return quartiles([a / b for a, b in zip(self.ours, self.theirs, strict=True)] if self.theirs else self.ours)


@dataclass(frozen=True)
class Table:
    """Measurements in one unit.

    Attributes:
        name: Short, and unique among all benchmarks: used in file names and bounds.
        title: What it shows.
        unit: Of all figures: ``µs``, ``MB/s``.
        rows: The figures.
        axis: Meaning of the rows' ``at``. A table with an axis is also plotted.
        note: What a reader must know, such as a missing peer.
    """

    name: str
    title: str
    unit: str
    rows: Sequence[Row]
    axis: str = ""
    note: str = ""


@dataclass
class Transfers:
    """Turns that move payloads, in wall time and in CPU time of this process.

    Attributes:
        total_bytes: Bytes moved in one turn.
        wall: Seconds of each turn.
        cpu: CPU seconds of each turn.
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

    def rates(self) -> list[float]:
        """MB per second, of each turn."""
        return per_second(self.total_bytes / 1e6, self.wall)

    def cpu_per_gb(self) -> list[float]:
        """CPU seconds per GB, of each turn."""
        return [seconds / (self.total_bytes / 1e9) for seconds in self.cpu]


def measure(
    name: str,
    ours: Callable[[], object],
    against: str,
    theirs: Callable[[], object],
    *,
    quick: bool,
    rounds: int = _ROUNDS,
    at: str = "",
) -> Row:
    """Time two ways to do the same, in turns of about 20 ms.

    Args:
        name: The comparison's name.
        ours: Our way.
        against: Name of the other way.
        theirs: The floor, or the peer.
        quick: Whether three rounds are enough.
        rounds: The number of rounds otherwise; each gives both one turn.
        at: Position on the table's axis.

    Returns:
        Microseconds of CPU time per call, by round.
    """
    sides = (ours, theirs)
    counts = [_calls_per_turn(side) for side in sides]
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for turn in range(_ROUNDS_OF_QUICK if quick else rounds):
            for side in (0, 1) if turn % 2 else (1, 0):
                times[side].append(1e6 * _turn(sides[side], counts[side]))
    finally:
        gc.enable()
    return Row(name, times[0], against, times[1], at)


def in_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each way in each round; the order alternates, and the first round does not count.

    The first round opens connections and loads everything that is loaded once.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds + 1):
        for name in names[:: -1 if number % 2 else 1]:
            started = clock()
            ways[name]()
            taken = clock() - started
            if number:
                seconds[name].append(taken)
    return seconds


def per_second(amount: float, seconds: Sequence[float]) -> list[float]:
    """Rate per second of each round, for rounds that moved ``amount``."""
    return [amount / each for each in seconds]


def sums(*several: Sequence[float]) -> list[float]:
    """Round by round, the sum of several ways: the cost of doing the work of all."""
    return [sum(of_round) for of_round in zip(*several, strict=True)]


def quartiles(figures: Sequence[float]) -> tuple[float, float]:
    """The first and the third."""
    if len(figures) < 2:
        return figures[0], figures[0]
    first, _, third = statistics.quantiles(figures, n=4, method="inclusive")
    return first, third


def _calls_per_turn(call: Callable[[], object]) -> int:
    started = time.process_time()
    for _ in range(20):
        call()
        if time.process_time() - started > 5 * _SECONDS_PER_TURN:  # long enough, and warm
            break
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
