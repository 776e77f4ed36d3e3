"""The batch form of ``avro``: a column of records into an Arrow array, without a Python object per record.

Records are put in groups by the schema that they name, each group is read as one block (:mod:`.avro_container`), and
the rows are put back in order. What the fast reader does not read is read record by record as ever, with the same
result:

- schemas that it cannot read whole and strictly, decided once per pair of schemas (:class:`.avro_native.Native`);
- small groups, for which it is not worth its while;
- groups that it refuses: they are halved until the records that cannot be read are found.
"""

from __future__ import annotations

import copy
import logging
from functools import cache, partial
from typing import Any, Final, NamedTuple

from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.stages.avro.arrow import datafusion as avro_container
from serde_chain.stages.avro.arrow.forms import Native, UnreadableSchemaError
from serde_chain.stages.avro.arrow.plain import plain_schemas
from serde_chain.stages.avro.arrow.types import ArrowColumn
from serde_chain.stages.avro.bounds import MAX_EMPTY_ITEMS
from serde_chain.stages.avro.decimal import readable
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.stage import CONFLUENT, CONTAINER, HEADER, AvroDeserializer, AvroReader

__all__ = ["AvroBatch"]

# Records times columns, or bytes, from which on the fast reader is faster: a call of it takes one or two milliseconds.
_WORTHWHILE: Final = 3000
_WORTHWHILE_BYTES: Final = 256 << 10
_MANY_LEAVES: Final = 1000
_MAX_DECODERS: Final = 1000
# Bytes that are given to it at once; its memory is a multiple of this.
_BLOCK_BYTES: Final = 64 << 20
# Parts beyond those that the records' bytes pay for that are objects of Python's at once.
_OBJECTS: Final = 10 * MAX_EMPTY_ITEMS

_log = logging.getLogger("serde_chain")


class _Group(NamedTuple):
    """Records of one schema.

    Attributes:
        reader: How they are read.
        start: Where they begin behind their framing.
        rows: Their positions in the batch, as an Arrow array; None for all.
        values: The records.
    """

    reader: AvroReader
    start: int
    rows: Any
    values: Any


class AvroBatch(BatchForm):
    """Reads batches as the stage reads records.

    Args:
        stage: The stage.
    """

    def __init__(self, stage: AvroDeserializer) -> None:
        self._stage = stage
        # By the ids of schemas, which live as long as what is made of them here.
        self._columns: dict[int, ArrowColumn] = {}
        self._decoders: dict[tuple[int, int], _Decoder] = {}
        self._arrow: Any = None

    @property
    def arrow_type(self) -> Any:
        """The type of all columns; None where it is that of the records."""
        return None if self._stage.schema is None else self._column(self._stage.schema).type

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        self._arrow = batch.arrow
        if len(self._decoders) > _MAX_DECODERS:  # container files bring schemas along
            self._decoders.clear()
            self._columns.clear()
        column = batch.column
        groups = _Grouping(self._stage, batch).groups()
        if self._stage.framing == CONTAINER and self._stage.schema is None:
            groups = [group for group in groups if self._fits_arrow(group, batch)]
        target = self._target(groups)
        if target is None:
            return batch.arrow.nulls(len(column))
        found = [self._decoder(group.reader, target).decode(group, batch) for group in groups]
        if len(groups) == 1 and groups[0].rows is None:
            return found[0]
        kind = self._columns[id(target)].type
        rows = [group.rows for group in groups]
        present = batch.arrow.concat_arrays([*rows, batch.arrow.array([], batch.arrow.int64())])
        absent = batch.compute.is_in(batch.arrow.array(range(len(column)), batch.arrow.int64()), value_set=present)
        others = batch.compute.indices_nonzero(batch.compute.invert(absent)).cast(batch.arrow.int64())
        whole = batch.arrow.concat_arrays([*found, batch.arrow.nulls(len(others), kind)])
        order = batch.arrow.concat_arrays([present, others])
        return whole.take(batch.compute.sort_indices(order))

    def _fits_arrow(self, group: _Group, batch: Batch) -> bool:
        """Whether Arrow has a type for a schema that came with records; else these cannot be read, and no others."""
        try:
            self._column(group.reader.source)
        except ConfigError as error:
            for row in group.rows.to_pylist():
                batch.fail(row, DecodeError(f"the file's schema has no Arrow type: {error.message}"))
            return False
        return True

    def _target(self, groups: list[_Group]) -> AvroSchema | None:
        """The schema into which all records of a batch are read."""
        if self._stage.schema is not None:
            self._column(self._stage.schema)
            return self._stage.schema
        if not groups:
            return None
        sources = {id(group.reader.source): group.reader.source for group in groups}
        if len({str(self._column(source).type) for source in sources.values()}) > 1:
            # Without a schema of the reader's own it is the one that was registered last, which can read the others.
            newest = max(groups, key=lambda group: group.reader.registered or -1)
            return newest.reader.source
        return groups[0].reader.source

    def _column(self, schema: AvroSchema) -> ArrowColumn:
        found = self._columns.get(id(schema))
        if found is None:
            found = self._columns[id(schema)] = ArrowColumn(schema)
        return found

    def _decoder(self, reader: AvroReader, target: AvroSchema) -> _Decoder:
        key = id(reader.source), id(target)
        found = self._decoders.get(key)
        if found is None:
            found = self._decoders[key] = _Decoder(self._stage, reader, self._column(target))
        return found


