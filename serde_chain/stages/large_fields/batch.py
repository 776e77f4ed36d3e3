"""The batch form of ``large-fields``: looks only at marked records, and puts payloads into columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from payload_stores.errors import PayloadStoreError
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.arrow.columns import replaced, with_children, with_items
from serde_chain.arrow.downloads import BatchDownloads, fail
from serde_chain.base import SupportsFetch
from serde_chain.errors import SerializationError
from serde_chain.record import Context, remove_headers
from serde_chain.stages.large_fields.paths import MISSING, look_up, with_contents
from serde_chain.transfer import Transfer
from serde_chain.wire.large_fields import HEADER, FieldEntry, Path

# A union of several types is a struct with a field for each.
_MEMBER: Final = re.compile(r"member\d+")


class ReadsFields(SupportsFetch, Protocol):
    """The deserializer, as its batch form uses it."""

    def entries(self, ctx: Context | None) -> list[FieldEntry] | None:
        """The references that the header names."""

    def own_path(self, path: Path) -> Path | None:
        """A path by the reader's names; None if it is left out."""

    def checked(self, path: Path, content: Any, entry: FieldEntry, ctx: Context | None) -> Any:
        """The reference in a field."""

    def check_total(self, fields: Sequence[Any]) -> None:
        """Refuse too large a record."""

    def download(self, field: Any, ctx: Context | None) -> Transfer[Any]:
        """A transfer that resumes with a payload."""

    def contents(self, fields: Sequence[Any], payloads: Sequence[Any], ctx: Context | None) -> dict[Path, Any]:
        """The contents of fields."""


class _Marked(NamedTuple):
    """A record with references.

    Attributes:
        row: Its row.
        fields: Its references.
        size: Size of their payloads in bytes, as stored.
    """

    row: int
    fields: list[Any]
    size: int


class _Read(NamedTuple):
    """A record with its payloads.

    Attributes:
        row: Its row.
        contents: The contents of its fields.
        error: Why there are none.
    """

    row: int
    contents: dict[Path, Any]
    error: SerializationError | PayloadStoreError | None


