"""Tables as records: columns into the first stage of a chain, without a Python object per row where possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from payload_stores.options import nearest
from payload_stores.plugins import require
from serde_chain.arrow.columns import binary_column, cuts_of_rows, views
from serde_chain.arrow.nested import has_equal_keys, objects, plain
from serde_chain.base.kinds import is_same_work, typed_stage
from serde_chain.errors import ConfigError, EncodeError, SerializationError
from serde_chain.record import KEY, Context, Header, RecordContext

_PART_BYTES: Final = 8 << 20
_GROWTH: Final = 8
# Values with a larger average are passed on as views of the table.
_LARGE_BYTES: Final = 1 << 16


class ArrowRecords(NamedTuple):
    """Records of a table.

    Attributes:
        values: The encoded values, a ``pyarrow.ChunkedArray`` of binary; null where the row is null.
        headers: The headers that stages have added, ``list<struct<key: string, value: binary>>``; None without any.
    """

    values: Any
    headers: Any


class ColumnWriter(Protocol):
    """Writes whole columns."""

    def write(self, values: Any, /) -> tuple[Any, list[int]]:
        """Write a column.

        Args:
            values: A ``pyarrow.Array``.

        Returns:
            A ``pyarrow.BinaryArray`` with a record per row, null where the row is null; and the rows that are not
            taken, for which the stage must be called.

        Raises:
            ValueError: The column is not taken.
        """


@runtime_checkable
class SupportsColumns(Protocol):
    """A serializer of objects that may write Arrow columns (``SerializerChain.from_arrow``)."""

    def column_writer(self, ctx: Context | None) -> ColumnWriter | None:
        """The writer of columns, with the result of calls of the stage.

        Args:
            ctx: The record around each value; only its topic counts.

        Returns:
            The writer; None if the stage, as configured, must be called for each record.

        Raises:
            SerializationError: The registry must be queried, and does not answer.
        """

    def row_converter(self, column: Any, ctx: Context | None) -> Callable[[Any], Any] | None:
        """A function from pyarrow's Python value of a row, with maps as dictionaries, to the stage's input.

        Args:
            column: A ``pyarrow.Array`` with values.
            ctx: The record around each value; only its topic counts.

        Returns:
            The function; None if the stage takes the values as they are.

        Raises:
            EncodeError: The stage would silently change a value.
            SerializationError: The registry must be queried, and does not answer.
        """


def arrays_of(table: Any, part_bytes: int = _PART_BYTES) -> Iterator[Any]:
    """The rows of a table in parts: structs of its columns, or the values of a single column.

    Args:
        table: Any table or column with the Arrow PyCapsule interface: of pyarrow, Polars, DuckDB, pandas.
        part_bytes: Size of a part, whose rows become objects at once.

    Yields:
        ``pyarrow.Array``, of types that all stages know: not of views, dictionaries and large types.

    Raises:
        ConfigError: It is neither.
        EncodeError: The table cannot be converted: a column has values of several types, for example.
    """
    arrow: Any = require("pyarrow", "arrow")
    if isinstance(table, (arrow.Table, arrow.RecordBatch)):
        # In old versions, an empty table has no such array.
        column = table.to_struct_array() if len(table) else arrow.array([], arrow.struct(list(table.schema)))
    elif isinstance(table, (arrow.Array, arrow.ChunkedArray)):
        column = table
    elif hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        column = _exported(table, arrow)
    else:
        raise ConfigError(
            f"a table was expected, not {type(table).__qualname__}",
            hint="Pass a table or column of pyarrow, Polars, DuckDB or pandas; collect() a lazy frame; produce() takes "
            "single records",
        )
    before = 0
    for chunk in column.chunks if isinstance(column, arrow.ChunkedArray) else [column]:
        for piece in _plain_pieces(chunk, part_bytes, before):
            start = 0
            for stop in cuts_of_rows(piece, part_bytes):
                yield piece.slice(start, stop - start)
                start = stop
        before += len(chunk)


def _plain_pieces(chunk: Any, part_bytes: int, before: int) -> Iterator[Any]:
    """A chunk without dictionaries and views, whose rows may share a value of megabytes: by pieces of its real size."""
    if plain(chunk.slice(0, 0)).type == chunk.type:
        yield chunk
        return
    start, rows = 0, 1
    while start < len(chunk) or not start:
        piece = _plain_piece(chunk, start, rows, before)
        yield piece
        if not len(piece):
            return
        start += len(piece)
        rows = max(1, min(_GROWTH * rows, rows * part_bytes // max(piece.nbytes, 1)))


def _plain_piece(chunk: Any, start: int, rows: int, before: int) -> Any:
    try:
        return plain(chunk.slice(start, rows))
    except EncodeError:
        for row in range(start, start + rows):
            try:
                plain(chunk.slice(row, 1))
            except EncodeError as error:
                raise error.add_context(row=before + row) from None
        raise


def _exported(table: Any, arrow: Any) -> Any:
    try:
        return arrow.chunked_array(table) if hasattr(table, "__arrow_c_stream__") else arrow.array(table)
    except (arrow.ArrowException, ValueError) as error:
        # Arrow's message may quote a value; its second one names the column. pandas names columns only.
        is_safe = len(error.args) > 1 or not isinstance(error, arrow.ArrowException)
        problem = error.args[-1] if is_safe and error.args else type(error).__name__
    raise EncodeError(
        f"the {type(table).__qualname__} cannot be converted to Arrow: {problem}",
        hint="Give each column one type and a unique name",
    )


def columns_first(stage: object, column: Any, ctx: Context) -> Any | None:
    """A column written by a stage as a whole; None if it must be called for each row."""
    if not isinstance(stage, SupportsColumns) or not is_same_work(stage, "column_writer"):
        return None
    writer = stage.column_writer(ctx)
    if writer is None or has_equal_keys(column):  # refused with its row
        return None
    try:
        written, left = writer.write(column)
    except ValueError:
        return None
    return None if left else written


def listed(values: Any) -> list[Any]:
    """A row each: of a column of bytes, or of a list."""
    return values if isinstance(values, list) else rows_of(None, values, None)


def rows_of(stage: object, column: Any, ctx: Context | None) -> list[Any]:
    """The rows of a column as a stage takes them: bytes, or Python objects.

    Args:
        stage: The stage that determines their type; None if there is none.
        column: A ``pyarrow.Array``.
        ctx: The record around each value; only its topic counts.

    Raises:
        EncodeError: A date or time is out of Python's range, or the stage would silently change a value; with its row.
    """
    types: Any = require("pyarrow.types", "arrow")
    if types.is_binary(column.type):
        if column.nbytes < _LARGE_BYTES * len(column):
            return column.to_pylist()  # type: ignore[no-any-return]
        return views(column)  # large values are not copied
    try:
        return objects_for(stage, column, ctx)
    except EncodeError:
        row = _first_misfit(stage, column, ctx)
        try:
            objects_for(stage, column.slice(row, 1), ctx)
        except EncodeError as error:
            raise error.add_context(row=row) from error.__cause__
        raise


def _first_misfit(stage: object, column: Any, ctx: Context | None) -> int:
    """The first row of a column that a stage refuses, by bisection: a call costs more than most rows."""
    start, count = 0, len(column)
    while count > 1:
        half = count // 2
        try:
            objects_for(stage, column.slice(start, half), ctx)
        except EncodeError:
            count = half
        else:
            start, count = start + half, count - half
    return start


def objects_for(stage: object, column: Any, ctx: Context | None, place: str = "") -> list[Any]:
    """The rows of a column as Python objects that a stage takes.

    Args:
        stage: As for :func:`rows_of`.
        column: A ``pyarrow.Array`` of other values than bytes.
        ctx: As for :func:`rows_of`.
        place: The column's name, for errors.

    Raises:
        EncodeError: A value is out of Python's range, or the stage would silently change it.
        SerializationError: The registry must be queried, and does not answer.
    """
    convert = None
    if isinstance(stage, SupportsColumns) and column.null_count < len(column):
        convert = stage.row_converter(column, ctx)
    items = objects(column, place)
    return items if convert is None else [None if item is None else convert(item) for item in items]


def chunked(columns: Sequence[Any]) -> Any:
    """Columns of bytes, or lists of them, one after the other."""
    arrow: Any = require("pyarrow", "arrow")
    arrays = list(map(binary_column, columns))
    large = any(arrow.types.is_large_binary(array.type) for array in arrays)
    kind = arrow.large_binary() if large else arrow.binary()
    return arrow.chunked_array([array.cast(kind) for array in arrays], kind)


def key_rows(column: Any, name: str | None, stages: Sequence[object], topic: str) -> Iterable[Any]:
    """The keys of a table's rows.

    Args:
        column: The rows, structs.
        name: The column of keys; None without keys.
        stages: The stages that keys go through.
        topic: The topic.

    Raises:
        ConfigError: There is no such column.
        SerializationError: A key does not fit; or the registry must be queried, and does not answer.
    """
    if name is None:
        return repeat(None, len(column))
    types: Any = require("pyarrow.types", "arrow")
    names = [field.name for field in column.type] if types.is_struct(column.type) else []
    if name not in names:
        near = nearest(name, names)
        raise ConfigError(
            f"there is no column {name} of keys",
            hint=f"Did you mean {near}?" if near else f"Known: {', '.join(names[:20]) or 'none'}",
        )
    try:
        return rows_of(typed_stage(stages), column.field(name), RecordContext(topic, KEY))
    except SerializationError as error:
        raise error.add_context(topic=topic, field=KEY)  # noqa: B904  the same error


def header_column(headers: Sequence[Sequence[Header] | None]) -> Any | None:
    """Headers of records as a column; None if no record has any."""
    if not any(headers):
        return None
    arrow: Any = require("pyarrow", "arrow")
    pair = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    rows = [[{"key": name, "value": _bytes(value)} for name, value in row] if row else None for row in headers]
    return arrow.chunked_array([arrow.array(rows, arrow.list_(pair))])


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
