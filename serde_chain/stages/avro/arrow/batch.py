"""The batch form of ``avro``: a column of records into an Arrow array.

With the compiled part (:mod:`.native_reader`), no record of an ordinary schema becomes a Python object. Without it,
large batches need no Python object per record: records are grouped by the schema that they name, each group is read as
one block by the fast reader (:mod:`.fast_reader`), and the rows are put back in order. The following are read record by
record, with the same result; large ``bytes`` fields bypass both readers (:mod:`.cut`):

- batches and groups too small for the fast reader's startup cost, and all with ``avro.arrow.reader`` = ``record``;
- groups with too few parts for their size;
- schemas that it cannot read completely and strictly, decided once per schema pair (:class:`.compiler.FastSchema`);
- groups that it refuses: they are halved until the undecodable records are isolated.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from itertools import repeat
from operator import methodcaller
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.arrow.selection import Columns
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.prefetch import Prefetch
from serde_chain.record import Context
from serde_chain.schemas.framing import GLUE
from serde_chain.schemas.parts import FREE_PARTS, MOST_FIELDS, Budget
from serde_chain.schemas.schema_id import is_compressed
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.arrow import fast_reader
from serde_chain.stages.avro.arrow.compiler import FastSchema, UnreadableSchemaError
from serde_chain.stages.avro.arrow.cut import Cutter
from serde_chain.stages.avro.arrow.narrow import narrowed
from serde_chain.stages.avro.arrow.native_reader import NativeReader
from serde_chain.stages.avro.arrow.types import ArrowColumn
from serde_chain.stages.avro.decimal import readable
from serde_chain.stages.avro.native import Native
from serde_chain.stages.avro.reader import CONTAINER, RECORD_KEY, SINGLE_OBJECT, AvroReader, FindsReaders
from serde_chain.stages.avro.resolution import rewritten
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.transfer import Transfer

__all__ = ["AvroBatch"]

_MAX_DECODERS: Final = 1000
# Bytes passed to the fast reader at once; its memory is a multiple of this.
_BLOCK_BYTES: Final = 64 << 20
# From this mean size in bytes on, a record may have few parts for its size.
_LARGE_RECORD: Final = 2048
# Parts beyond those paid for by the records' bytes that may be Python objects at once.
_OBJECTS: Final = 10 * FREE_PARTS
# Length of a fingerprint with the bytes before it.
_SINGLE_OBJECT_BYTES: Final = 10
_COMPRESSED: Final = b"\x03\x05"
# Concurrent registry queries.
_IN_FLIGHT: Final = 8

# A batch of at least so many bytes, or of more than so many records, may be worth the fast reader.
_MUCH: Final = 256 << 10
_FEW: Final = 100

_log = logging.getLogger("serde_chain")


def is_worthwhile(count: int, size: int) -> bool:
    """Whether the number and size of records justify the fast reader's startup cost.

    Measured: it is faster from about 170 records of 20 fields and 250 bytes, and from 750 of 3 fields and 28 bytes:
    if all but the first hundred have 20 KB. Few large records are slow to decode too.
    """
    return size >= _MUCH or (count > _FEW and size * (count - _FEW) >= 20_000 * count)


def _size(column: Any) -> int:
    """The size of a column in bytes; of a few small records, of their buffer: ``nbytes`` takes ten times as long."""
    data = column.buffers()[2]
    held = 0 if data is None else data.size
    size: int = held if held < _MUCH and len(column) <= _FEW else column.nbytes
    return size


class _Place(NamedTuple):
    """The way to read a record, and the start of its body."""

    reader: AvroReader
    start: int


# The decoder of a record, and the start of its body; None if it is null, or has failed.
_Way = tuple[Callable[..., Any] | None, int]


class _Group(NamedTuple):
    """Records of one schema.

    Attributes:
        reader: The way to read them.
        start: The start of their bodies, after the framing.
        rows: Their positions in the batch, as an Arrow array; None for all.
        values: The records.
    """

    reader: AvroReader
    start: int
    rows: Any
    values: Any


class AvroBatch(BatchForm):
    """Reads batches with the stage's results.

    Args:
        stage: The stage.
        may_be_fast: Whether the fast reader may be used.
        native: The compiled part, if it is used.
    """

    def __init__(self, stage: FindsReaders, *, may_be_fast: bool = True, native: Native | None = None) -> None:
        self._stage = stage
        self._may_be_fast = may_be_fast
        self._native = native
        self._frames = stage.registry_framing
        single = _SINGLE_OBJECT_BYTES if stage.framing == SINGLE_OBJECT else 0
        # Length of the first bytes by which most records are compared, and the headers that count before them.
        self._first_bytes = single if self._frames is None else self._frames.first_bytes
        self._header_names = () if self._frames is None else self._frames.header_names
        # By `id()` of the schemas, which live as long as these entries.
        self._columns: dict[int, ArrowColumn] = {}
        self._decoders: dict[tuple[int, int], _Decoder] = {}
        # Each with the schema for which it was made.
        self._narrowed: dict[tuple[int, tuple[str, ...]], tuple[AvroSchema, AvroSchema]] = {}

    @property
    def arrow_type(self) -> Any:
        """The type of all columns; None if it depends on the records."""
        return None if self._stage.schema is None else self._column(self._stage.schema).type

    @property
    def refusal(self) -> str | None:
        """Why the compiled part does not read the configured schema; None if it does, or if the records name theirs."""
        schema = self._stage.schema
        if schema is None or self._native is None:
            return None
        try:
            return self._decoder(AvroReader(schema, schema.readable, None), schema).refusal
        except ConfigError as error:
            return error.message

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        if len(self._decoders) > _MAX_DECODERS:  # container files bring their schemas
            self._decoders.clear()
            self._columns.clear()
            self._narrowed.clear()
        if self._stage.framing == RECORD_KEY:
            return self._in_groups(batch)
        if self._stage.framing == GLUE:
            self._unpack(batch)
        if self._is_mixed(batch):
            return self._one_by_one(batch)
        if self._native is not None:
            alike = self._alike(batch, batch.objects if batch.is_listed else batch.column)
            if alike is not None:
                return alike
        has_fast = self._native is not None or (self._may_be_fast and fast_reader.is_usable())
        if has_fast and is_worthwhile(len(batch), _size(batch.column)):
            return self._in_groups(batch)
        return self._one_by_one(batch)

    def _is_mixed(self, batch: Batch) -> bool:
        """Whether one schema id may mean several schemas, in the topics of a batch."""
        return self._stage.is_scoped and self._place(batch) is None

    def _place(self, batch: Batch) -> Context | None:
        """What a registry may be asked with; None without one, or for several topics."""
        return None if self._frames is None else batch.place

    def _unpack(self, batch: Batch) -> None:
        """Undo the compression of Glue's framing, so that all readers see plain records."""
        if not batch.is_listed and not batch.compute.any(_starts_with(batch, _COMPRESSED)).as_py():
            return
        records = list(batch.objects)
        for row, data in enumerate(records):
            if data is not None and is_compressed(data):
                try:
                    records[row] = self._stage.unpacked(data)
                except SerializationError as error:
                    batch.fail(row, error)
                    records[row] = None
        batch.take_objects(records)

    def size_of(self, prefix: bytes) -> int:
        """Length of the prefix that begins with these first bytes; 0 if records have none."""
        return self._first_bytes if self._frames is None else self._frames.size(prefix)

    @property
    def first_bytes(self) -> int:
        """Number of the first bytes by which most records are compared."""
        return self._first_bytes

    def rows_named_in_headers(self, batch: Batch) -> list[int]:
        """The rows whose headers name their schemas."""
        return batch.rows_with_header(self._header_names) if self._header_names else []

    def in_headers(self, ctx: Context) -> Hashable | None:
        """How a record's headers name its schema, for comparisons."""
        return None if self._frames is None else self._frames.in_headers(ctx)

    def open_file(self, data: bytes) -> tuple[AvroReader, bytes]:
        """The way to read the only record of a container file, and its bytes.

        Raises:
            DecodeError: The data is not a container file, or Arrow has no type for its schema.
        """
        reader, record = self._stage.open_file(data)
        self._check_column(reader.source)
        return reader, record

    def _one_by_one(self, batch: Batch) -> Any:
        if self._stage.framing == CONTAINER:
            records, places = self._opened(batch)
        else:
            alike = self._alike(batch, batch.objects)
            if alike is not None:
                return alike
            records, places = batch.objects, self._located(batch)
        readers = {id(place.reader): place.reader for place in places if place is not None}
        target = self._target(readers.values(), batch.columns)
        if target is None:
            return batch.arrow.nulls(len(batch))
        decoders = {key: self._decoder(reader, target) for key, reader in readers.items()}
        ways: Sequence[_Way] = [
            (None, 0) if place is None else (decoders[id(place.reader)].decode, place.start) for place in places
        ]
        step = min((decoder.records_at_once for decoder in decoders.values()), default=1)
        rows, column = range(len(records)), self._column(target)
        pieces = [
            _read(batch, column, rows[at : at + step], records[at : at + step], ways[at : at + step])
            for at in range(0, max(len(records), 1), step)
        ]
        return _joined(batch, pieces)

    def _alike(self, batch: Batch, values: Any) -> Any | None:
        """A batch of good records of one known schema, as most are; None for all others.

        Args:
            batch: The batch.
            values: Its data, as a list or an array.
        """
        size = self._first_bytes
        first = values[0] if len(values) else None
        if first is not None and not isinstance(values, list):
            first = first.as_py()
        if first is None or self._stage.framing == CONTAINER or self._is_mixed(batch):
            return None
        prefix = first[:size]
        if self.size_of(prefix) != size or self.rows_named_in_headers(batch):
            return None
        place = self._place(batch)
        if self._stage.question(first, place) is not None:
            return None
        try:
            reader, start = self.located(first, place)
            target = self._stage.schema or reader.latest or reader.source
            decoder = self._decoder(reader, self._narrow(target, batch.columns))
            return decoder.alike(values, start, prefix)
        except (SerializationError, ValueError, TypeError, OverflowError, batch.arrow.ArrowException) as error:
            let_through(error)
            return None

    def _opened(self, batch: Batch) -> tuple[list[bytes | None], list[_Place | None]]:
        """The records of files with one record each."""
        records: list[bytes | None] = [None] * len(batch)
        places: list[_Place | None] = [None] * len(batch)
        for row, data in enumerate(batch.objects):
            if data is not None:
                try:
                    reader, records[row] = self.open_file(data)
                    places[row] = _Place(reader, 0)
                except SerializationError as error:
                    batch.fail(row, error)
        return records, places

    def _located(self, batch: Batch) -> list[_Place | None]:
        """The place of each record; None for nulls and failed records."""
        size, named = self._first_bytes, frozenset(self.rows_named_in_headers(batch))
        # Each schema name is looked up once, even if the lookup fails: a registry may be slow to answer.
        known: dict[Any, _Place | SerializationError] = {}
        mixed, common = self._is_mixed(batch), self._place(batch)
        places: list[_Place | None] = []
        refused = cache(partial(self._ask_ahead, batch, named, size))
        for row, data in enumerate(batch.objects):
            if data is None:
                places.append(None)
                continue
            place = None if mixed or row in named else known.get(data[:size])
            if place is None:
                ctx = batch.context(row) if mixed or row in named else common
                if mixed:
                    known = {}
                place = self._locate(data, data[:size], ctx, known, refused)
            if isinstance(place, SerializationError):
                batch.fail(row, copy.copy(place))
                place = None
            places.append(place)
        return places

    def _ask_ahead(self, batch: Batch, named: frozenset[int], size: int) -> dict[Any, SerializationError]:
        """Query all unknown schemas concurrently; returns the errors by the queries' keys."""
        objects = batch.objects
        others = ((row, data) for row, data in enumerate(objects) if data is not None and row not in named)
        rows = {data[: self.size_of(data[:size])]: row for row, data in others}
        questions: dict[Any, Transfer[Any]] = {}
        for row in (*rows.values(), *named):
            data = objects[row]
            question = None if data is None else self._stage.question(data, batch.context(row))
            if question is not None:
                questions[question.key] = question
        prefetch = Prefetch(methodcaller("run"), in_flight=_IN_FLIGHT)
        refused = {}
        for ahead in prefetch.add(questions.values()):
            try:
                prefetch.finish(ahead)
            except SerializationError as error:
                let_through(error)
                refused[ahead.transfer.key] = error
        return refused

    def _locate(
        self,
        data: bytes,
        prefix: bytes,
        ctx: Context | None,
        known: dict[Any, _Place | SerializationError],
        refused: Callable[[], dict[Any, SerializationError]],
    ) -> _Place | SerializationError:
        in_headers = None if ctx is None else self.in_headers(ctx)
        key: Any = data[: self.size_of(prefix)] if in_headers is None else (in_headers,)
        place = known.get(key)
        if place is None:
            question = self._stage.question(data, ctx)
            place = None if question is None else refused().get(question.key)
            try:
                place = place or _Place(*self.located(data, ctx))
            except SerializationError as error:
                let_through(error)
                place = error
            known[key] = place
        return place

    def located(self, data: bytes, ctx: Context | None) -> tuple[AvroReader, int]:
        """The way to read a record, and the start of its body.

        Raises:
            DecodeError: The record names no schema, an unknown one, or one that cannot be a column's.
            SchemaRegistryError: The registry is down, or does not know the schema.
        """
        reader, start = self._stage.locate(data, ctx)
        self._check_column(reader.latest or reader.source)
        return reader, start

    def _check_column(self, schema: AvroSchema) -> None:
        """Fail a record whose own schema determines the column and has no Arrow type; others have other schemas."""
        if self._stage.schema is None:
            try:
                self._column(schema)
            except ConfigError as error:
                raise DecodeError(f"the record's schema has no Arrow type: {error.message}", hint=error.hint) from error

    def _in_groups(self, batch: Batch) -> Any:
        column = batch.column
        groups = _Grouping(self, self._stage, batch).groups()
        target = self._target([group.reader for group in groups], batch.columns)
        if target is None:
            return batch.arrow.nulls(len(column))
        arrays = [self._decoder(group.reader, target).read(group, batch) for group in groups]
        if len(groups) == 1 and groups[0].rows is None:
            return arrays[0]
        kind = self._column(target).type
        rows = [group.rows for group in groups]
        present = batch.arrow.concat_arrays([*rows, batch.arrow.array([], batch.arrow.int64())])
        absent = batch.compute.is_in(batch.arrow.array(range(len(column)), batch.arrow.int64()), value_set=present)
        others = batch.compute.indices_nonzero(batch.compute.invert(absent)).cast(batch.arrow.int64())
        whole = batch.arrow.concat_arrays([*arrays, batch.arrow.nulls(len(others), kind)])
        order = batch.arrow.concat_arrays([present, others])
        return whole.take(batch.compute.sort_indices(order))

    def _target(self, readers: Iterable[AvroReader], columns: Columns | None) -> AvroSchema | None:
        """The schema to read all records of a batch into."""
        target = self._stage.schema or self._common(list(readers))
        return None if target is None else self._narrow(target, columns)

    def _narrow(self, schema: AvroSchema, columns: Columns | None) -> AvroSchema:
        """The part of a schema that the batch's columns need."""
        if columns is None:
            return schema
        key = id(schema), columns.names
        pair = self._narrowed.get(key)
        if pair is None:
            pair = self._narrowed[key] = schema, narrowed(schema, columns)
        return pair[1]

    def _common(self, readers: list[AvroReader]) -> AvroSchema | None:
        """The schema of one of the readers that can read the records of all."""
        if not readers:
            return None
        latest = [reader.latest for reader in readers if reader.latest is not None]
        if latest:
            return latest[-1]
        sources = {id(reader.source): reader.source for reader in readers}
        if len(sources) > 1 and len({str(self._column(source).type) for source in sources.values()}) > 1:
            # Without a reader schema, use the one registered last, which can read the others.
            return max(readers, key=lambda reader: reader.registered or -1).source
        return readers[0].source

    def _column(self, schema: AvroSchema) -> ArrowColumn:
        column = self._columns.get(id(schema))
        if column is None:
            column = self._columns[id(schema)] = ArrowColumn(schema)
        return column

    def _decoder(self, reader: AvroReader, target: AvroSchema) -> _Decoder:
        key = id(reader.source), id(target)
        decoder = self._decoders.get(key)
        if decoder is None:
            decoder = self._decoders[key] = _Decoder(reader, self._column(target), self._native)
        return decoder


