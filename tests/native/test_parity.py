"""The compiled part and fastavro: the same bytes, values and errors."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_profiles import examples
from tests.native.cases import Ways, mutant, schema_of, value_of


@settings(max_examples=examples(1000))
@given(st.randoms(use_true_random=False))
def test_equals_fastavro(random: Random) -> None:
    ways = Ways(schema_of(random))
    for odd in (0, 0, 0.05):
        data = ways.compare_written(value_of(random, ways.parsed, ways.named, odd))
        if data is not None:
            ways.compare_read(data)
            ways.compare_read(mutant(random, data))
