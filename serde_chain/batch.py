"""Batches of records as Arrow columns: what a stage's batch form is given, and the loop that runs a chain over a batch.

A stage may offer a batch form (:attr:`serde_chain.base.Deserializer.batch_form`); one that does not is called record by
record. A batch form never has rules of its own: it finds the records that need work, and what it cannot do a column at
a time it leaves to the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from payload_stores.plugins import import_object, require
from serde_chain.base import Data, Stage
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.record import VALUE, Header, RecordContext

__all__ = ["Batch", "BatchForm", "BatchResult", "binary_column", "find_form", "header_lists", "marked_rows", "run"]

_MAX_BINARY_BYTES = (1 << 31) - 1


class BatchForm(Protocol):
    """A stage at work on whole columns; made with the stage as its only argument, once per chain."""

    def __call__(self, batch: Batch, /) -> Any:
        """Deserialize a batch.

        Args:
            batch: The records; those that cannot be read are reported to :meth:`Batch.fail`.

        Returns:
            A ``pyarrow.Array`` of as many rows, null where the data was null or could not be read.
        """


class BatchResult(NamedTuple):
    """What became of a batch.

    Attributes:
        values: ``pyarrow.Array``, null where the value was null or could not be read.
        headers: The headers without those that the stages have used, in the form in which they came.
        errors: For each row that could not be read, by its position from 0, why.
    """

    values: Any
    headers: Any
    errors: Mapping[int, SerializationError]


class Batch:
    """Records on their way through a chain.

    Args:
        values: The data: an Arrow array of bytes, chunked or not, or a sequence of bytes and None.
        headers: A list of headers (or None) per record, or an Arrow column ``list<struct<key, value>>``.
        topic: The topic, or one per record.
        field: ``key`` or ``value``.
        keys: The records' encoded keys, as ``values``.
        positions: Columns ``partition``, ``offset`` and ``timestamp``, where they are known.
    """

    def __init__(
        self,
        values: Any,
        headers: Any = None,
        *,
        topic: str | Sequence[str],
        field: str = VALUE,
        keys: Any = None,
        positions: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.arrow: Any = require("pyarrow", "arrow")
        self.compute: Any = require("pyarrow.compute", "arrow")
        self.errors: dict[int, SerializationError] = {}
        self.field = field
        self._column: Any = binary_column(values)
        self._objects: list[Any] | None = None
        self._keys = None if keys is None else binary_column(keys)
        self._topic = topic
        self._positions = positions or {}
        self._headers = _Headers(headers, self.arrow)
        self._contexts: dict[int, RecordContext] = {}
        for name, column in (("keys", self._keys), ("headers", headers), *self._positions.items()):
            if column is not None and len(column) != len(self):
                raise ConfigError(f"there are {len(column)} {name} for {len(self)} values")

    def __len__(self) -> int:
        return len(self._column) if self._objects is None else len(self._objects)

    @property
    def column(self) -> Any:
        """The data as a ``pyarrow`` array of bytes; records that failed are null."""
        if self._objects is not None:
            self._column, self._objects = binary_column(self._objects), None
        return self._column

    @property
    def objects(self) -> list[Any]:
        """The data as a list; records that failed are None."""
        if self._objects is None:
            self._objects = self._column.to_pylist()
        return self._objects

    def context(self, row: int) -> RecordContext:
        """The record around the data of a row, with headers that stages may change."""
        found = self._contexts.get(row)
        if found is None:
            found = self._contexts[row] = self._make_context(row)
        return found

    def rows_with_header(self, names: Iterable[str]) -> list[int]:
        """The rows that have a header of one of these names, in order."""
        return self._headers.rows_with(frozenset(names))

    def fail(self, row: int, error: SerializationError) -> None:
        """Give a record up; the others go on.

        Args:
            row: Its position.
            error: Why; the place is filled in where it is missing.
        """
        ctx = self.context(row)
        error.add_context(topic=ctx.topic, field=self.field, partition=ctx.partition, offset=ctx.offset, row=row)
        self.errors.setdefault(row, error)

    def each(
        self, call: Callable[[Any, RecordContext], Any], place: Callable[[Exception, Any], Exception]
    ) -> list[Any]:
        """Call a stage record by record.

        Args:
            call: The stage.
            place: Makes the error to report from what the stage raised and the record's context.

        Returns:
            What it gave, None for null records and for those that failed.

        Raises:
            Exception: ``place`` gave an error that is not a record's, as a missing dependency.
        """
        given: list[Any] = []
        for row, data in enumerate(self.objects):
            if data is None:
                given.append(None)
                continue
            ctx = self.context(row)
            try:
                given.append(call(data, ctx))
            except Exception as error:  # noqa: BLE001, any stage's, as where records are read one by one
                failure = place(error, ctx)
                if not isinstance(failure, SerializationError):
                    raise failure from failure.__cause__
                self.fail(row, failure)
                given.append(None)
        return given

    def take(self, column: Any) -> None:
        """Go on with the bytes that a batch form gave."""
        self._column, self._objects = column, None

    def take_objects(self, objects: list[Any]) -> None:
        """Go on with what a stage gave record by record."""
        self._objects = objects

    def headers_after(self) -> Any:
        """The headers as the stages have left them, in the form in which they came."""
        return self._headers.after({row: ctx.headers for row, ctx in self._contexts.items() if row not in self.errors})

    def _make_context(self, row: int) -> RecordContext:
        topic = self._topic if isinstance(self._topic, str) or self._topic is None else _plain(self._topic[row])
        key = None if self._keys is None else self._keys[row].as_py()
        positions = {name: _plain(column[row]) for name, column in self._positions.items()}
        return RecordContext(topic, self.field, self._headers.of(row), key, **positions)


class _Headers:
    """Headers of a batch; those of a row become a list only when somebody asks for them."""

    def __init__(self, source: Any, arrow: Any) -> None:
        self._arrow = arrow
        self._is_column = hasattr(source, "type")
        if self._is_column:
            source = source.combine_chunks() if hasattr(source, "combine_chunks") else source
            kind = source.type
            lists = arrow.types.is_list(kind) or arrow.types.is_large_list(kind)
            if not lists or not arrow.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
                raise ConfigError(f"headers are {kind}, expected list<struct<key: string, value: binary>>")
        self._source = source
        self._lists: list[list[Header] | None] | None = None

    def rows_with(self, names: frozenset[str]) -> list[int]:
        if self._source is None:
            return []
        if not self._is_column:
            return [
                row for row, found in enumerate(self._source) if found and any(name in names for name in _names(found))
            ]
        rows: list[int] = marked_rows(self._source, names).to_pylist()
        return rows

    def of(self, row: int) -> list[Header] | None:
        """A list of its own for a row."""
        if self._source is None:
            return None
        if self._is_column:
            if self._lists is None:
                self._lists = header_lists(self._source)
            return list(self._lists[row] or ()) or None
        found: Any = self._source[row]
        return list(found.items() if isinstance(found, Mapping) else found) if found else None

    def after(self, seen: Mapping[int, Any]) -> Any:
        if self._source is None:
            return None
        changed = {row: headers for row, headers in seen.items() if len(headers or ()) != len(self.of(row) or ())}
        if not changed:
            return self._source
        rows = [changed[row] if row in changed else self.of(row) for row in range(len(self._source))]
        if not self._is_column:
            return rows
        kind = self._source.type.value_type
        names = [kind.field(at).name for at in range(2)]
        found = [[dict(zip(names, pair, strict=True)) for pair in row] if row else None for row in rows]
        return self._arrow.array(found, type=self._source.type)


def _names(headers: Any) -> Iterable[str]:
    return headers if isinstance(headers, Mapping) else (name for name, _ in headers)


def marked_rows(headers: Any, names: Iterable[str]) -> Any:
    """Numbers of the rows that have a header of one of these names, as an Arrow array; ``headers`` is a column."""
    arrow: Any = require("pyarrow", "arrow")
    compute: Any = require("pyarrow.compute", "arrow")
    keys = headers.flatten().field(0)
    marked = compute.is_in(keys, value_set=arrow.array(sorted(names), type=keys.type))
    return compute.unique(compute.list_parent_indices(headers).filter(marked))


def header_lists(column: Any) -> list[list[Header] | None]:
    """The headers of each row of a column as pairs; None where there are none."""
    flat = column.flatten()
    pairs = zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True)
    return [
        None if count is None else [next(pairs) for _ in range(count)] for count in column.value_lengths().to_pylist()
    ]


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def binary_column(values: Any) -> Any:
    """An Arrow array of bytes out of what a user has.

    Args:
        values: A ``pyarrow`` array, chunked or not, of binary, large binary, binary view or string; or a sequence of
            bytes-like objects and None.

    Returns:
        A ``pyarrow`` ``BinaryArray`` or ``LargeBinaryArray``; the latter only where it came so, or the bytes need it.

    Raises:
        ConfigError: It is another type.
    """
    arrow: Any = require("pyarrow", "arrow")
    if isinstance(values, arrow.ChunkedArray):
        large = values.nbytes > _MAX_BINARY_BYTES
        values = (values.cast(arrow.large_binary()) if large else values).combine_chunks()
    if not isinstance(values, arrow.Array):
        found = [data if data is None or type(data) is bytes else bytes(data) for data in values]
        size = sum(len(data) for data in found if data is not None)
        return arrow.array(found, type=arrow.binary() if size <= _MAX_BINARY_BYTES else arrow.large_binary())
    kind, types = values.type, arrow.types
    if types.is_binary(kind) or types.is_large_binary(kind):
        return values
    if types.is_large_string(kind):
        return values.cast(arrow.large_binary())
    if types.is_string(kind) or types.is_null(kind) or types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return values.cast(arrow.binary())
    raise ConfigError(f"the values are {kind}, expected binary")


def find_form(stage: Any) -> BatchForm | None:
    """The batch form that a stage offers, or None."""
    path = getattr(stage, "batch_form", None)
    if path is None:
        return None
    make: Any = import_object(path, "batch form") if isinstance(path, str) else path
    form: BatchForm = make(stage)
    return form


def run(
    stages: Sequence[tuple[Any, BatchForm | None]],
    batch: Batch,
    place: Callable[[object, Exception, Any], Exception],
    *,
    fail_fast: bool,
) -> BatchResult:
    """Run a batch through the stages of a chain.

    Args:
        stages: Each stage with its batch form.
        batch: The records.
        place: Makes the error to report out of a stage, what it raised, and the record's context.
        fail_fast: Raise the error of the first record that a stage cannot read.

    Returns:
        The values in the Arrow type that the last stage gives, and what could not be read.

    Raises:
        SerializationError: With ``fail_fast``: a record cannot be read.
    """
    column: Any = None
    for at, (stage, form) in enumerate(stages):
        last = at == len(stages) - 1

        def placed(error: Exception, ctx: Any, stage: object = stage) -> Exception:
            return place(stage, error, ctx)

        known = set(batch.errors)
        if form is not None:
            column = form(batch)
            if not last:
                batch.take(column)
        else:
            objects = batch.each(stage, placed)
            if last:
                column = _finish(stage, objects, batch)
            batch.take_objects(objects)
        for row in batch.errors.keys() - known:
            place(stage, batch.errors[row], None)
        if batch.errors and fail_fast:
            raise batch.errors[min(batch.errors)]
    return BatchResult(batch.column if column is None else column, batch.headers_after(), batch.errors)


def _finish(stage: Any, objects: list[Any], batch: Batch) -> Any:
    """The last stage's objects in Arrow."""
    arrow = batch.arrow
    name = getattr(stage, "arrow_type_name", None)
    if name is None and isinstance(stage, Stage) and stage.gives is Data.BYTES:
        return binary_column(objects)
    if name is not None:
        kind = getattr(arrow, name)()
        return arrow.array([_fitting(value, kind, arrow) for value in objects], type=kind)
    if all(value is None or isinstance(value, (bytes, bytearray, memoryview)) for value in objects):
        return binary_column(objects)
    try:
        return arrow.array(objects)
    except (arrow.ArrowException, OverflowError) as error:
        raise DecodeError(
            f"what the stage gives has no common Arrow type: {error}",
            hint="Give the stage an arrow_type_name, or a batch form (serde_chain.base.Deserializer)",
        ) from error


def _fitting(value: Any, kind: Any, arrow: Any) -> Any:
    return str(value) if value is not None and arrow.types.is_string(kind) else value
