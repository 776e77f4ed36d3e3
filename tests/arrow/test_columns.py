"""Columns of bytes and headers."""

import pyarrow as pa
import pytest

from serde_chain.arrow.columns import views


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("rows", [[], [None], [None, None], [b""], [b"first", None, b"", b"fourth"]])
def test_views(kind: pa.DataType, rows: list[bytes | None]) -> None:
    column = pa.array([b"before", *rows, None, b"after"], kind)[1 : 1 + len(rows)]
    assert [None if view is None else bytes(view) for view in views(column)] == rows


def test_views_are_no_copies() -> None:
    column = pa.array([b"first", b"second"])
    data = column.buffers()[2]
    addresses = [pa.py_buffer(view).address for view in views(column) if view is not None]
    assert addresses == [data.address, data.address + 5]
