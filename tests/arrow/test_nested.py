"""Nested columns of every Arrow type, each within each: as Python objects, as plain columns, and through chains."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from serde_chain import EncodeError, SerializerChain
from serde_chain.arrow import nested
from serde_chain.arrow.nested import objects, plain
from serde_chain.arrow.writing import arrays_of
from tests.tiers import pairwise

Rows = list[Any]
MAP = pa.map_(pa.string(), pa.int32())
LEAVES: dict[str, tuple[Any, Rows]] = {
    "maps": (
        pa.array([[("a", 1)], None, [], [("b", 2), ("c", None)], [("d", 4)], [("e", 5)]], MAP),
        [{"a": 1}, None, {}, {"b": 2, "c": None}, {"d": 4}, {"e": 5}],
    ),
    "structs with nulls": (
        pa.array([{"a": "x", "n": None}] * 6, pa.struct([("a", pa.string()), ("n", pa.null())])),
        [{"a": "x", "n": None}] * 6,
    ),
    "text": (pa.array(["a", None, "c", "d", "", "f"], pa.large_string()), ["a", None, "c", "d", "", "f"]),
    "views": (pa.array(["a", None, "c" * 20, "d", "", "f"], pa.string_view()), ["a", None, "c" * 20, "d", "", "f"]),
    "nulls": (pa.nulls(6), [None] * 6),
    "empty structs": (pa.array([{}, None, {}, {}, {}, {}], pa.struct([])), [{}, None, {}, {}, {}, {}]),
}
HIDDEN = pa.array([False, False, True, False])
OFFSETS = [0, 2, 2, 3, 6]


class Wrapped(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """An extension type over any other."""

    def __init__(self, storage: Any) -> None:
        super().__init__(storage, "tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, _serialized: bytes) -> "Wrapped":
        return cls(storage_type)


def _list(make: Any, width: Any) -> Callable[[Any, Rows], tuple[Any, Rows]]:
    # The third one is null, and has an item.
    return lambda column, rows: (
        make.from_arrays(pa.array(OFFSETS, width), column, mask=HIDDEN),
        [rows[0:2], [], None, rows[3:6]],
    )


def _view(make: Any, width: Any) -> Callable[[Any, Rows], tuple[Any, Rows]]:
    # They overlap, and are not in order.
    starts, sizes = pa.array([3, 0, 0, 1], width), pa.array([3, 4, 1, 0], width)
    return lambda column, rows: (
        make.from_arrays(starts, sizes, column, mask=HIDDEN),
        [rows[3:6], rows[0:4], None, []],
    )


def _fixed(column: Any, rows: Rows) -> tuple[Any, Rows]:
    made = pa.FixedSizeListArray.from_arrays(column, 2, mask=pa.array([False, True, False]))
    return made, [rows[0:2], None, rows[4:6]]


def _map(column: Any, rows: Rows) -> tuple[Any, Rows]:
    made = pa.MapArray.from_arrays(pa.array(OFFSETS, pa.int32()), pa.array([*"abcdef"]), column, mask=HIDDEN)
    pairs = list(zip("abcdef", rows, strict=True))
    return made, [dict(pairs[0:2]), {}, None, dict(pairs[3:6])]


def _struct(column: Any, rows: Rows) -> tuple[Any, Rows]:
    made = pa.StructArray.from_arrays([column], ["field"], mask=pa.array([False] * 3 + [True] + [False] * 2))
    return made, [None if at == 3 else {"field": row} for at, row in enumerate(rows)]


def _sparse(column: Any, rows: Rows) -> tuple[Any, Rows]:
    codes = [7, 5, 7, 5, 7, 7]
    made = pa.UnionArray.from_sparse(pa.array(codes, pa.int8()), [pa.array(range(6)), column], ["i", "c"], [5, 7])
    return made, [at if code == 5 else rows[at] for at, code in enumerate(codes)]


def _dense(column: Any, rows: Rows) -> tuple[Any, Rows]:
    offsets = pa.array([5, 0, 0, 1, 3], pa.int32())
    made = pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1, 0], pa.int8()), offsets, [column, pa.array([10, 11])], ["c", "i"]
    )
    return made, [rows[5], 10, rows[0], 11, rows[3]]


def _dictionary(column: Any, rows: Rows) -> tuple[Any, Rows]:
    indices = [5, None, 0, 3, 3, 1]
    made = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), column)
    return made, [None if at is None else rows[at] for at in indices]


def _run_ends(column: Any, rows: Rows) -> tuple[Any, Rows]:
    made = pa.RunEndEncodedArray.from_arrays(pa.array([1, 4, 5, 6, 7, 9], pa.int32()), column)
    return made, [rows[at] for at in (0, 1, 1, 1, 2, 3, 4, 5, 5)]


def _extension(column: Any, rows: Rows) -> tuple[Any, Rows]:
    return pa.ExtensionArray.from_storage(Wrapped(column.type), column), rows


WRAPS: dict[str, Callable[[Any, Rows], tuple[Any, Rows]]] = {
    "list": _list(pa.ListArray, pa.int32()),
    "large_list": _list(pa.LargeListArray, pa.int64()),
    "list_view": _view(pa.ListViewArray, pa.int32()),
    "large_list_view": _view(pa.LargeListViewArray, pa.int64()),
    "fixed_size_list": _fixed,
    "map": _map,
    "struct": _struct,
    "sparse_union": _sparse,
    "dense_union": _dense,
    "dictionary": _dictionary,
    "run_end_encoded": _run_ends,
    "extension": _extension,
}


def _six(column: Any, rows: Rows) -> tuple[Any, Rows]:
    """Six rows, out of the middle of a longer column, without a concatenation, which pyarrow lacks for unions."""
    at = [row % len(rows) for row in range(6)]
    if len(rows) >= 6:
        return column.slice(0, 6), rows[:6]
    return column.take(pa.array(at)), [rows[row] for row in at]


def cases() -> list[Any]:
    """All columns that pyarrow can make: it has no dictionaries of run ends, and takes no rows of some unions."""
    found: list[tuple[Any, Rows, str]] = []
    places: list[tuple[int, ...]] = []
    leaves, wraps = list(LEAVES), list(WRAPS)
    for leaf, inner, outer in product(leaves, wraps, wraps):
        with suppress(pa.ArrowException):
            column, rows = WRAPS[outer](*_six(*WRAPS[inner](*LEAVES[leaf])))
            found.append((column, rows, f"{outer} of {inner} of {leaf}"))
            places.append((leaves.index(leaf), wraps.index(inner), wraps.index(outer)))
    assert len(found) > 0.9 * len(LEAVES) * len(WRAPS) ** 2
    kept = pairwise(places)
    return [
        pytest.param(column, rows, id=name, marks=() if number in kept else pytest.mark.full)
        for number, (column, rows, name) in enumerate(found)
    ]


def is_plain(kind: Any) -> bool:
    """Whether a type is of structs, lists, maps and unions of leaves."""
    name = nested._type_names().get(kind.id, "")
    if isinstance(kind, pa.BaseExtensionType):
        return nested._type_names().get(kind.storage_type.id) in nested._LEAVES - {"NA"}
    if name in nested._LEAVES:
        return True
    below = [kind.field(at).type for at in range(kind.num_fields)]
    return name in {"STRUCT", "LIST", "MAP", "SPARSE_UNION"} and all(map(is_plain, below))


@pytest.mark.parametrize(("column", "rows"), cases())
def test_each_within_each(column: Any, rows: Rows) -> None:
    chain = SerializerChain.from_config({"value.serializer": "json"})
    for start in (0, 1, 2):
        part, wanted = column.slice(start), rows[start:]
        assert objects(part) == wanted
        made = plain(part)
        made.validate(full=True)
        assert is_plain(made.type), made.type
        assert objects(made) == wanted
        if not start:
            table = pa.table({"column": part})
            values = chain.from_arrow(table, topic="t").values.to_pylist()
            assert [json.loads(value)["column"] for value in values] == wanted


# Of a calendar, for which no format has a type.
REFUSED = {"INTERVAL_MONTHS", "INTERVAL_DAY_TIME", "INTERVAL_MONTH_DAY_NANO"}


def test_every_type_of_pyarrow_is_known_or_refused() -> None:
    names = {name.removeprefix("Type_") for name in dir(pa.lib) if name.startswith("Type_")} - {"EXTENSION"}
    known = nested._LEAVES | nested._NESTED.keys()
    assert names == known | REFUSED
    assert not known & REFUSED


def test_a_type_that_is_not_known_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = SerializerChain.from_config({"value.serializer": "json"})
    table = pa.table({"every": pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval()))})
    with pytest.raises(EncodeError, match=r"the column every\[\] is of the type month_day_nano_interval"):
        chain.from_arrow(table, topic="t")
    monkeypatch.setattr(nested, "_LEAVES", nested._LEAVES - {"INT8"})
    with pytest.raises(EncodeError, match="the column id is of the type int8"):
        chain.from_arrow(pa.table({"id": pa.array([1], pa.int8())}), topic="t")


EQUAL = pa.array([[("a", 1)], [("secret", 1), ("b", 2), ("secret", 3)]], MAP)
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "known", "type": {"type": "map", "values": "int"}}],
}


@pytest.mark.parametrize(
    "config",
    [
        {"value.serializer": "json"},
        {"value.serializer": "msgpack"},
        {"value.serializer": "bson"},
        {"value.serializer": "avro", "avro.schema": SCHEMA, "avro.native": "auto"},
        {"value.serializer": "avro", "avro.schema": SCHEMA, "avro.native": "off"},
    ],
)
@pytest.mark.parametrize("kind", ["chunks", "one"])
def test_equal_keys_are_refused_with_row_and_column(config: dict[str, Any], kind: str) -> None:
    table = pa.table({"known": EQUAL})
    table = pa.concat_tables([table.slice(0, 1), table.slice(1)]) if kind == "chunks" else table
    with pytest.raises(EncodeError, match="a map in the column known has equal keys") as caught:
        SerializerChain.from_config(config).from_arrow(table, topic="t")
    assert caught.value.row == 1
    assert "secret" not in str(caught.value)


def test_what_is_null_is_not_looked_at() -> None:
    """Arrow allows anything below a null: equal keys, text that is none."""
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffS")])
    hidden = pa.StructArray.from_arrays([wrong], ["text"], mask=pa.array([True]))
    offsets = pa.array([0, 1, 4], pa.int32())
    maps = pa.MapArray.from_arrays(offsets, pa.array([*"abcb"]), pa.array([1, 2, 3, 4]), mask=pa.array([False, True]))
    assert objects(hidden) == [None]
    assert objects(maps) == [{"a": 1}, None]
    assert objects(plain(maps)) == [{"a": 1}, None]


@pytest.mark.parametrize("of", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_lists_of_structs_with_a_column_of_nulls(of: Any) -> None:
    """pyarrow's cast of such a slice is an array that ends the process when it is read."""
    rows = [[{"a": f"text {at}", "n": None}] * (at % 4) for at in range(80)]
    column = pa.array(rows, of(pa.struct([("a", pa.string()), ("n", pa.null())])))[40:]
    parts = list(arrays_of(pa.table({"items": column})))
    for part in parts:
        part.validate(full=True)
    assert [row["items"] for part in parts for row in part.to_pylist()] == rows[40:]
    values = SerializerChain.from_config({"value.serializer": "json"}).from_arrow(column, topic="t").values
    assert [json.loads(value) for value in values.to_pylist()] == rows[40:]


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
BAD_TEXT = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xffS")])
FAR = pa.array([2**62], pa.timestamp("s", "UTC"))