class _Grouping:
    """Groups a batch's records by schema."""

    def __init__(self, form: AvroBatch, stage: FindsReaders, batch: Batch) -> None:
        self._form = form
        self._stage = stage
        self._batch = batch
        self._compute = batch.compute
        self._arrow = batch.arrow
        self._groups: list[_Group] = []

    def groups(self) -> list[_Group]:
        """Groups of all records with a known schema; the others have failed."""
        column, rows = self._batch.column, None
        if column.null_count:
            rows = self._where(self._compute.is_valid(column))
            column = column.take(rows)
        if not len(column):
            return []
        framing = self._stage.framing
        if framing == CONTAINER:
            self._by_file(rows, column)
        elif framing == RECORD_KEY:
            self._by_record_key(rows, column)
        else:
            rows, column = self._by_header(rows, column)
            self._by_prefix(rows, column, self._form.first_bytes)
        return self._groups

    def _by_file(self, rows: Any, column: Any) -> None:
        """Extract the records from files of one each, and group them by the files' schemas."""
        by_schema: dict[int, tuple[AvroReader, list[int], list[bytes]]] = {}
        for row, data in zip(range(len(column)) if rows is None else rows.to_pylist(), column, strict=True):
            try:
                reader, record = self._form.open_file(data.as_py())
            except SerializationError as error:
                self._batch.fail(row, error)
                continue
            _, places, records = by_schema.setdefault(id(reader.source), (reader, [], []))
            places.append(row)
            records.append(record)
        for reader, places, records in by_schema.values():
            values = self._arrow.array(records, column.type)
            self._groups.append(_Group(reader, 0, self._arrow.array(places, self._arrow.int64()), values))

    def _where(self, mask: Any) -> Any:
        return self._compute.indices_nonzero(mask).cast(self._arrow.int64())

    def _by_header(self, rows: Any, column: Any) -> tuple[Any, Any]:
        """Group the records that name their schema in a header; return the others."""
        named = self._form.rows_named_in_headers(self._batch)
        if not named:
            return rows, column
        rows = self._arrow.array(range(len(column)), self._arrow.int64()) if rows is None else rows
        in_header = self._compute.is_in(rows, value_set=self._arrow.array(named, self._arrow.int64()))
        by_key: dict[Hashable, list[int]] = {}
        for place in self._where(in_header).to_pylist():
            by_key.setdefault(self._form.in_headers(self._batch.context(rows[place].as_py())), []).append(place)
        without_value = by_key.pop(None, [])
        for places in by_key.values():
            self._group(self._arrow.array(places, self._arrow.int64()), rows, column)
        others = self._arrow.concat_arrays([
            self._where(self._compute.invert(in_header)), self._arrow.array(without_value, self._arrow.int64()),
        ])  # fmt: skip
        return rows.take(others), column.take(others)

    def _by_record_key(self, rows: Any, column: Any) -> None:
        """Group records by their keys."""
        keys = self._batch.keys_after()
        if keys is None:
            self._group(None, rows, column)
            return
        keys = keys if rows is None else keys.take(rows)
        encoded = keys.fill_null(b"").dictionary_encode()
        for _, places in self._alike(encoded):
            self._group(places, rows, column)

    def _alike(self, encoded: Any) -> Iterator[tuple[bytes, Any]]:
        """The values of a dictionary array, and the places of each; None for all."""
        names = encoded.dictionary.to_pylist()
        # Sorted once instead of searched per value: each bad record may have one of its own.
        order = self._compute.sort_indices(encoded.indices).cast(self._arrow.int64())
        counts = self._compute.value_counts(encoded.indices).field("counts").to_pylist()
        stop = 0
        for name, count in zip(names, counts, strict=True):
            start, stop = stop, stop + count
            yield name, None if len(names) == 1 else order.slice(start, count)

    def _by_prefix(self, rows: Any, column: Any, size: int) -> None:
        """Group records by their prefixes."""
        if not len(column):
            return
        if not size:
            self._group(None, rows, column)
            return
        encoded = self._compute.binary_slice(column, 0, size).dictionary_encode()
        for prefix, places in self._alike(encoded):
            whole = self._form.size_of(prefix) if size == self._form.first_bytes else size
            if whole > size:
                # This is only the start of a longer id.
                inner = column if places is None else column.take(places)
                within = rows if places is None else places if rows is None else rows.take(places)
                self._by_prefix(within, inner, whole)
            else:
                self._group(places, rows, column)

    def _group(self, places: Any, rows: Any, column: Any) -> None:
        """Group the records at some places, which all name the same schema; or fail them."""
        values = column if places is None else column.take(places)
        if places is not None:
            rows = places if rows is None else rows.take(places)
        first = 0 if rows is None else rows[0].as_py()
        try:
            reader, start = self._form.located(values[0].as_py(), self._batch.context(first))
        except SerializationError as error:
            let_through(error)
            for row in range(len(values)) if rows is None else rows.to_pylist():
                self._batch.fail(row, copy.copy(error))
            return
        self._groups.append(_Group(reader, start, rows, values))


