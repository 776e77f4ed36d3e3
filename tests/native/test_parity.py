"""The compiled part and fastavro: the same bytes, values and errors."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_profiles import examples
from tests.native.cases import UglyWays, Ways, mutant, schema_of, value_of
from tests.stages.avro.evolution import Evolution
from tests.stages.avro.test_ugly_schemas import records
from tests.stages.avro.ugly import Ugly


@pytest.mark.full
@settings(max_examples=examples(1000))
@given(st.randoms(use_true_random=False))
def test_equals_fastavro(random: Random) -> None:
    ways = Ways(schema_of(random))
    for odd in (0, 0, 0.05):
        data = ways.compare_written(value_of(random, ways.parsed, ways.named, odd))
        if data is not None:
            ways.compare_read(data)
            ways.compare_read(mutant(random, data))


@pytest.mark.full
@settings(max_examples=examples(500))
@given(st.randoms(use_true_random=False))
def test_columns_equal_those_of_fastavro(random: Random) -> None:
    ways = Ways(schema_of(random))
    good = [data for _ in range(3) if (data := ways.compare_written(value_of(random, ways.parsed, ways.named, 0)))]
    ways.compare_columns([*good, None])
    damaged: list[bytes | None] = [*good, *(mutant(random, data) for data in good)]
    ways.compare_columns(damaged)
    names = [field["name"] for field in ways.parsed["fields"]]
    if names:
        ways.compare_columns(damaged, columns=random.sample(names, random.randrange(len(names)) + 1))


@pytest.mark.full
@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=False))
def test_another_schema_equals_fastavro(random: Random) -> None:
    case = Evolution(random.randrange(2**32))
    ways = Ways(case.writer, case.reader)
    good = [data for _ in range(3) if (data := ways.compare_written(case.value())) is not None]
    bad = [mutant(random, data) for data in good]
    for data in (*good, *bad):
        ways.compare_read(data)
    ways.compare_columns([*good, *bad], case.reader)


@pytest.mark.full
@settings(max_examples=examples(500))
@given(st.randoms(use_true_random=False))
def test_arrays_are_written_as_fastavro_writes_their_rows(random: Random) -> None:
    ways = Ways(schema_of(random))
    good = [data for _ in range(6) if (data := ways.compare_written(value_of(random, ways.parsed, ways.named, 0)))]
    array = ways.compare_columns([*good, None])
    if array is not None:
        ways.compare_array_written(array)
        ways.compare_array_written(array[random.randrange(len(array)) :])
        ways.compare_array_written(array.take([at % len(array) for at in range(3, 20)])[2:11])


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=False))
def test_ugly_schemas_are_read_as_by_fastavro(random: Random) -> None:
    ugly = Ugly(random.randrange(2**32))
    ways = UglyWays(ugly)
    good = records(ugly)
    every = [*good, *(mutant(random, data) for data in good for _ in range(3))]
    for data in every:
        ways.compare_read(data)
    ways.compare_columns(good)
    ways.compare_columns(every)