@pytest.mark.parametrize(
    ("leaf", "said"),
    [
        (BAD_TEXT, "not UTF-8"),
        (FAR, "out of Python's range"),
        (pa.array([1], pa.time64("ns")), "nanoseconds"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "nanoseconds"),
        (pa.array([1], pa.duration("ns")), "nanoseconds"),
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), "nanoseconds"),
        (pa.array([[("k", 1), ("k", 2)]], MAP), "equal keys"),
    ],
)
def test_errors_name_row_and_column(leaf: Any, said: str) -> None:
    good = pa.nulls(2, leaf.type)
    column = pa.StructArray.from_arrays([pa.concat_arrays([good, leaf])], ["inner"])
    table = pa.concat_tables([pa.table({"outer": column.slice(0, 1)}), pa.table({"outer": column.slice(1)})])
    with pytest.raises(EncodeError, match=said) as caught:
        SerializerChain.from_config({"value.serializer": "json"}).from_arrow(table, topic="t")
    assert caught.value.row == 2
    assert "column outer.inner" in str(caught.value)


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")])
@pytest.mark.parametrize("days", [-1, 1])
def test_times_are_of_one_day(kind: Any, days: int) -> None:
    """pyarrow makes 00:00 of 24:00."""
    day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    last = pa.array([0, None, day - day // 86_400], kind)
    assert objects(last) == [time(0), None, time(23, 59, 59)]
    rows = [[{"at": None}, {"at": days * day}]]
    table = pa.table({"times": pa.array([[], *rows], pa.list_(pa.struct([("at", kind)])))})
    with pytest.raises(EncodeError, match=r"not of one day in the column times\[\]\.at") as caught:
        SerializerChain.from_config({"value.serializer": "json"}).from_arrow(table, topic="t")
    assert caught.value.row == 1


def test_an_unknown_time_zone_is_named() -> None:
    table = pa.table({"at": pa.array([0], pa.timestamp("us", "Mars/Phobos"))})
    with pytest.raises(EncodeError, match=r"time zone of the type timestamp\[us, tz=Mars/Phobos\].*in the column at"):
        SerializerChain.from_config({"value.serializer": "json"}).from_arrow(table, topic="t")


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), MAP])
def test_lists_of_no_items(kind: Any) -> None:
    column = pa.array([[], None, [], []], pa.list_(kind, 0))
    assert objects(column) == [[], None, [], []]
    assert objects(column.slice(1, 2)) == [None, []]
    assert objects(plain(column)) == [[], None, [], []]


