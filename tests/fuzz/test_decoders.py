"""A short run of every fuzzing target; ``python -m tests.fuzz.decoders`` makes longer ones."""

import itertools
import random

import pytest

from tests.fuzz.decoders import Target, mutations, one, targets

TARGETS = targets()


@pytest.mark.parametrize("name", TARGETS)
def test_only_documented_errors_come_out(name: str) -> None:
    target: Target = TARGETS[name]
    for seed in target.seeds:
        one(target, seed)
    for data in itertools.islice(mutations(target.seeds, random.Random(name)), 1500):
        one(target, data)
