"""What `make test` leaves out is a rule."""

from itertools import combinations, product
from pathlib import Path

import pytest

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
