"""Columns of every Arrow type, taken apart once: as columns of few types, and as Python objects of their rows.

``_apart`` is the only place that knows the types. Nested columns are never cast: in pyarrow 26, a cast of lists whose
items have a column of nulls makes an array that crashes its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate, pairwise, repeat
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain.errors import EncodeError, without_data

# The type ids of Arrow's Schema.fbs, as pyarrow names them; those of extensions are told by their class.
_LEAVES: Final = {
    *("NA", "BOOL", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64", "HALF_FLOAT", "FLOAT"),
    *(
        "DOUBLE",
        "STRING",
        "BINARY",
        "FIXED_SIZE_BINARY",
        "DATE32",
        "DATE64",
        "TIMESTAMP",
        "TIME32",
        "TIME64",
        "DURATION",
    ),
    *("DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256"),
}
_WIDE: Final = {"LARGE_STRING": "string", "STRING_VIEW": "string", "LARGE_BINARY": "binary", "BINARY_VIEW": "binary"}
_VIEWS: Final = frozenset({"LIST_VIEW", "LARGE_LIST_VIEW"})
_HINT: Final = "Cast the column, or leave it out"
_TIME_HINT: Final = "Times are from 00:00 to before 24:00; pass others as integers or durations"


class _Apart(NamedTuple):
    """A column without its outermost type.

    Attributes:
        shape: ``leaf``, ``struct``, ``list``, ``map`` or ``union``.
        column: The column; a leaf, or what has the type and the nulls.
        children: The columns of a struct, the items of lists, the keys and values of maps, the members of a union.
        lengths: Of lists and maps, by row: ``pyarrow.Int64Array``, 0 where they are null.
    """

    shape: str
    column: Any
    children: Sequence[Any] = ()
    lengths: Any = None


def plain(column: Any, place: str = "") -> Any:
    """A column without views, dictionaries, run ends and large offsets, which not all stages know.

    Args:
        column: ``pyarrow`` array.
        place: Its name, for errors.

    Returns:
        ``pyarrow`` array of structs, lists, maps and sparse unions, and of leaves.

    Raises:
        EncodeError: The type is not known, has a name twice, or a value is too large for the plain type.

    Example:
        >>> import pyarrow as pa
        >>> tags = pa.array([["a"]], pa.large_list(pa.dictionary(pa.int8(), pa.string())))
        >>> str(plain(tags).type), str(plain(pa.array(["a"], pa.string_view())).type)
        ('list<item: string>', 'string')
    """
    with _named(column, place):
        return _plain(*_apart(column, place), place)


def _plain(shape: str, column: Any, children: Sequence[Any], lengths: Any, place: str) -> Any:
    if shape == "leaf":
        return column
    places = _places(shape, column.type, place)
    made = [plain(child, below) for child, below in zip(children, places, strict=True)]
    if shape == "union":
        # Copied, since a union is made of whole buffers.
        codes = _arrow().concat_arrays([_codes(column)[0]])
        return _union(column.type, codes, _sparse(column, made))
    return _nested(shape, column.type, column.is_valid(), lengths, made)


def _nested(shape: str, kind: Any, valid: Any, lengths: Any, parts: Sequence[Any]) -> Any:
    """Structs, lists or maps.

    Args:
        shape: Which of them.
        kind: A type with the names of the fields.
        valid: ``pyarrow.BooleanArray``: the rows that are not null.
        lengths: Of the lists and maps.
        parts: The columns of the structs, the items, or keys and values.
    """
    arrow = _arrow()
    # Computed anew: the bits of a slice begin before it.
    bits = None if valid.true_count == len(valid) else _compute().and_(valid, arrow.scalar(True)).buffers()[1]
    if shape == "map":
        fields = [kind.key_field, kind.item_field]
    else:
        fields = [kind.value_field] if shape == "list" else list(kind)
    typed = [field.with_type(part.type) for field, part in zip(fields, parts, strict=True)]
    if shape == "struct":
        return arrow.Array.from_buffers(arrow.struct(typed), len(valid), [bits], children=list(parts))
    zero = arrow.array([0], arrow.int32())
    offsets = arrow.concat_arrays([zero, _compute().cumulative_sum(lengths).cast(arrow.int32())]).buffers()[1]
    if shape == "list":
        return arrow.Array.from_buffers(arrow.list_(typed[0]), len(valid), [bits, offsets], children=list(parts))
    of = arrow.map_(*typed, keys_sorted=kind.keys_sorted)
    entries = arrow.StructArray.from_arrays(parts, fields=typed)
    return arrow.Array.from_buffers(of, len(valid), [bits, offsets], children=[entries])


def _union(kind: Any, codes: Any, parts: Sequence[Any]) -> Any:
    """Sparse unions: dense ones must have their members' rows in order."""
    names = [kind.field(at).name for at in range(kind.num_fields)]
    return _arrow().UnionArray.from_sparse(codes, list(parts), names, kind.type_codes)


