"""A sweep whose steps are measured; imported without Spark, so that the local engine's memory is its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeVar

from serde_chain.jobs.local.sweeping import LocalSweep
from serde_chain.jobs.payload_folders import ListedPayload
from serde_chain.jobs.sweeping import DAY_MS, Progress, ReadResult, Scope, SweepEngine, SweepReport, run_sweep
from serde_chain.jobs.topic_bounds import Ends
from tests.memory import peak_bytes, reset_peak

T = TypeVar("T")
Clock = Callable[[], float]

STEPS: Final = ("list", "read", "compare", "delete")


@dataclass
class Spent:
    """The cost of one sweep.

    Attributes:
        cpu: CPU seconds, by step.
        bytes: Peak memory of the process, by step.
    """

    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    bytes: dict[str, int] = field(default_factory=dict)


class Timed:
    """An engine whose steps are measured: a :class:`~serde_chain.jobs.sweeping.SweepEngine`."""

    def __init__(self, engine: SweepEngine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self.spent = Spent()

    def list_payloads(self, progress: Progress) -> Counter[int]:
        """Measured as ``list``."""
        return self.measure("list", lambda: self._engine.list_payloads(progress))

    def bury(self, first: Ends, ends: Ends) -> None:
        """Measured as ``read``: only a sweep with tombstones reads them."""
        self.measure("read", lambda: self._engine.bury(first, ends))

    def read(self, first: Ends, ends: Ends) -> ReadResult:
        """Measured as ``read``."""
        return self.measure("read", lambda: self._engine.read(first, ends))

    def compare(self) -> Iterator[tuple[int, int]]:
        """Measured as ``compare``."""
        return iter(self.measure("compare", lambda: [*self._engine.compare()]))

    def orphans(self) -> Iterator[list[ListedPayload]]:
        """Not measured by itself: the caller deletes in between."""
        reset_peak()
        return self._engine.orphans()

    def still_orphans(self, page: list[ListedPayload]) -> list[ListedPayload]:
        """Not measured."""
        return self._engine.still_orphans(page)

    def count_live(self) -> int:
        """Measured with ``compare``; the first call after the deletions."""
        self.spent.bytes["delete"] = peak_bytes()
        return self.measure("compare", self._engine.count_live)

    def count_dead(self) -> int:
        """Not measured."""
        return self._engine.count_dead()

    def measure(self, step: str, work: Callable[[], T]) -> T:
        """Measure a part of a step."""
        reset_peak()
        began = self._clock()
        done = work()
        self.spent.cpu[step] += self._clock() - began
        self.spent.bytes[step] = max(self.spent.bytes.get(step, 0), peak_bytes())
        return done


def sweep(
    open_engine: Callable[[Scope], AbstractContextManager[SweepEngine]],
    config: dict[str, object],
    topic: str,
    manifest: Path,
    clock: Clock,
) -> tuple[SweepReport, Spent]:
    """Sweep, and measure each step: deletions are what the others leave."""
    timed: list[Timed] = []

    @contextmanager
    def opened(scope: Scope) -> Iterator[Timed]:
        with open_engine(scope) as engine:
            timed.append(Timed(engine, clock))
            yield timed[0]

    began = clock()
    report = run_sweep(config, topic, opened, grace_ms=DAY_MS, delete=True, manifest=manifest, progress=None)
    spent = timed[0].spent
    spent.cpu["delete"] = clock() - began - sum(spent.cpu.values())
    return report, spent


def answer_locally(answer: Connection, config: dict[str, object], topic: str, manifest: Path) -> None:
    """Sweep by the local engine, in this process alone, and send the result."""
    answer.send(sweep(LocalSweep, config, topic, manifest, time.process_time))
