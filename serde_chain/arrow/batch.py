"""Batches of records as Arrow columns: input and output of a stage's batch form.

A stage may offer a batch form (:class:`SupportsBatchForm`); otherwise it is called record by record. A batch form has
no rules beyond those of its stage: it finds the records that need work, and leaves to the stage what it cannot do by
columns.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from payload_stores.errors import release
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.arrow.columns import Headers, binary_column, cuts, replaced
from serde_chain.arrow.selection import Columns
from serde_chain.errors import ConfigError, DecodeError, ForeignFormatError, SerializationError, without_data
from serde_chain.record import KEY, VALUE, RecordContext


class BatchForm(ABC):
    """A stage at work on whole columns; see :class:`SupportsBatchForm`.

    Attributes:
        takes_columns: Whether it works on the typed column of the stage before it, instead of bytes.
    """

    takes_columns: bool = False

    @property
    def arrow_type(self) -> Any | None:
        """The ``pyarrow.DataType`` of the result, if it is known before the first record."""
        return None

    @abstractmethod
    def __call__(self, batch: Batch, /) -> Any:
        """Deserialize a batch.

        Args:
            batch: The records; undecodable ones are reported to :meth:`Batch.fail`.

        Returns:
            A ``pyarrow.Array`` with a row per record, null where the data is null or undecodable.
        """

    def at_once(self, values: Any, topic: str, /) -> Any | None:
        """Deserialize a batch of good records without headers, by a shorter way than a call; override to have one.

        Args:
            values: The records, in any form; not changed.
            topic: Their topic.

        Returns:
            What a call would return; None if the batch must be passed to a call.
        """
        return None

    def parts(self, batch: Batch, most_bytes: int | None) -> Iterator[Batch]:
        """Deserialize a batch in parts; override if the result may be much larger than the batch.

        Args:
            batch: The records.
            most_bytes: Approximate limit of the bytes of a part; None for one part.

        Yields:
            The batch's parts (:meth:`Batch.part`), in order, each with the stage's results as its column.
        """
        for piece in batch.pieces(most_bytes):
            piece.take(self(piece))
            yield piece


@runtime_checkable
class SupportsBatchForm(Protocol):
    """A stage that can work on whole Arrow columns (``DeserializerChain.to_arrow``)."""

    def batch_form(self) -> BatchForm | None:
        """The stage's batch form; imported and made here.

        Returns:
            The form, requested once per chain; None if the stage, as configured, is called record by record.

        Raises:
            MissingDependencyError: The extra ``arrow`` is not installed.
        """


class Untouched(BatchForm):
    """The form of a stage that returns bytes unchanged."""

    def __call__(self, batch: Batch, /) -> Any:
        """Return the column."""
        return batch.column


class BatchResult(NamedTuple):
    """The result of a batch.

    Attributes:
        values: ``pyarrow.Array``, null where the value is null or undecodable.
        headers: The headers without those that the stages used, in the form of the input.
        errors: The error of each undecodable row, by its position from 0.
    """

    values: Any
    headers: Any
    errors: dict[int, SerializationError]

    def checked(self) -> Any:
        """The values; raises the first error if there is one, and drops all, which would hold this frame's batch."""
        if self.errors:
            first = self.errors[min(self.errors)]
            self.errors.clear()
            try:
                raise first
            finally:
                del first
        return self.values