def _sparse(column: Any, parts: Sequence[Any]) -> Sequence[Any]:
    """The plain members of a union, with a row for each row of the union."""
    if column.type.mode == "sparse":
        return parts
    arrow, compute, (codes, offsets) = _arrow(), _compute(), _codes(column)
    nothing = arrow.scalar(None, arrow.int32())
    of_codes = [compute.equal(codes, arrow.scalar(code, arrow.int8())) for code in column.type.type_codes]
    return [_taken(part, compute.if_else(here, offsets, nothing)) for part, here in zip(parts, of_codes, strict=True)]


def _codes(column: Any) -> tuple[Any, Any]:
    """The type code of each row of a union, and its position in the member's column."""
    # Not pyarrow's type_codes and offsets, which for a slice are those of the first rows.
    arrow, count, buffers = _arrow(), len(column), column.buffers()
    codes = arrow.Array.from_buffers(arrow.int8(), count, [None, buffers[1]], offset=column.offset)
    if column.type.mode == "sparse":
        return codes, arrow.array(range(count), arrow.int32())
    return codes, arrow.Array.from_buffers(arrow.int32(), count, [None, buffers[2]], offset=column.offset)


def objects(column: Any, place: str = "") -> list[Any]:
    """The rows of a column as Python objects: those of pyarrow, but maps are dictionaries.

    Args:
        column: ``pyarrow`` array.
        place: Its name, for errors.

    Raises:
        EncodeError: The type is not known; a map has equal keys; text is not UTF-8; or a date or time is out of
            Python's range or precision. It names the column.

    Example:
        >>> import pyarrow as pa
        >>> objects(pa.array([[[("a", 1)]], None], pa.list_(pa.map_(pa.string(), pa.int64()))))
        [[{'a': 1}], None]
    """
    with _named(column, place):
        shape, column, children, lengths = _apart(column, place)
    if shape == "leaf":
        return _leaves(column, place)
    places = _places(shape, column.type, place)
    if shape == "struct" and column.null_count:
        children = [_present(child, column, below) for child, below in zip(children, places, strict=True)]
    parts = [objects(child, below) for child, below in zip(children, places, strict=True)]
    if shape == "union":
        return list(_members(column, parts))
    present = column.is_valid().to_pylist()
    if shape == "struct":
        names = [field.name for field in column.type]
        rows = zip(*parts, strict=True) if parts else repeat(())
        return [dict(zip(names, next(rows), strict=True)) if there else None for there in present]
    make: Callable[[int, int], Any] = (
        (lambda start, stop: parts[0][start:stop])
        if shape == "list"
        else (lambda start, stop: _dictionary(parts[0][start:stop], parts[1][start:stop], place))
    )
    ends = pairwise(accumulate(lengths.to_pylist(), initial=0))
    return [make(start, stop) if there else None for there, (start, stop) in zip(present, ends, strict=True)]


def _present(child: Any, column: Any, place: str) -> Any:
    """The rows of a struct's column in which the struct is not null; elsewhere Arrow allows anything."""
    with _named(child, place):
        return _taken(plain(child, place), _compute().indices_nonzero(column.is_valid()))


def has_equal_keys(column: Any) -> bool:
    """Whether a map in a column, at any depth, has a key twice; nested keys are left to :func:`objects`.

    Example:
        >>> import pyarrow as pa
        >>> has_equal_keys(pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())))
        True
    """
    shape, column, children, lengths = _apart(column, "")
    if shape == "map" and len(children[0]) and not _arrow().types.is_nested(children[0].type):
        arrow, compute = _arrow(), _compute()
        keys = children[0].dictionary_encode()
        lists = _nested("list", arrow.list_(children[0].type), column.is_valid(), lengths, children[:1])
        rows = compute.list_parent_indices(lists)
        # A number for each key of each row.
        pairs = compute.add(compute.multiply(rows.cast(arrow.int64()), len(keys.dictionary)), keys.indices)
        if compute.count_distinct(pairs).as_py() < len(keys):
            return True
    return any(map(has_equal_keys, children))


