"""Some columns of a batch."""

from typing import Any

import pyarrow as pa
import pytest

from serde_chain import ConfigError
from serde_chain.arrow.selection import Columns

ROWS = [
    {
        "id": 1,
        "source": {"flux": 1.5, "ra": 2.5},
        "history": [{"flux": 1.0, "stamp": b"a"}, {"flux": 2.0, "stamp": None}],
    },
    None,
    {"id": 2, "source": None, "history": None},
    {"id": 3, "source": {"flux": 0.5, "ra": None}, "history": []},
]


def only(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    history = row["history"]
    return {
        "history": None if history is None else [{"stamp": item["stamp"]} for item in history],
        "id": row["id"],
        "source": None if row["source"] is None else {"flux": row["source"]["flux"]},
    }


@pytest.mark.parametrize("cut", [slice(None), slice(1, 3), slice(2, 4)])
def test_nested_columns_in_the_order_of_their_names(cut: slice) -> None:
    column = pa.array(ROWS)[cut]
    found = Columns(["history.stamp", "id", "source.flux"]).of(column)
    assert found.to_pylist() == [only(row) for row in ROWS[cut]]
    assert [field.name for field in found.type] == ["history", "id", "source"]
    found.validate(full=True)


def test_a_whole_column_and_its_part_are_the_whole() -> None:
    assert Columns(["source.flux", "source"]).of(pa.array(ROWS)).to_pylist()[0] == {"source": ROWS[0]["source"]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["idd"], "no column idd.*Did you mean id"),
        (["source.fluxx"], "no column source.fluxx.*Did you mean source.flux"),
        (["id.x"], "the column id has no fields: it is int64"),
    ],
)
def test_others_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Columns(names).of(pa.array(ROWS))


def test_values_without_fields_are_refused() -> None:
    with pytest.raises(ConfigError, match="the values have no fields: they are binary"):
        Columns(["id"]).of(pa.array([b"bytes"]))


@pytest.mark.parametrize("names", [[], "id", [""]])
def test_names_are_a_list(names: Any) -> None:
    with pytest.raises(ConfigError, match="Give a list of names"):
        Columns(names)


@pytest.mark.parametrize("names", [["s", "s.d.e"], ["s.d.e", "s"], ["s.d", "s"]])
def test_a_column_named_as_a_whole_keeps_all_its_fields(names: list[str]) -> None:
    import pyarrow as pa

    row = {"s": {"d": {"e": 1, "f": 2}, "g": 3}}
    columns = Columns(names)
    assert columns.of(pa.array([row])).to_pylist() == [row]
    assert columns.has(("s", "g"))