class LargeFieldsBatch(BatchForm):
    """Fetches the fields of a batch, each distinct payload once.

    Args:
        stage: The stage.
        arrow_type: The type of the column, if it is known.
    """

    takes_columns = True

    def __init__(self, stage: ReadsFields, arrow_type: Any | None) -> None:
        self._stage = stage
        self._arrow_type = arrow_type

    @property
    def arrow_type(self) -> Any | None:
        """The type of the stage before, whose fields keep their types."""
        return self._arrow_type

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        (part,) = self.parts(batch, None)
        return part.column

    def parts(self, batch: Batch, most_bytes: int | None) -> Iterator[Batch]:
        """Read a batch in parts, fetching the payloads of the next parts ahead.

        Args:
            batch: The records, with a typed column.
            most_bytes: Approximate bytes of payloads per part; None for one part.
        """
        marked = list(self._marked(batch))
        downloads = BatchDownloads(
            [self._stage.download(field, batch.context(record.row)) for record in marked for field in record.fields],
            in_flight=self._stage.downloads_in_flight,
            max_bytes=None if most_bytes is None else self._stage.downloads_bytes,
            timeout_ms=self._stage.timeout_ms,
        )
        start, held, records = 0, 0, list[_Read]()
        for record in marked:
            if most_bytes is not None and records and held + record.size > most_bytes:
                yield self._part(batch, start, record.row, records, downloads)
                start, held, records = record.row, 0, []
            read = self._read(batch, record, downloads)
            # Stages for payloads may enlarge them many times.
            size = max(record.size, sum(map(len, read.contents.values())))
            if most_bytes is not None and records and held + size > most_bytes:
                yield self._part(batch, start, record.row, records, downloads)
                start, held, records = record.row, 0, []
            held += size
            records.append(read)
        yield self._part(batch, start, len(batch), records, downloads)

    def _marked(self, batch: Batch) -> Iterator[_Marked]:
        """The records with references; those with malformed headers have failed."""
        rows = batch.rows_with_header((HEADER,))
        if not rows:
            return
        cells = _cells_of(batch)
        for row in rows:
            if cells.is_null(row):  # failed, a tombstone, or JSON's null, which in a record reaches no further stage
                continue
            ctx = batch.context(row)
            fields: list[Any] = []
            try:
                entries = self._stage.entries(ctx)
                if entries is None:
                    continue  # a header without a value
                for entry in entries:
                    path = self._stage.own_path(entry.path)
                    if path is None or not (batch.columns is None or batch.columns.has(path)):
                        continue  # left out
                    field = self._stage.checked(path, cells.content(row, path), entry, ctx)
                    if field is not None:
                        fields.append(field)
                self._stage.check_total(fields)
            except (SerializationError, PayloadStoreError) as error:
                fail(batch, row, error)
                fields = []
            remove_headers(ctx, (HEADER,))
            yield _Marked(row, fields, sum(field.reference.size or 0 for field in fields))

    def _read(self, batch: Batch, record: _Marked, downloads: BatchDownloads) -> _Read:
        """A record with its contents, or their error."""
        payloads: list[Any] = []
        error: SerializationError | PayloadStoreError | None = None
        for _ in record.fields:  # all of them, since they are taken in order
            try:
                payloads.append(downloads.take())
            except (SerializationError, PayloadStoreError) as failure:
                error = error or failure
        if error is None:
            try:
                return _Read(record.row, self._stage.contents(record.fields, payloads, batch.context(record.row)), None)
            except (SerializationError, PayloadStoreError) as failure:
                error = failure
        return _Read(record.row, {}, error)

    def _part(self, batch: Batch, start: int, stop: int, records: Sequence[_Read], downloads: BatchDownloads) -> Batch:
        """Some of the records, with payloads in place of references."""
        part = batch.part(start, stop)
        cells = _cells_of(part)
        failed: dict[int, Any] = {}
        for record in records:
            row = record.row - start
            for path, content in record.contents.items():
                cells.put(row, path, content)
            if record.error is not None:
                fail(part, row, record.error)
            if row in part.errors:
                failed[row] = None
        column = cells.column()
        part.take(replaced(column, failed) if failed else column)
        downloads.let_go()
        return part


def _cells_of(batch: Batch) -> _Cells | _Texts:
    is_text = batch.arrow.types.is_string(batch.column.type) or batch.arrow.types.is_large_string(batch.column.type)
    return _Texts(batch.column) if is_text else _Cells(batch.column, batch.arrow)


class _Texts:
    """The cells of a column of JSON texts, by paths; only marked rows are parsed.

    Args:
        column: ``pyarrow`` array of strings.
    """

    def __init__(self, column: Any) -> None:
        self._column = column
        self._parsed: tuple[int, Any] | None = None  # of one row: parsed values are many times as large as their text
        self._contents: dict[int, dict[Path, Any]] = {}

    def is_null(self, row: int) -> bool:
        """Whether there is no value."""
        cell = self._column[row]
        return not cell.is_valid or cell.as_py().strip() == "null"

    def content(self, row: int, path: Path) -> Any:
        """The content of a cell; ``MISSING`` if there is none."""
        if self._parsed is None or self._parsed[0] != row:
            self._parsed = row, json.loads(self._column[row].as_py())
        return look_up(self._parsed[1], path)

    def put(self, row: int, path: Path, content: Any) -> None:
        """Replace the content of a cell."""
        self._contents.setdefault(row, {})[path] = content

    def column(self) -> Any:
        """The column with all replaced cells."""
        rows = {}
        for row, contents in sorted(self._contents.items()):
            value = with_contents(json.loads(self._column[row].as_py()), contents)
            rows[row] = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return replaced(self._column, rows)


