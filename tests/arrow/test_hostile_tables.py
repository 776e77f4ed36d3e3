"""Tables whose rows take more than the table, or cannot be read."""

from typing import Any

import pyarrow as pa
import pytest

from serde_chain import EncodeError, SerializerChain
from serde_chain.arrow.writing import arrays_of

PART = 1 << 16
SHARED: dict[str, Any] = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, None] * 5000, pa.int32()), pa.array(["x" * 5000])),
    "in a list": pa.ListArray.from_arrays(
        pa.array(range(1001), pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 5000])),
    ),
    "list view": pa.ListViewArray.from_arrays(
        pa.array([0] * 1000, pa.int32()), pa.array([2000] * 1000, pa.int32()), pa.array(range(2000))
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_values_that_rows_share_are_written_out_in_parts(name: str) -> None:
    column = SHARED[name]
    parts = list(arrays_of(column, PART))
    assert max(part.nbytes for part in parts) <= 2 * PART
    assert [row for part in parts for row in part.to_pylist()] == column.to_pylist()


@pytest.mark.parametrize("name", SHARED)
def test_an_empty_column_has_a_type(name: str) -> None:
    [part] = arrays_of(SHARED[name].slice(0, 0), PART)
    assert not len(part)


@pytest.mark.parametrize("wrap", [lambda table: table, lambda table: pa.table({"inner": table.to_struct_array()})])
def test_two_columns_of_one_name_are_refused(wrap: Any) -> None:
    table = wrap(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]))
    with pytest.raises(EncodeError, match="two columns have the same name"):
        SerializerChain.from_config({"value.serializers": "json"}).from_arrow(table, topic="alerts")


def test_text_that_is_none() -> None:
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffS")])
    with pytest.raises(EncodeError, match=r"a text in the table is not UTF-8: .* at position 0") as caught:
        SerializerChain.from_config({"value.serializers": "json"}).from_arrow(pa.table({"id": text}), topic="alerts")
    assert caught.value.row == 0
    assert caught.value.__cause__ is None
