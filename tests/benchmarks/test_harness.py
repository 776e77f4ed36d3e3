"""Rows, and turns that contenders take."""

import pytest

from benchmarks.harness import Row, Transfers, in_turns, measure, sums


def test_a_row_is_the_ratio_of_medians_and_the_quartiles_of_rounds() -> None:
    row = Row("chain", [1.0, 2.0, 3.0], "by hand", [1.0, 1.0, 4.0], "1 KB")
    assert (row.figure, row.spread) == (2.0, (0.875, 1.5))
    assert row.label == "chain, 1 KB against by hand"


def test_a_row_without_a_peer_is_its_own_figure() -> None:
    row = Row("chain", [1.0, 2.0, 4.0])
    assert (row.figure, row.spread, row.label) == (2.0, (1.5, 3.0), "chain")
    assert Row("once", [3.0]).spread == (3.0, 3.0)


def test_contenders_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    clock = iter(range(100))
    taken = in_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, lambda: float(next(clock)))
    assert "".join(calls) == "abbaab"
    assert taken == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_measure_calls_both() -> None:
    calls = {"ours": 0, "theirs": 0}

    def call(side: str) -> None:
        calls[side] += 1

    row = measure("call", lambda: call("ours"), "the same", lambda: call("theirs"), quick=True, at="here")
    assert (row.name, row.against, row.at) == ("call", "the same", "here")
    assert len(row.ours) == len(row.theirs) == 3
    assert min(*row.ours, *row.theirs) > 0
    assert min(calls.values()) > 20


def test_rates() -> None:
    moved = Transfers(2_000_000, wall=[1.0, 2.0], cpu=[0.002, 0.004])
    assert moved.rates() == [2.0, 1.0]
    assert moved.cpu_per_gb() == pytest.approx([1.0, 2.0])
    assert sums([1.0, 2.0], [10.0, 20.0]) == [11.0, 22.0]
