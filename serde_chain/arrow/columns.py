"""Kafka's columns in Arrow: bytes and headers from users and Spark, inspected without an object per row."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.errors import ConfigError
from serde_chain.record import Header

_MAX_BINARY_BYTES: Final = (1 << 31) - 1


def binary_column(values: Any) -> Any:
    """Make an Arrow array of bytes.

    Args:
        values: A ``pyarrow`` array, chunked or not, of binary, large binary, binary view or string; or a sequence of
            bytes-like objects and None.

    Returns:
        A ``pyarrow`` ``BinaryArray`` or ``LargeBinaryArray``; the latter only if the input is, or needs it.

    Raises:
        ConfigError: It is another type.
    """
    arrow: Any = require("pyarrow", "arrow")
    if isinstance(values, arrow.ChunkedArray):
        large = values.nbytes > _MAX_BINARY_BYTES
        values = (values.cast(arrow.large_binary()) if large else values).combine_chunks()
    if not isinstance(values, arrow.Array):
        rows = [data if data is None or type(data) is bytes else bytes(data) for data in values]
        size = sum(len(data) for data in rows if data is not None)
        return arrow.array(rows, type=arrow.binary() if size <= _MAX_BINARY_BYTES else arrow.large_binary())
    kind, types = values.type, arrow.types
    if types.is_binary(kind) or types.is_large_binary(kind):
        return values
    if types.is_large_string(kind):
        return values.cast(arrow.large_binary())
    if types.is_string(kind) or types.is_null(kind) or types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return values.cast(arrow.binary())
    raise ConfigError(f"the values are {kind}, expected binary")


def cuts(column: Any, most_bytes: int) -> list[int]:
    """Where to cut a column of bytes into pieces of limited size, or of one row.

    Args:
        column: ``pyarrow`` array of bytes.
        most_bytes: The most bytes of a piece.

    Returns:
        The row after the last one of each piece.
    """
    if column.nbytes <= most_bytes:
        return [len(column)]
    compute: Any = require("pyarrow.compute", "arrow")
    ends: list[int] = []
    size = 0
    for row, length in enumerate(compute.binary_length(column).to_pylist()):
        size += length or 0
        if size > most_bytes and row > (ends[-1] if ends else 0):
            ends.append(row)
            size = length or 0
    return [*ends, len(column)]


def cuts_of_rows(column: Any, most_bytes: int) -> list[int]:
    """Where to cut a column of any type into pieces of about the same size.

    Args:
        column: ``pyarrow`` array.
        most_bytes: The most bytes of a piece, if its rows are of about the same size.

    Returns:
        The row after the last one of each piece.
    """
    count = len(column)
    rows = max(1, count * most_bytes // max(column.nbytes, 1))
    return [*range(rows, count, rows), count]


def views(column: Any) -> list[memoryview | None]:
    """The rows of a column as views of its memory: its scalars would be copies.

    Args:
        column: ``pyarrow`` array of binary or large binary.

    Returns:
        A view for each row; None for null.

    Example:
        >>> import pyarrow as pa
        >>> [view and bytes(view) for view in views(pa.array([b"first", None, b"third"])[1:])]
        [None, b'third']
    """
    arrow: Any = require("pyarrow", "arrow")
    if not len(column) or column.null_count == len(column):
        return [None] * len(column)
    _, offsets, data = column.buffers()
    numbers = memoryview(offsets).cast("B").cast("q" if arrow.types.is_large_binary(column.type) else "i")
    ends = numbers[column.offset : column.offset + len(column) + 1]
    whole = memoryview(data).cast("B")
    present = column.is_valid().to_pylist()
    return [whole[begin:end] if there else None for there, (begin, end) in zip(present, pairwise(ends), strict=True)]


def replaced(column: Any, rows: Mapping[int, Any]) -> Any:
    """A column with other values in some rows.

    Args:
        column: ``pyarrow`` array.
        rows: The values by row, in order of the rows: Python objects, or ``pyarrow`` arrays of one row.

    Returns:
        ``pyarrow`` array; of large binary if the size requires it.
    """
    if not rows:
        return column
    arrow: Any = require("pyarrow", "arrow")
    kind = column.type
    if arrow.types.is_binary(kind):
        size = column.nbytes + sum(len(data) for data in rows.values() if isinstance(data, bytes))
        kind = kind if size < _MAX_BINARY_BYTES else arrow.large_binary()
    pieces, after = [], 0
    for row, value in rows.items():
        if row > after:
            pieces.append(cast(column.slice(after, row - after), kind))
        pieces.append(value if isinstance(value, arrow.Array) else _row(value, kind))
        after = row + 1
    if after < len(column):
        pieces.append(cast(column.slice(after), kind))
    return pieces[0] if len(pieces) == 1 else arrow.concat_arrays(pieces)


def with_children(column: Any, children: Mapping[str, Any]) -> Any:
    """A column of structs with these fields only, null in the same rows.

    Args:
        column: ``pyarrow.StructArray``.
        children: ``pyarrow`` arrays by the names of its fields, in the order of the result.
    """
    arrow: Any = require("pyarrow", "arrow")
    fields = [column.type.field(name).with_type(child.type) for name, child in children.items()]
    return arrow.StructArray.from_arrays([*children.values()], fields=fields, mask=_nulls(column))


def with_items(column: Any, items: Any) -> Any:
    """A column of lists with other items, null in the same rows.

    Args:
        column: ``pyarrow`` array of lists or large lists.
        items: ``pyarrow`` array in place of ``column.values``.
    """
    arrow: Any = require("pyarrow", "arrow")
    of = arrow.large_list if arrow.types.is_large_list(column.type) else arrow.list_
    kind = of(column.type.value_field.with_type(items.type))
    # No cast, nor any new offsets: pyarrow 26 casts columns of nulls within lists to a wrong length.
    return arrow.Array.from_buffers(kind, len(column), column.buffers()[:2], offset=column.offset, children=[items])


def cast(column: Any, kind: Any) -> Any:
    """A column in another type, checked: pyarrow 26 casts columns of nulls within lists to a wrong length.

    Args:
        column: ``pyarrow`` array.
        kind: ``pyarrow.DataType``.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit, or the result is not valid: reading it would end the process.

    Example:
        >>> import pyarrow as pa
        >>> cast(pa.array([1]), pa.int8()).type
        DataType(int8)
    """
    if column.type == kind:
        return column
    made = column.cast(kind)
    made.validate()
    return made


def _nulls(column: Any) -> Any | None:
    return column.is_null() if column.null_count else None


def _row(value: Any, kind: Any) -> Any:
    """An array of one row; bytes are not copied."""
    arrow: Any = require("pyarrow", "arrow")
    width = {"binary": "i", "large_binary": "q"}.get(str(kind))
    if value is None or width is None:
        return arrow.array([value], kind)
    data = arrow.py_buffer(value)
    offsets = arrow.py_buffer(struct.pack(f"<2{width}", 0, data.size))
    return arrow.Array.from_buffers(kind, 1, [None, offsets, data])


def marked_rows(headers: Any, names: Iterable[str]) -> Any:
    """Numbers of the rows with a header of one of these names, as an Arrow array; ``headers`` is a column."""
    arrow: Any = require("pyarrow", "arrow")
    compute: Any = require("pyarrow.compute", "arrow")
    keys = headers.flatten().field(0)
    marked = compute.is_in(keys, value_set=arrow.array(sorted(names), type=keys.type))
    return compute.unique(compute.list_parent_indices(headers).filter(marked))


def header_lists(column: Any) -> list[list[Header] | None]:
    """The headers of each row of a column as pairs; None for a row without headers."""
    flat = column.flatten()
    pairs = zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True)
    return [
        None if count is None else [next(pairs) for _ in range(count)] for count in column.value_lengths().to_pylist()
    ]


class Headers:
    """Headers of a batch; a row's headers become a list only on request.

    Args:
        source: For each record, a sequence of headers (a list, an array, rows), a mapping or None; or an Arrow column
            ``list<struct<key, value>>``; or None if no record has any.

    Raises:
        ConfigError: The column is of another type.
    """

    def __init__(self, source: Any) -> None:
        self._arrow: Any = require("pyarrow", "arrow")
        self._is_column = isinstance(source, (self._arrow.Array, self._arrow.ChunkedArray))
        if self._is_column:
            source = source.combine_chunks() if isinstance(source, self._arrow.ChunkedArray) else source
            kind, types = source.type, self._arrow.types
            lists = types.is_list(kind) or types.is_large_list(kind)
            if not lists or not types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
                raise ConfigError(f"headers are {kind}, expected list<struct<key: string, value: binary>>")
        elif source is not None and not isinstance(source, (list, tuple)):
            source = list(source)  # a pandas.Series finds rows by its labels
        self._source = source
        self._lists: list[list[Header] | None] | None = None

    def part(self, start: int, stop: int) -> Headers:
        """The headers of some rows."""
        if self._source is None:
            return self
        part = Headers(self._source.slice(start, stop - start) if self._is_column else self._source[start:stop])
        part._lists = None if self._lists is None else self._lists[start:stop]
        return part

    def rows_with(self, names: frozenset[str]) -> list[int]:
        """The rows with a header of one of these names, in order."""
        if self._source is None:
            return []
        if not self._is_column:
            return [
                row
                for row, headers in enumerate(self._source)
                if headers is not None and not names.isdisjoint(name for name, _ in _pairs(headers))
            ]
        rows: list[int] = marked_rows(self._source, names).to_pylist()
        return rows

    def prepare(self) -> None:
        """Prepare for requests of every row."""
        if self._is_column and self._lists is None:
            self._lists = header_lists(self._source)

    def of(self, row: int) -> list[Header] | None:
        """A new list of a row's headers."""
        if self._source is None:
            return None
        if self._lists is not None:
            found = self._lists[row]
            return list(found) if found else None
        headers = self._source[row].as_py() if self._is_column else self._source[row]
        return None if headers is None else list(_pairs(headers)) or None

    def after(self, seen: Mapping[int, Any]) -> Any:
        """The headers in the form of the input, replaced in some rows; null or None for rows without headers."""
        changed = {row: headers or None for row, headers in sorted(seen.items()) if (headers or None) != self.of(row)}
        if self._source is None or not changed:
            return self._source
        if not self._is_column:
            return [changed[row] if row in changed else self.of(row) for row in range(len(self._source))]
        kind = self._source.type.value_type
        names = [kind.field(at).name for at in range(2)]
        rows = [headers and [dict(zip(names, pair, strict=True)) for pair in headers] for headers in changed.values()]
        made = self._arrow.array(rows, type=self._source.type)
        return replaced(self._source, {row: made.slice(at, 1) for at, row in enumerate(changed)})


def _pairs(headers: Any) -> Iterator[Header]:
    """A record's headers: a mapping, or a sequence of pairs, which have names (``key`` and ``value``) in Spark's rows.

    Raises:
        ConfigError: They are something else.
    """
    try:
        for header in headers.items() if isinstance(headers, Mapping) else headers:
            name, value = header.values() if isinstance(header, Mapping) else header
            yield name, value
    except (TypeError, ValueError):
        raise ConfigError(
            f"a record's headers are not pairs of name and value, but {type(headers).__name__}",
            hint="Pass a sequence of (name, bytes), a mapping, or None for each record",
        ) from None