class _Decoder:
    """Reads records of one schema into one type.

    Attributes:
        decode: Reads a record; see :attr:`AvroReader.decode`.
        records_at_once: Maximum number of records whose values are Python objects at once.
        refusal: Why the compiled part, which is used otherwise, does not read the records; None if it does.
    """

    refusal: str | None = None

    def __init__(self, reader: AvroReader, column: ArrowColumn, native: Native | None) -> None:
        self._column = column
        self._source = reader.source
        self._reader = reader
        same = reader.source.parsed == column.schema.parsed
        way = rewritten(reader.source, None if same else column.schema)
        self._writer, self._target = way.writer, way.target
        writer = readable(self._writer)
        self.decode = AvroReader(
            reader.source,
            writer,
            way.target,
            None,
            way.problems,
            reader.budget,
            native,
            way.skips_blindly,
            into=None if same else column.schema,
            is_raw=reader.is_raw,
        ).decode
        self._native = self._compiled(native)
        free = FREE_PARTS if reader.source.unbounded else max(reader.source.excess, 1)
        self.records_at_once = max(_OBJECTS // free, 1)

    def _compiled(self, native: Native | None) -> NativeReader | None:
        if native is None:
            return None
        if self._source.unbounded:
            self.refusal = "a few bytes may be any number of values"
            return None
        if self._reader.is_raw:
            self.refusal = "a record is its bytes, without Avro's length"
            return None
        try:
            return NativeReader(native, self._writer, self._target, self._column)
        except ValueError as error:
            self.refusal = str(error)
            _log.debug("%s is not read by the compiled part: %s", self._source.name, error)
            return None

    def alike(self, values: Any, start: int, prefix: bytes) -> Any | None:
        """Read good records of this schema; None if there are others.

        Args:
            values: The records, as a list or an array.
            start: The start of their bodies.
            prefix: The bytes with which a record of this schema begins.

        Raises:
            DecodeError: A record is unreadable.
        """
        if self._native is not None and self._is_bounded(values):
            array, left = self._native.read(values, start, prefix)
            return None if left or self._column.moments.refused(array) else array
        if not isinstance(values, list) or len(values) > self.records_at_once:
            return None
        if None in values or not all(map(methodcaller("startswith", prefix), values)):
            return None
        decode = self.decode
        array = self._column.as_read([decode(data, start) for data in values])
        return None if self._column.moments.refused(array) else self._column.in_microseconds(array)

    @cached_property
    def _weight(self) -> int:
        return avro_bounds.weight(self._source.parsed, self._source.named)

    @cached_property
    def _fast_schema(self) -> FastSchema | None:
        """Compiled for the first worthwhile group: container files may bring one schema each."""
        # The fast reader's schema has no names: types used twice are expanded twice.
        if self._weight > MOST_FIELDS or self._reader.is_raw:
            return None
        try:
            return FastSchema(self._writer, self._target, self._column.type_as_read)
        except UnreadableSchemaError as error:
            _log.debug("%s is read record by record: %s", self._source.name, error)
            return None

    @cached_property
    def _cutter(self) -> Cutter | None:
        """For large fields; None if records must be checked first, or with too many types, as it has no names."""
        if self._source.unbounded or self._weight > MOST_FIELDS or self._reader.is_raw:
            return None
        return Cutter(self._writer, self._target)

    def read(self, group: _Group, batch: Batch) -> Any:
        """The records in Arrow; unreadable ones are null, and reported to the batch."""
        array = self._read_all(group, batch)
        rows = group.rows
        return _without_refused(batch, self._column, array, lambda at: at if rows is None else rows[at].as_py())

    def _read_all(self, group: _Group, batch: Batch) -> Any:
        if self._native is not None and self._is_bounded(group.values):
            return self._read_natively(self._native, group, batch)
        cut = None if self._cutter is None else self._cutter.cut(group.values, group.start)
        if cut is not None:
            failed = len(batch.errors)
            array = self._read(group._replace(start=0, values=cut.records), batch)
            # An unreadable record would leave its fields behind.
            restored = cut.restored(array) if len(batch.errors) == failed else None
            if restored is not None:
                return restored
        return self._read(group, batch)

    def _read_natively(self, native: NativeReader, group: _Group, batch: Batch) -> Any:
        pieces: list[Any] = []
        for begin, count in _blocks(group.values):
            array, left = native.read(group.values.slice(begin, count), group.start)
            if left:
                # What the compiled part does not take: read by the others, and put in its place.
                places = batch.arrow.array(left, batch.arrow.int64())
                rows = batch.compute.add(places, begin)
                rows = rows if group.rows is None else group.rows.take(rows)
                others = group._replace(rows=rows, values=group.values.slice(begin, count).take(places))
                instead = _joined(batch, list(self._one_by_one(others, batch, 0, len(left))))
                order = list(range(count))
                for at, place in enumerate(left):
                    order[place] = count + at
                array = batch.arrow.concat_arrays([array, instead]).take(batch.arrow.array(order, batch.arrow.int64()))
            pieces.append(array)
        return _joined(batch, pieces)

    def _read(self, group: _Group, batch: Batch) -> Any:
        pieces: list[Any] = []
        for begin, count in _blocks(group.values):
            pieces += self._block(group, batch, begin, count)
        return _joined(batch, pieces)

    def _block(self, group: _Group, batch: Batch, begin: int, count: int) -> list[Any]:
        values = group.values.slice(begin, count)
        may_be_fast = is_worthwhile(count, values.nbytes) and self._is_bounded(values) and fast_reader.is_usable()
        fast = self._fast_schema if may_be_fast and self._has_parts(values, group.start) else None
        if fast is None:
            return list(self._one_by_one(group, batch, begin, begin + count))
        try:
            return [fast.read(values, group.start)]
        except fast_reader.NotReadError as error:
            _log.debug("%d records of %s are read again: %s", count, self._source.name, error)
        if count == 1:
            return list(self._one_by_one(group, batch, begin, begin + count))
        half = count // 2
        return [*self._block(group, batch, begin, half), *self._block(group, batch, begin + half, count - half)]

    def _has_parts(self, values: Any, start: int) -> bool:
        """Whether large records have so many parts that the fast reader pays, by the first one.

        Measured: it takes 1.5 ms, and 0.65 µs per KB more than the record path, which takes 0.45 µs more per part.
        """
        count, size = len(values), values.nbytes
        if size < _LARGE_RECORD * count:
            return True
        enough = Budget(int((1500 / count + 0.65e-3 * size / count) / 0.45))
        try:
            avro_bounds.check_bounds(self._source.parsed, self._source.named, values[0].as_py(), start, enough)
        except ValueError:  # it has more, or is unreadable
            return True
        return False

    def _is_bounded(self, values: Any) -> bool:
        """Whether no record needs a check first; lengths count if the budget depends on them."""
        longest = 0
        if self._reader.budget.most is not None:
            if isinstance(values, list):
                longest = max((len(data) for data in values if data is not None), default=0)
            else:
                compute = require("pyarrow.compute", "arrow")
                longest = compute.max(compute.binary_length(values)).as_py() or 0
        return self._reader.is_bounded(longest)

    def _one_by_one(self, group: _Group, batch: Batch, begin: int, end: int) -> Iterator[Any]:
        rows = range(begin, end) if group.rows is None else group.rows.slice(begin, end - begin).to_pylist()
        for at in range(0, end - begin, self.records_at_once):
            some = rows[at : at + self.records_at_once]
            records = group.values.slice(begin + at, len(some)).to_pylist()
            yield _read(batch, self._column, some, records, repeat((self.decode, group.start)))


def _starts_with(batch: Batch, prefix: bytes) -> Any:
    return batch.compute.equal(batch.compute.binary_slice(batch.column, 0, len(prefix)), prefix)


def _blocks(values: Any) -> Iterator[tuple[int, int]]:
    """First row and number of rows of pieces of limited size."""
    rows, size = len(values), values.nbytes
    step = rows if size <= _BLOCK_BYTES else max(1, rows * _BLOCK_BYTES // size)
    for begin in range(0, rows, step):
        yield begin, min(step, rows - begin)


def _read(
    batch: Batch, column: ArrowColumn, rows: Sequence[int], records: Iterable[bytes | None], ways: Iterable[_Way]
) -> Any:
    """Read records one by one."""
    values: list[Any] = []
    for row, data, (decode, start) in zip(rows, records, ways, strict=False):
        value = None
        if decode is not None:
            try:
                value = decode(data, start)
            except SerializationError as error:
                batch.fail(row, error)
        values.append(value)
    array = batch.collect(values, column.as_read, rows.__getitem__)
    return column.in_microseconds(_without_refused(batch, column, array, rows.__getitem__))


def _without_refused(batch: Batch, column: ArrowColumn, array: Any, row: Callable[[int], int]) -> Any:
    """An array without the records whose dates, times or UUIDs are not read, which fail."""
    refused = column.moments.refused(array)
    for at, value in refused.items():
        batch.fail(row(at), DecodeError(value.message, hint=value.hint))
    if not refused:
        return array
    return array.take(batch.arrow.array([None if at in refused else at for at in range(len(array))], "int64"))


def _joined(batch: Batch, pieces: list[Any]) -> Any:
    return pieces[0] if len(pieces) == 1 else batch.arrow.concat_arrays(pieces)