class _Grouping:
    """Finds the schemas of a batch's records."""

    def __init__(self, stage: AvroDeserializer, batch: Batch) -> None:
        self._stage = stage
        self._batch = batch
        self._compute = batch.compute
        self._arrow = batch.arrow
        self._found: list[_Group] = []

    def groups(self) -> list[_Group]:
        """Groups of all records that name a schema which is known; the others have failed."""
        column, rows = self._batch.column, None
        if column.null_count:
            rows = self._where(self._compute.is_valid(column))
            column = column.take(rows)
        if not len(column):
            return []
        framing = self._stage.framing
        if framing == CONTAINER:
            self._by_file(rows, column)
        elif framing in {CONFLUENT, HEADER}:
            rows, column = self._by_header(rows, column)
            self._by_prefix(rows, column, 5)
        else:
            self._by_prefix(rows, column, 10 if framing == "single-object" else 0)
        return self._found

    def _by_file(self, rows: Any, column: Any) -> None:
        """Take records out of files of one each, and group them by the schemas that these bring."""
        found: dict[int, tuple[AvroReader, list[int], list[bytes]]] = {}
        for row, data in zip(range(len(column)) if rows is None else rows.to_pylist(), column, strict=True):
            try:
                reader, record = self._stage.open_file(data.as_py())
            except SerializationError as error:
                self._batch.fail(row, error)
                continue
            _, places, records = found.setdefault(id(reader.source), (reader, [], []))
            places.append(row)
            records.append(record)
        for reader, places, records in found.values():
            values = self._arrow.array(records, column.type)
            self._found.append(_Group(reader, 0, self._arrow.array(places, self._arrow.int64()), values))

    def _where(self, mask: Any) -> Any:
        return self._compute.indices_nonzero(mask).cast(self._arrow.int64())

    def _by_header(self, rows: Any, column: Any) -> tuple[Any, Any]:
        """Group the records that name their schema in a header; gives the others."""
        named = self._batch.rows_with_header((self._stage.header_name,))
        if not named:
            return rows, column
        rows = self._arrow.array(range(len(column)), self._arrow.int64()) if rows is None else rows
        in_header = self._compute.is_in(rows, value_set=self._arrow.array(named, self._arrow.int64()))
        by_key: dict[bytes, list[int]] = {}
        for place in self._where(in_header).to_pylist():
            headers = self._batch.context(rows[place].as_py()).headers
            pairs = headers.items() if isinstance(headers, dict) else headers or ()
            last = [value for name, value in pairs if name == self._stage.header_name][-1]
            by_key.setdefault(last.encode() if isinstance(last, str) else last or b"", []).append(place)
        for places in by_key.values():
            self._group(self._arrow.array(places, self._arrow.int64()), rows, column)
        others = self._where(self._compute.invert(in_header))
        return rows.take(others), column.take(others)

    def _by_prefix(self, rows: Any, column: Any, size: int) -> None:
        """Group records by the bytes in front of them."""
        if not len(column):
            return
        if not size:
            self._group(None, rows, column)
            return
        encoded = self._compute.binary_slice(column, 0, size).dictionary_encode()
        prefixes = encoded.dictionary.to_pylist()
        # Sorted once, and not searched for each prefix: each bad record may have one of its own.
        order = self._compute.sort_indices(encoded.indices).cast(self._arrow.int64())
        counts = self._compute.value_counts(encoded.indices).field("counts").to_pylist()
        stop = 0
        for prefix, count in zip(prefixes, counts, strict=True):
            start, stop = stop, stop + count
            places = None if len(prefixes) == 1 else order.slice(start, count)
            if prefix[:1] == b"\1" and size == 5 and self._stage.framing in {CONFLUENT, HEADER}:
                # A GUID, of which this is only the beginning.
                inner = column if places is None else column.take(places)
                within = rows if places is None else places if rows is None else rows.take(places)
                self._by_prefix(within, inner, 17)
            else:
                self._group(places, rows, column)

    def _group(self, places: Any, rows: Any, column: Any) -> None:
        """Take the records at some places, which all name the same schema; or give them up."""
        values = column if places is None else column.take(places)
        if places is not None:
            rows = places if rows is None else rows.take(places)
        first = 0 if rows is None else rows[0].as_py()
        try:
            reader, start = self._stage.locate(values[0].as_py(), self._batch.context(first))
        except SerializationError as error:
            for row in range(len(values)) if rows is None else rows.to_pylist():
                self._batch.fail(row, copy.copy(error))
            return
        self._found.append(_Group(reader, start, rows, values))