class _Cells:
    """The cells of a column of structs, by paths.

    Args:
        column: ``pyarrow`` array of structs.
        arrow: The module ``pyarrow``.
    """

    def __init__(self, column: Any, arrow: Any) -> None:
        self._arrow = arrow
        self._arrays: dict[Path, Any] = {(): column}
        self._changes: dict[Path, dict[int, Any]] = {}

    def is_null(self, row: int) -> bool:
        """Whether there is no value."""
        return not self._arrays[()][row].is_valid

    def content(self, row: int, path: Path) -> Any:
        """The content of a cell; ``MISSING`` if there is none."""
        found = self._locate(row, path)
        return MISSING if found is None else self._arrays[found[0]][found[1]].as_py()

    def put(self, row: int, path: Path, content: Any) -> None:
        """Replace the content of a cell."""
        found = self._locate(row, path)
        if found is not None:
            array, at = found
            self._changes.setdefault(array, {})[at] = content

    def column(self) -> Any:
        """The column with all replaced cells."""
        return self._rebuilt(()) if self._changes else self._arrays[()]

    def _locate(self, row: int, path: Path) -> tuple[Path, int] | None:
        """The array of a cell, and its position in there."""
        at: int = row
        place: Path = ()
        types = self._arrow.types
        for step in path:
            array = self._arrays[place]
            if isinstance(step, int):
                place = self._branch(place, at, types.is_list, types.is_large_list)
                array = self._arrays[place]
                if not (types.is_list(array.type) or types.is_large_list(array.type)) or not array[at].is_valid:
                    return None
                offsets = array.offsets
                at, end = offsets[at].as_py() + step, offsets[at + 1].as_py()
                if at >= end:
                    return None
                place = self._child(place, -1)
                continue
            if not types.is_struct(array.type):
                return None
            if array.type.get_field_index(step) < 0 and _is_union(array.type):
                member = self._member(place, at, step)
                if member is None:
                    return None
                place = self._child(place, member)
                array = self._arrays[place]
            if array.type.get_field_index(step) < 0:
                return None
            place = self._child(place, step)
        return self._branch(
            place, at, types.is_binary, types.is_large_binary, types.is_string, types.is_large_string
        ), at

    def _branch(self, place: Path, at: int, *tests: Callable[[Any], bool]) -> Path:
        """The branch of a union with a value in a row, if it has one of some types; without it the union."""
        kind = self._arrays[place].type
        if self._arrow.types.is_struct(kind) and _is_union(kind):
            for field in kind:
                if any(test(field.type) for test in tests):
                    below = self._child(place, field.name)
                    if self._arrays[below][at].is_valid:
                        return below
        return place

    def _member(self, place: Path, at: int, name: str) -> str | None:
        """The branch of a union that a row has, if it has a field of a name."""
        array = self._arrays[place]
        for field in array.type:
            if self._arrow.types.is_struct(field.type) and field.type.get_field_index(name) >= 0:
                child = self._arrays[self._child(place, field.name)]
                if child[at].is_valid:
                    return str(field.name)
        return None

    def _child(self, place: Path, step: str | int) -> Path:
        below = (*place, step)
        if below not in self._arrays:
            array = self._arrays[place]
            self._arrays[below] = array.values if step == -1 else array.field(step)
        return below

    def _rebuilt(self, place: Path) -> Any:
        array = self._arrays[place]
        if place in self._changes:
            return replaced(array, dict(sorted(self._changes[place].items())))
        depth = len(place)
        below = {path[depth] for path in self._changes if path[:depth] == place and len(path) > depth}
        if not below:
            return array
        if not self._arrow.types.is_struct(array.type):
            return with_items(array, self._rebuilt((*place, -1)))
        children = {
            field.name: self._rebuilt((*place, field.name)) if field.name in below else array.field(field.name)
            for field in array.type
        }
        return with_children(array, children)


def _is_union(kind: Any) -> bool:
    return kind.num_fields > 0 and all(_MEMBER.fullmatch(field.name) for field in kind)