@pytest.mark.parametrize("kind", [pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")])
def test_whole_microseconds_are_pythons_values(kind: Any) -> None:
    """As without pandas, whose values stages do not take, or write without their nanoseconds."""
    [value, nothing] = objects(pa.array([1_000_000, None], kind))
    assert type(value) in {time, datetime, timedelta}
    assert nothing is None
    if pa.types.is_timestamp(kind):
        schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": MICROS}]}
        write = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": json.dumps(schema)})
        assert write.from_arrow(pa.table({"at": pa.array([1000], kind)}), topic="t").values.to_pylist() == [b"\2"]
        with pytest.raises(EncodeError, match="has nanoseconds, which would be lost in the column at"):
            write.from_arrow(pa.table({"at": pa.array([1001], kind)}), topic="t")


def test_a_row_that_a_plain_column_cannot_have() -> None:
    """A list of 2**31 items, here of nulls, which take no memory."""
    many = (1 << 31) + 5
    lists = pa.LargeListArray.from_arrays(pa.array([0, 1, 2, many], pa.int64()), pa.nulls(many))
    table = pa.table({"items": pa.chunked_array([lists.slice(0, 1), lists.slice(1)])})
    with pytest.raises(EncodeError, match=r"the column items of the type large_list.* cannot be converted") as caught:
        list(arrays_of(table))
    assert caught.value.row == 2


def test_values_of_extension_types() -> None:
    when = datetime(2026, 11, 26, tzinfo=UTC)
    table = pa.table(
        {
            "flag": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
            "when": pa.array([when, None]),
        }
    )
    assert objects(table.to_struct_array().combine_chunks()) == [
        {"flag": True, "when": when},
        {"flag": None, "when": None},
    ]