class _Decoder:
    """Reads records of one schema into one type."""

    def __init__(self, stage: AvroDeserializer, reader: AvroReader, column: ArrowColumn) -> None:
        self._stage = stage
        self._column = column
        same = reader.source.parsed == column.schema.parsed
        writer, target = plain_schemas(reader.source, None if same else column.schema)
        self._reader = AvroReader(reader.source, readable(writer), target)
        # Compiled for the first group that may be worth it: container files may bring a schema each.
        self._native = cache(partial(self._compile, writer, target))

    def _compile(self, writer: Any, target: Any) -> Native | None:
        if not self._reader.is_bounded:
            return None
        try:
            return Native(writer, target, self._column.type_as_read)
        except UnreadableSchemaError as error:
            _log.debug("%s is read record by record: %s", self._reader.source.name, error)
            return None

    def decode(self, group: _Group, batch: Batch) -> Any:
        """The records in Arrow; those that cannot be read are null, and reported to the batch."""
        found: list[Any] = []
        size = group.values.nbytes
        step = len(group.values) if size <= _BLOCK_BYTES else max(1, len(group.values) * _BLOCK_BYTES // size)
        for begin in range(0, len(group.values), step):
            found += self._block(group, batch, begin, min(step, len(group.values) - begin))
        return found[0] if len(found) == 1 else batch.arrow.concat_arrays(found)

    def _block(self, group: _Group, batch: Batch, begin: int, count: int) -> list[Any]:
        values = group.values.slice(begin, count)
        few = count * _MANY_LEAVES < _WORTHWHILE and values.nbytes < _WORTHWHILE_BYTES
        native = None if few else self._native()
        small = native is None or (count * native.leaves < _WORTHWHILE and values.nbytes < _WORTHWHILE_BYTES)
        if native is None or small or not avro_container.is_usable():
            source = self._reader.source
            free = MAX_EMPTY_ITEMS if source.unbounded else max(source.excess, 1)
            step = max(_OBJECTS // free, 1)
            pieces = [(at, min(step, begin + count - at)) for at in range(begin, begin + count, step)]
            return [self._one_by_one(group, batch, *piece) for piece in pieces]
        try:
            return [native.read(values, group.start)]
        except avro_container.NotReadError as error:
            _log.debug("%d records of %s are read again: %s", count, self._reader.source.name, error)
        if count == 1:
            return [self._one_by_one(group, batch, begin, count)]
        half = count // 2
        return [*self._block(group, batch, begin, half), *self._block(group, batch, begin + half, count - half)]

    def _one_by_one(self, group: _Group, batch: Batch, begin: int, count: int) -> Any:
        decode, start = self._reader.decode, group.start
        values: list[Any] = []
        for at, data in enumerate(group.values.slice(begin, count).to_pylist(), begin):
            value = None
            try:
                value = decode(data, start)
            except SerializationError as error:
                batch.fail(self._row(group, at), error)
            values.append(value)
        return batch.collect(values, self._column.of, lambda at: self._row(group, begin + at))

    def _row(self, group: _Group, at: int) -> int:
        return at if group.rows is None else int(group.rows[at].as_py())