class Batch:
    """Records on their way through a chain.

    Args:
        values: The data: an Arrow array of bytes, chunked or not, or a sequence of bytes and None.
        headers: A list of headers (or None) per record, or an Arrow column ``list<struct<key, value>>``.
        topic: The topic, or one per record; None if unknown.
        field: ``key`` or ``value``.
        keys: The records' encoded keys, in the form of ``values``.
        positions: Columns ``partition``, ``offset`` and ``timestamp``, if known.
        columns: Names of the result's columns, or dotted paths; None for all.

    Attributes:
        first: Position of the first record in the whole batch, if this is a part.
        columns: The columns of the result; None for all.
        errors: The error of each undecodable row.

    Raises:
        ConfigError: A column is of a wrong type or length.

    Example:
        >>> from serde_chain import DeserializerChain
        >>> chain = DeserializerChain.from_config({"value.deserializers": "zstd, string"})
        >>> result = chain.read_batch(Batch([b"not compressed", None], topic="alerts"))
        >>> result.values.to_pylist(), list(result.errors)
        ([None, None], [0])
    """

    def __init__(
        self,
        values: Any,
        headers: Any = None,
        *,
        topic: str | Sequence[str] | None,
        field: str = VALUE,
        keys: Any = None,
        positions: Mapping[str, Sequence[Any]] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.columns = None if columns is None else Columns(columns)
        self.arrow: Any = require("pyarrow", "arrow")
        self.compute: Any = require("pyarrow.compute", "arrow")
        self.first = 0
        self.errors: dict[int, SerializationError] = {}
        self.field = field
        self._column: Any = binary_column(values)
        self._objects: list[Any] | None = None
        self._keys = None if keys is None else binary_column(keys)
        self._topic = topic
        self._positions = dict(positions or {})
        self._headers = Headers(headers)
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
    def is_listed(self) -> bool:
        """Whether the data is a list at present; the other form is a copy."""
        return self._objects is not None

    @property
    def objects(self) -> list[Any]:
        """The data as a list; records that failed are None."""
        if self._objects is None:
            self._objects = self._column.to_pylist()
        return self._objects

    def part(self, start: int, stop: int) -> Batch:
        """Some of the records, in their current state."""
        if (start, stop) == (0, len(self)):
            return self
        part = copy.copy(self)
        part._cut(start, stop)  # noqa: SLF001, of the same class
        return part

    def _cut(self, start: int, stop: int) -> None:
        rows = range(start, stop)
        self.first += start
        if self._objects is None:
            self._column = self._column.slice(start, stop - start)
        else:
            self._column, self._objects = None, self._objects[start:stop]
        self._keys = None if self._keys is None else self._keys.slice(start, stop - start)
        self._topic = self._topic if isinstance(self._topic, str) or self._topic is None else self._topic[start:stop]
        self._positions = {name: column[start:stop] for name, column in self._positions.items()}
        self._headers = self._headers.part(start, stop)
        self.errors = {row - start: self.errors[row] for row in rows if row in self.errors} if self.errors else {}
        self._contexts = {row - start: self._contexts[row] for row in rows if row in self._contexts}

    def pieces(self, most_bytes: int | None) -> Iterator[Batch]:
        """The records in parts of at most ``most_bytes``, or of one record; in one part where that is None."""
        if most_bytes is None or self._objects is not None:  # objects were made in parts already
            yield self
            return
        start = 0
        for stop in cuts(self._column, most_bytes):
            yield self.part(start, stop)
            start = stop

    def context(self, row: int) -> RecordContext:
        """The record around the data of a row, with headers that stages may change."""
        ctx = self._contexts.get(row)
        if ctx is None:
            ctx = self._contexts[row] = self._make_context(row)
        return ctx

    @property
    def place(self) -> RecordContext | None:
        """The common part of all contexts; None if topics differ, or none is known."""
        return RecordContext(self._topic, self.field) if isinstance(self._topic, str) else None

    def rows_with_header(self, names: Iterable[str]) -> list[int]:
        """The rows with a header of one of these names, in order."""
        return self._headers.rows_with(frozenset(names))

    def fail(self, row: int, error: SerializationError) -> None:
        """Mark a record as failed; the others continue.

        Args:
            row: Its position.
            error: The error; its place is filled in. It is kept, so it must not hold the record's data.
        """
        let_through(error)
        release(error)
        if isinstance(error, ForeignFormatError):
            error.data = None
        # Not by a context, which costs several times as much: thousands of records may fail in the same way.
        place = self._place(row)
        if place.get("offset") is None:
            place["row"] = self.first + row
        error.add_context(field=self.field, **place)
        self.errors.setdefault(row, error)

    def change_errors(
        self, markers: Iterable[str], change: Callable[[SerializationError, RecordContext], SerializationError]
    ) -> None:
        """Replace the errors of the records that have a header of one of these names."""
        if self.errors:
            for row in self.errors.keys() & set(self.rows_with_header(markers)):
                self.errors[row] = change(self.errors[row], self.context(row))

    def collect(
        self, values: list[Any], make: Callable[[list[Any]], Any], row: Callable[[int], int] = lambda at: at
    ) -> Any:
        """Put Python values into an array; values that do not fit its type fail.

        Args:
            values: The values, or None.
            make: Makes a ``pyarrow.Array`` of values.
            row: The row of a value by its place, unless they are equal.
        """
        misfits = (self.arrow.ArrowException, OverflowError, ValueError, TypeError)
        try:
            return make(values)
        except misfits:
            for at, value in enumerate(values):
                try:
                    make([value])
                except misfits as error:
                    values[at] = None
                    self.fail(row(at), DecodeError(f"the record does not fit the column's type: {without_data(error)}"))
            return make(values)

    def take(self, column: Any) -> None:
        """Replace the data by a batch form's array.

        Raises:
            DecodeError: It does not have a row per record.
        """
        if len(column) != len(self):
            raise wrong_rows(len(column), len(self))
        self._column, self._objects = column, None

    def take_objects(self, objects: list[Any]) -> None:
        """Replace the data by a stage's results, record by record."""
        self._objects = objects

    def prepare(self) -> None:
        """Prepare for a stage that examines every record."""
        self._headers.prepare()
        self._positions = {name: _as_list(column) for name, column in self._positions.items()}
        self._topic = self._topic if isinstance(self._topic, str) else _as_list(self._topic)

    def headers_after(self) -> Any:
        """The headers after the stages, in the form of the input."""
        return self._headers.after({row: ctx.headers for row, ctx in self._contexts.items() if row not in self.errors})

    def result(self) -> BatchResult:
        """The records after the stages."""
        return BatchResult(self.column, self.headers_after(), self.errors)

    def keys_batch(self) -> Batch:
        """The keys of these records, for the chain of keys."""
        return Batch(self.keys_after(), self.headers_after(), topic=self._topic, field=KEY, positions=self._positions)

    def keys_after(self) -> Any:
        """The encoded keys; those of fetched whole records replace the placeholders'. None if no keys were given."""
        if self._keys is None:
            return None
        return replaced(self._keys, self._changed("key", self._keys))

    def timestamps_after(self) -> Any:
        """The timestamps in ms; those of fetched whole records replace the placeholders'. None if none were given."""
        column = self._positions.get("timestamp")
        changed = {} if column is None else self._changed("timestamp", column)
        if not isinstance(column, list):
            return replaced(column, changed)
        return [changed.get(row, moment) for row, moment in enumerate(column)]

    def _changed(self, name: str, column: Any) -> dict[int, Any]:
        values = ((row, getattr(ctx, name)) for row, ctx in sorted(self._contexts.items()) if row not in self.errors)
        return {row: value for row, value in values if value != _plain(column[row])}

    def _make_context(self, row: int) -> RecordContext:
        key = None if self._keys is None else self._keys[row].as_py()
        return RecordContext(field=self.field, headers=self._headers.of(row), key=key, **self._place(row))

    def _place(self, row: int) -> dict[str, Any]:
        """Topic and positions of a record."""
        topic: Any = self._topic  # None if unknown, which stages check
        if not isinstance(topic, str) and topic is not None:
            topic = _plain(topic[row])
        return {"topic": topic, **{name: _plain(column[row]) for name, column in self._positions.items()}}


def wrong_rows(rows: int, records: int) -> DecodeError:
    """The error of a batch form that returned the wrong number of rows; no record is at fault."""
    return DecodeError(
        f"the stage's batch form gave {rows} rows for {records} records",
        hint="A batch form gives a row for each record, null where it cannot be read",
    ).marked(about_record=False)


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


def _as_list(column: Any) -> Any:
    return column.to_pylist() if hasattr(column, "to_pylist") else column
