"""What `make test` leaves to `make test-all`, beside the tests that are marked ``full`` in their files.

`make test` checks a small change within minutes: each module, on real servers, with one test for each of Spark's
functions, and each pair of values of a product.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["SPARK", "is_representative", "mark_full", "pairwise"]

# Each test with a Spark session takes seconds, and all of them share one process. The others are products of engine,
# mode and format.
SPARK = {
    "read": "tests/spark/test_decode.py::test_batch",
    "streaming": "tests/spark/test_decode.py::test_structured_streaming",
    "write": "tests/spark/test_sink.py::test_encode[auto]",
    "payloads": "tests/spark/test_resolve.py::test_resolve[arrow]",
    "fields": "tests/spark/test_large_fields.py::test_decode[arrow]",
    "jobs": "tests/jobs/test_sweep.py::test_orphans_go_and_what_is_in_use_stays[spark]",
}
"""What `make test` has of Spark: a test, with its parameters or with all of them."""


def mark_full(items: Iterable[pytest.Item]) -> None:
    """Mark what `make test` leaves out; a file with ``pytest.mark.full`` on a test says so itself."""
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("spark"):
            if not is_representative(item.nodeid):
                item.add_marker(pytest.mark.full)
        elif getattr(item, "callspec", None) is not None and not item.get_closest_marker("full"):
            functions[item.nodeid.partition("[")[0]].append(item)
    for cases in functions.values():
        rows = _rows(cases)
        if len(rows[0]) > 2:
            kept = pairwise(rows)
            for number, item in enumerate(cases):
                if number not in kept:
                    item.add_marker(pytest.mark.full)


def is_representative(nodeid: str) -> bool:
    """Whether a test with a Spark session is one of `SPARK`."""
    return nodeid in SPARK.values() or nodeid.partition("[")[0] in SPARK.values()


def _rows(cases: Sequence[pytest.Item]) -> list[tuple[int, ...]]:
    """The place of each case on each list of a product; the parameters of one list have the same place."""
    params: list[dict[str, object]] = [item.callspec.params for item in cases]  # type: ignore[attr-defined]
    lists = [_names(mark) for mark in cases[0].iter_markers("parametrize")]
    # Those of fixtures.
    lists += [(name,) for name in params[0] if not any(name in names for names in lists)]
    columns = []
    for names in lists:
        # Not pytest's own indices, which number the cases. Of one list, the values are the same objects in each case.
        values = [tuple(id(each[name]) for name in names) for each in params]
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        columns.append([places[value] for value in values])
    return list(zip(*columns, strict=True))


def _names(mark: pytest.Mark) -> tuple[str, ...]:
    names = mark.args[0]
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)


def pairwise(rows: Sequence[tuple[int, ...]]) -> set[int]:
    """Numbers of the rows of a product that have, together, each pair of values of any two of its lists.

    Args:
        rows: For each case, its place on each list.
    """
    shortest = min(len(set(column)) for column in zip(*rows, strict=True))
    # Along diagonals, where neighbours have no pair in common, so that few rows are enough.
    order = sorted(range(len(rows)), key=lambda number: sum(rows[number]) % shortest)
    seen: set[tuple[tuple[int, int], ...]] = set()
    kept = set()
    for number in order:
        pairs = set(combinations(enumerate(rows[number]), 2))
        if not pairs <= seen:
            seen |= pairs
            kept.add(number)
    return kept