def _dictionary(keys: list[Any], values: list[Any], place: str) -> dict[Any, Any]:
    try:
        made = dict(zip(keys, values, strict=True))
    except TypeError:  # of a list or struct
        raise EncodeError(f"a key of a map{_in(place)} is not hashable", hint=_HINT) from None
    if len(made) < len(keys):
        raise EncodeError(
            f"a map{_in(place)} has equal keys, of which a dictionary keeps one", hint="Remove one of them"
        )
    return made


def _members(column: Any, parts: Sequence[list[Any]]) -> Iterator[Any]:
    kind = column.type
    which = {code: at for at, code in enumerate(kind.type_codes)}
    for code, row in zip(*(each.to_pylist() for each in _codes(column)), strict=True):
        yield parts[which[code]][row]


def _leaves(column: Any, place: str) -> list[Any]:
    _check_times(column, place)
    try:
        return _in_microseconds(column, place).to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError as error:
        raise EncodeError(
            f"a text in the table is not UTF-8: {error.reason} at position {error.start}{_in(place)}"
        ) from None
    except (OverflowError, ValueError) as error:
        raise EncodeError(
            f"a date or time in the table is out of Python's range{_in(place)}: {without_data(error)}"
        ) from None
    except KeyError:  # of either library of time zones
        raise EncodeError(f"the time zone of the type {column.type} is unknown{_in(place)}", hint=_HINT) from None


def _check_times(column: Any, place: str) -> None:
    """Refuse times that are not of one day: pyarrow makes 00:00 of 24:00."""
    arrow, compute, kind = _arrow(), _compute(), column.type
    if not arrow.types.is_time(kind) or not len(column):
        return
    day = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] * 86_400
    ends = compute.min_max(column.view(arrow.int32() if arrow.types.is_time32(kind) else arrow.int64()))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and (least < 0 or most >= day):
        raise EncodeError(f"a time in the table is not of one day{_in(place)}", hint=_TIME_HINT)


def _in_microseconds(column: Any, place: str) -> Any:
    """A column without nanoseconds: Python's values have none, and pandas' are not there without pandas."""
    arrow, kind = _arrow(), column.type
    types = arrow.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        target = arrow.timestamp("us", kind.tz)
    elif types.is_time64(kind) and kind.unit == "ns":
        target = arrow.time64("us")
    elif types.is_duration(kind) and kind.unit == "ns":
        target = arrow.duration("us")
    else:
        return column
    try:
        return column.cast(target)
    except arrow.ArrowInvalid:
        raise EncodeError(
            f"a value of the type {kind} in the table has nanoseconds, which would be lost{_in(place)}",
            hint="Round the column to microseconds, or pass integers",
        ) from None


@contextmanager
def _named(column: Any, place: str) -> Iterator[None]:
    """Arrow's errors with the name of the column, and without values."""
    try:
        yield
    except _arrow().ArrowException as error:
        raise EncodeError(
            f"the column{_in(place, '')} of the type {column.type} cannot be converted: {without_data(error)}",
            hint=_HINT,
        ) from None


def _apart(column: Any, place: str) -> _Apart:
    arrow, kind = _arrow(), column.type
    if isinstance(kind, arrow.BaseExtensionType):
        # A UUID is a value; a map stays one.
        is_leaf = _type_names().get(kind.storage_type.id) in _LEAVES - {"NA"}
        return _Apart("leaf", column) if is_leaf else _apart(column.storage, place)
    name = _type_names().get(kind.id, "")
    if name in _LEAVES:
        return _Apart("leaf", column)
    take_apart = _NESTED.get(name)
    if take_apart is None:
        raise EncodeError(f"the column{_in(place, '')} is of the type {kind}, which no stage takes", hint=_HINT)
    return take_apart(column, name, place)


def _struct_apart(column: Any, _name: str, place: str) -> _Apart:
    # Not flatten(), which ends the process for unions: what is below a null stays, see _present.
    children = [column.field(at) for at in range(column.type.num_fields)]
    if len({field.name for field in column.type}) < len(children):
        raise EncodeError(f"two columns have the same name{_in(place)}", hint="Give each column a unique name")
    return _Apart("struct", column, children)


def _union_apart(column: Any, _name: str, _place: str) -> _Apart:
    return _Apart("union", column, [column.field(at) for at in range(column.type.num_fields)])


def _decoded(column: Any, name: str, place: str) -> _Apart:
    """Dictionaries and run ends: a plain value for each row."""
    if name == "DICTIONARY":
        return _apart(_taken(plain(column.dictionary, place), column.indices), place)
    return _apart(_taken(plain(column.values, place), _arrow().array(_runs(column), _arrow().int64())), place)


