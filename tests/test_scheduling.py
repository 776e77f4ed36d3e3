"""Which tests one worker runs."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduling import unit, units
from tests.shared_servers import VARIABLE


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


def start(*arguments: str) -> "subprocess.Popen[str]":
    """Another run, with workers and servers of its own."""
    own = {name: value for name, value in os.environ.items() if name != VARIABLE and not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-n", "1", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own, cwd=Path(__file__).parent.parent,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("wrong", ["tests/no_such.py", "tests/test_record.py::test_no_such"])
def test_a_wrong_path_is_reported(wrong: str) -> None:
    with start(wrong) as run:
        output, _ = run.communicate(timeout=60)
    assert (run.returncode, "not found" in output) == (pytest.ExitCode.USAGE_ERROR, True), output


@pytest.mark.nightly
def test_several_runs_do_not_disturb_each_other() -> None:
    test = "tests/clients/confluent/test_backoff.py::test_waits_grow_and_a_short_poll_returns_in_them"
    with start(test) as first, start(test) as second:
        outputs = [run.communicate(timeout=100)[0] for run in (first, second)]
    assert [run.returncode for run in (first, second)] == [0, 0], outputs
