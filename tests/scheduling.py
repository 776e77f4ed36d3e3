"""Which tests one worker runs, and in what order: the longest units first, whole files together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest
    from xdist.remote import Producer

SPARK, JOBS, HOP, SITE = "spark", "spark jobs", "hop", "site"
# More than `make test` has: two workers would not run those sooner.
_MANY = 100


def unit(item: pytest.Item) -> str:
    """The unit of a test: one worker runs all tests of a unit.

    A Spark session costs seconds and 2 GiB, so one worker has it; commands start their own. The tests of hop share the
    announcement on the broker, and those of the documentation's site its pages. Every other unit is a file, whose tests
    may share fixtures.
    """
    path = item.nodeid.split("::", 1)[0]
    if item.get_closest_marker("spark") and not path.startswith("tests/cli/"):
        return SPARK
    return next((unit for unit in (HOP, SITE) if path.startswith(f"tests/{unit}/")), path)


def units(items: Sequence[pytest.Item]) -> dict[str, str]:
    """The unit of each test of a run, by its node id. Many tests of Spark are two units."""
    found = {item.nodeid: unit(item) for item in items}
    spark = [name for name, group in found.items() if group == SPARK]
    if len(spark) > _MANY:
        found.update({name: JOBS for name in spark if name.startswith(("tests/jobs/", "tests/spark/jobs/"))})
    return found


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]  # without type information
    """Gives units to workers in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Producer, units: Mapping[str, str]) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._units = units

    def _split_scope(self, nodeid: str) -> str:
        return self._units.get(nodeid, nodeid)
