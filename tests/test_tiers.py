"""What `make test` leaves out is a rule, and what only `make nightly` has is a table."""

import subprocess
import sys
from collections import defaultdict
from fnmatch import fnmatchcase
from itertools import combinations, product
from pathlib import Path

import pytest

from tests.nightly import STAYS, stays
from tests.tiers import SPARK, is_representative, pairwise

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("sizes", [(2, 3, 4), (4, 13, 3), (3, 8, 5, 7), (2, 2, 2, 2)], ids=str)
def test_each_pair_of_values_is_tested(sizes: tuple[int, ...]) -> None:
    rows = list(product(*map(range, sizes)))
    kept = [rows[number] for number in sorted(pairwise(rows))]
    for one, other in combinations(range(len(sizes)), 2):
        assert {(row[one], row[other]) for row in kept} == set(product(range(sizes[one]), range(sizes[other])))
    assert len(kept) < len(rows)


def test_the_rows_of_one_list_are_all_tested() -> None:
    assert pairwise([(number, number, number) for number in range(9)]) == set(range(9))


@pytest.mark.parametrize("name", SPARK.values())
def test_a_representative_of_spark_is_a_test(name: str) -> None:
    path, _, function = name.partition("::")
    assert f"\ndef {function.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")
    assert is_representative(name)


def test_a_representative_may_have_all_its_parameters() -> None:
    assert is_representative("tests/spark/test_decode.py::test_batch[arrow]")
    assert not is_representative("tests/spark/test_decode.py::test_batches")
    assert not is_representative("tests/spark/test_sink.py::test_encode[native]")


@pytest.mark.full
def test_a_product_of_decorators_is_left_to_test_all_but_for_its_pairs() -> None:
    """As pytest collects it: five, two, two and two values."""
    found = collected("-k", "test_strict", "-m", "not full", "tests/schemas/test_as_confluent.py")
    rows = [line.partition("[")[2].removesuffix("]").rsplit("-", 3) for line in found if "::test_strict[" in line]
    assert 10 <= len(rows) < 20
    for one, other in combinations(range(4), 2):
        counts = [len({row[at] for row in rows}) for at in (one, other)]
        assert len({(row[one], row[other]) for row in rows}) == counts[0] * counts[1]


def collected(*arguments: str) -> list[str]:
    """What pytest collects."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cases() -> dict[str, list[str]]:
    """Of the tests in the table: the ids of all cases."""
    files = sorted({test.partition("::")[0] for test in STAYS})
    found = defaultdict(list)
    for line in collected(*files):
        test, _, case = line.partition("[")
        if test in STAYS:
            found[test].append(case.removesuffix("]"))
    return found


@pytest.mark.full
def test_the_table_has_no_stale_row(cases: dict[str, list[str]]) -> None:
    """Each pattern is that of a case, and each row leaves some cases to nightly."""
    stale = [
        (test, pattern)
        for test, patterns in STAYS.items()
        for pattern in patterns
        if not any(fnmatchcase(case, pattern) for case in cases[test])
    ]
    assert stale == []
    assert [test for test in STAYS if all(stays(test, case) for case in cases[test])] == []


@pytest.mark.parametrize("name", SPARK.values())
def test_a_representative_of_spark_stays(name: str) -> None:
    test, _, case = name.partition("[")
    assert test not in STAYS or (bool(case) and stays(test, case.removesuffix("]")))
