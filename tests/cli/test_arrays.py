"""Arrays and tables as values, as people see them."""

import numpy as np
import pyarrow as pa

from serde_chain.cli.values import as_json, as_line


def test_arrays_and_tables_are_a_line() -> None:
    value = {"weight": np.zeros((1000, 1000), "f4"), "tags": pa.table({"flux": [1.5] * 2000, "band": ["g"] * 2000})}
    expected = {"weight": "<float32 array, shape (1000, 1000)>", "tags": "<table, 2,000 rows of flux, band>"}
    assert as_json(value) == expected
    assert as_line(value["tags"]) == '"<table, 2,000 rows of flux, band>"'


def test_long_names_are_cut() -> None:
    assert len(as_line(pa.table({"x" * 10_000: [1]}))) < 200
    assert len(as_line(np.zeros(1, [(f"field {number}", "i1") for number in range(1000)]))) < 200
