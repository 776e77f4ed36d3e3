"""Which tests one worker runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import unit, units


def item(nodeid: str, *marks: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name in marks)


@pytest.mark.parametrize(
    ("nodeid", "marks", "expected"),
    [
        ("tests/test_chain.py::test_a", [], "tests/test_chain.py"),
        ("tests/spark/test_decode.py::test_a", ["spark"], "spark"),
        ("tests/spark/test_cluster.py::test_a", [], "tests/spark/test_cluster.py"),
        ("tests/hop/test_interop.py::test_a", [], "hop"),
        ("tests/hop/test_spark.py::test_a", ["spark"], "spark"),
        # Starts a session in a process of its own.
        ("tests/cli/test_demo.py::test_a", ["spark"], "tests/cli/test_demo.py"),
        # The pages are made once, though a browser looks at them in tests with another mark.
        ("tests/site/test_build.py::test_a", [], "site"),
        ("tests/site/test_browser.py::test_a", ["servers"], "site"),
    ],
)
def test_the_unit_of_a_test(nodeid: str, marks: list[str], expected: str) -> None:
    assert unit(item(nodeid, *marks)) == expected


@pytest.mark.parametrize(("count", "expected"), [(9, {"spark"}), (200, {"spark", "spark jobs"})])
def test_many_tests_of_spark_are_two_units(count: int, expected: set[str]) -> None:
    items = [item(f"tests/{folder}/test_a.py::test_{n}", "spark") for folder in ("jobs", "spark") for n in range(count)]
    assert set(units(items).values()) == expected