def _lists_apart(column: Any, name: str, place: str) -> _Apart:
    """Lists and maps, with the items of those that are there only, in the order of the rows."""
    arrow, compute, count = _arrow(), _compute(), len(column)
    if name == "FIXED_SIZE_LIST":
        size = column.type.list_size
        starts = arrow.array([(column.offset + at) * size for at in range(count)], arrow.int64())
        sizes = arrow.repeat(arrow.scalar(size, arrow.int64()), count)
    elif name in _VIEWS:
        starts, sizes = column.offsets, column.sizes
    else:
        ends = column.offsets
        starts = ends.slice(0, count)
        sizes = compute.subtract(ends.slice(1), starts)
    zero = arrow.scalar(0, arrow.int64())
    lengths = compute.if_else(column.is_valid(), sizes.cast(arrow.int64()), zero)
    total = compute.sum(lengths).as_py() or 0
    follow = name not in _VIEWS and total == (compute.sum(sizes).as_py() or 0)
    first = starts[0].as_py() if count else 0
    items = column.values.slice(first, total) if follow else _gathered(plain(column.values, place), starts, lengths)
    return (
        _Apart("map", column, items.flatten(), lengths) if name == "MAP" else _Apart("list", column, [items], lengths)
    )


def _gathered(values: Any, starts: Any, lengths: Any) -> Any:
    """The items of lists, in the order of the lists: some overlap, or are null and have items."""
    ranges = zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
    rows = [row for start, length in ranges for row in range(start, start + length)]
    return _taken(values, _arrow().array(rows, _arrow().int64()))


def _taken(column: Any, rows: Any) -> Any:
    """Rows of a plain column, null where the row is: pyarrow's own function ends the process for some unions.

    Args:
        column: A plain ``pyarrow`` array.
        rows: ``pyarrow`` array of row numbers.
    """
    shape, column, children, lengths = _apart(column, "")
    arrow, compute = _arrow(), _compute()
    if shape == "leaf":
        return column.take(rows)
    if shape == "union":
        # A union has no nulls, but its members have.
        codes = compute.fill_null(_codes(column)[0].take(rows), arrow.scalar(column.type.type_codes[0], arrow.int8()))
        return _union(column.type, codes, [_taken(child, rows) for child in children])
    valid = compute.fill_null(column.is_valid().take(rows), arrow.scalar(False))
    if shape == "struct":
        return _nested(shape, column.type, valid, None, [_taken(child, rows) for child in children])
    starts = compute.fill_null(compute.subtract(compute.cumulative_sum(lengths), lengths).take(rows), 0)
    counts = compute.fill_null(lengths.take(rows), 0)
    return _nested(shape, column.type, valid, counts, [_gathered(child, starts, counts) for child in children])


def _runs(column: Any) -> list[int]:
    """The run of each row."""
    ends, at, row, stop = column.run_ends.to_pylist(), column.find_physical_offset(), column.offset, 0
    stop = row + len(column)
    runs: list[int] = []
    while row < stop:
        end = min(ends[at], stop)
        runs += [at] * (end - row)
        at, row = at + 1, end
    return runs


def _narrow(column: Any, name: str, _place: str) -> _Apart:
    arrow, target = _arrow(), _WIDE[name]
    try:
        return _Apart("leaf", column.cast(target))
    except arrow.ArrowNotImplementedError:  # views, in old versions
        return _Apart("leaf", arrow.array(column.to_pylist(), target))


_NESTED: Final[Mapping[str, Callable[[Any, str, str], _Apart]]] = {
    **dict.fromkeys(_WIDE, _narrow),
    **dict.fromkeys(("LIST", "LARGE_LIST", "FIXED_SIZE_LIST", "MAP", *_VIEWS), _lists_apart),
    **dict.fromkeys(("SPARSE_UNION", "DENSE_UNION"), _union_apart),
    **dict.fromkeys(("DICTIONARY", "RUN_END_ENCODED"), _decoded),
    "STRUCT": _struct_apart,
}


def _places(shape: str, kind: Any, place: str) -> list[str]:
    above = f"{place}." if place else ""
    if shape == "list":
        return [f"{place}[]"]
    if shape == "map":
        return [f"{above}key", f"{above}value"]
    return [f"{above}{kind.field(at).name}" for at in range(kind.num_fields)]


def _in(place: str, word: str = " in the column") -> str:
    return f"{word} {place}" if place else ""


@cache
def _type_names() -> dict[int, str]:
    names = vars(_arrow().lib)
    return {names[name]: name.removeprefix("Type_") for name in names if name.startswith("Type_")}


def _arrow() -> Any:
    return require("pyarrow", "arrow")


def _compute() -> Any:
    return require("pyarrow.compute", "arrow")
