"""The batch form of ``avro``: a column of records into an Arrow array.

There are two readers. The compiled part, where it is installed, decodes records of one schema straight into a column,
without a Python object per record. fastavro reads one by one what the compiled part does not take, schemas or records;
and all without it, or with ``avro.arrow.reader`` = ``record``.

Most batches have good records of one known schema, and are read at once. Otherwise records are grouped by the schema
that they name, and the rows are put back in order.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache, partial
from operator import methodcaller
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.arrow.selection import Columns
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.record import Context
from serde_chain.schemas.framing import GLUE
from serde_chain.schemas.part_budget import FREE_PARTS
from serde_chain.schemas.schema_id import is_compressed
from serde_chain.stages.avro.arrow.narrow import narrowed
from serde_chain.stages.avro.arrow.types import ArrowColumn, TooManyFieldsError
from serde_chain.stages.avro.decimal import readable
from serde_chain.stages.avro.native import ColumnDecoder, Native
from serde_chain.stages.avro.reader import CONTAINER, RECORD_KEY, SINGLE_OBJECT, AvroReader, FindsReaders
from serde_chain.stages.avro.resolution import rewritten
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.transfer import Prefetch, Transfer

_MAX_DECODERS: Final = 1000
_MAX_TOPICS: Final = 1000
# Parts beyond those paid for by the records' bytes that may be Python objects at once.
_OBJECTS: Final = 10 * FREE_PARTS
# Length of a fingerprint with the bytes before it.
_SINGLE_OBJECT_BYTES: Final = 10
_COMPRESSED: Final = b"\x03\x05"
# Concurrent registry queries.
_IN_FLIGHT: Final = 8

_log = logging.getLogger("serde_chain")


class _Place(NamedTuple):
    """The way to read a record, and the start of its body."""

    reader: AvroReader
    start: int


class _Group(NamedTuple):
    """The rows of records of one schema, and the way to read them."""

    reader: AvroReader
    start: int
    rows: list[int]


class _Usual(NamedTuple):
    """What the last batch of a topic was: good records of one schema.

    Attributes:
        decoder: Reads them.
        start: The start of their bodies.
        prefix: The bytes with which they begin.
    """

    decoder: _Decoder
    start: int
    prefix: bytes


def refusal(schema: AvroSchema, native: Native) -> str | None:
    """Why the compiled part does not read records of a schema into columns; None if it does.

    Raises:
        ConfigError: Arrow has no type for the schema.
    """
    return _Decoder(AvroReader(schema, schema.readable, None), ArrowColumn(schema), native).refusal


class AvroBatch(BatchForm):
    """Reads batches with the stage's results.

    Args:
        stage: The stage.
        native: The compiled part, if it is used.
    """

    def __init__(self, stage: FindsReaders, *, native: Native | None = None) -> None:
        self._stage = stage
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
        self._usual: dict[str, _Usual] = {}

    @property
    def arrow_type(self) -> Any:
        """The type of all columns; None if it depends on the records."""
        return None if self._stage.schema is None else self._column(self._stage.schema).type

    @property
    def refusal(self) -> str | None:
        """Why fastavro reads the configured schema; None if the compiled part does, or if the records name theirs."""
        schema = self._stage.schema
        if self._native is None:
            return "as configured"
        if schema is None:
            return None
        try:
            return refusal(schema, self._native)
        except ConfigError as error:
            return error.message

    def at_once(self, values: Any, topic: str, /) -> Any | None:
        """Read good records of the topic's usual schema by the compiled part; None for all others."""
        usual = self._usual.get(topic)
        if usual is None:
            return None
        array = usual.decoder.compiled(values, usual.start, usual.prefix)
        if array is None or (array.null_count == len(array) and self._stage.schema is None):
            return None  # a batch without records has no type of its own
        return array

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        if len(self._decoders) > _MAX_DECODERS:  # container files bring their schemas
            for known in (self._decoders, self._columns, self._narrowed, self._usual):
                known.clear()
        if self._stage.framing == GLUE:
            self._unpack(batch)
        alike = self._alike(batch)
        return self._in_groups(batch) if alike is None else alike

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

    def _alike(self, batch: Batch) -> Any | None:
        """A batch of good records of one known schema, as most are; None for all others."""
        if self._stage.framing in {CONTAINER, RECORD_KEY} or self._is_mixed(batch):
            return None
        values = batch.column if self._native is not None and not batch.is_listed else batch.objects
        first = _first(values)
        size = self._first_bytes
        if first is None or self.size_of(prefix := first[:size]) != size or self.rows_named_in_headers(batch):
            return None
        place = self._place(batch)
        if self._stage.question(first, place) is not None:
            return None
        try:
            reader, start = self.located(first, place)
            target = self._stage.schema or reader.latest or reader.source
            decoder = self._decoder(reader, self._narrow(target, batch.columns))
            array = decoder.compiled(values, start, prefix)
            if array is None:
                return decoder.alike(batch.objects, start, prefix)
        except (SerializationError, ValueError, TypeError, OverflowError, batch.arrow.ArrowException) as error:
            let_through(error)
            return None
        topic = None if batch.place is None else batch.place.topic
        if batch.columns is None and topic is not None and not self._stage.is_scoped:
            if len(self._usual) >= _MAX_TOPICS:
                self._usual.clear()
            self._usual[topic] = _Usual(decoder, start, prefix)
        return array

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
        keys = self._record_keys(batch)
        places: list[_Place | None] = []
        refused = cache(partial(self._ask_ahead, batch, named, size))
        for row, data in enumerate(batch.objects):
            if data is None:
                places.append(None)
                continue
            alone = mixed or row in named
            place = None if alone else known.get(data[:size] if keys is None else keys[row])
            if place is None:
                ctx = batch.context(row) if alone or keys is not None else common
                if mixed:
                    known = {}
                place = self._locate(data, data[:size] if keys is None else keys[row], ctx, known, refused)
            if isinstance(place, SerializationError):
                batch.fail(row, copy.copy(place))
                place = None
            places.append(place)
        return places

    def _record_keys(self, batch: Batch) -> list[Any] | None:
        """The records' keys, if they are the schemas; an empty one is none."""
        if self._stage.framing != RECORD_KEY:
            return None
        keys = batch.keys_after()
        return [b""] * len(batch) if keys is None else [key or b"" for key in keys.to_pylist()]

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
        name: bytes,
        ctx: Context | None,
        known: dict[Any, _Place | SerializationError],
        refused: Callable[[], dict[Any, SerializationError]],
    ) -> _Place | SerializationError:
        in_headers = None if ctx is None else self.in_headers(ctx)
        whole = name if self._stage.framing == RECORD_KEY else data[: self.size_of(name)]
        key: Any = whole if in_headers is None else (in_headers,)
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
        """Fail a record that brings its own schema, which determines the column and has no Arrow type.

        Raises:
            DecodeError: The record's own schema, as in container files; others bring other schemas. Also a registered
                one with too many fields, which only a hostile writer registers.
            ConfigError: A registered schema: of all records that name it, which no error policy may pass over.
        """
        if self._stage.schema is None:
            try:
                self._column(schema)
            except ConfigError as error:
                if self._frames is not None and not isinstance(error, TooManyFieldsError):
                    raise
                raise DecodeError(f"the record's schema has no Arrow type: {error.message}", hint=error.hint) from error

    def _in_groups(self, batch: Batch) -> Any:
        if self._stage.framing == CONTAINER:
            records, places = self._opened(batch)
        else:
            records, places = batch.objects, self._located(batch)
        groups: dict[tuple[int, int], _Group] = {}
        for row, place in enumerate(places):
            if place is not None:
                group = groups.setdefault((id(place.reader), place.start), _Group(*place, []))
                group.rows.append(row)
        target = self._target([group.reader for group in groups.values()], batch.columns)
        if target is None:
            return batch.arrow.nulls(len(batch))
        if len(groups) == 1:
            (alone,) = groups.values()
            kept = [None if place is None else data for data, place in zip(records, places, strict=True)]
            return self._decoder(alone.reader, target).read(batch, range(len(records)), kept, alone.start)
        arrays = [
            self._decoder(group.reader, target).read(batch, group.rows, [records[at] for at in group.rows], group.start)
            for group in groups.values()
        ]
        present = [row for group in groups.values() for row in group.rows]
        others = [row for row, place in enumerate(places) if place is None]
        whole = batch.arrow.concat_arrays([*arrays, batch.arrow.nulls(len(others), self._column(target).type)])
        return _in_order(batch, whole, [*present, *others])

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


class _Decoder:
    """Reads records of one schema into one type.

    Attributes:
        refusal: Why the compiled part, which is used otherwise, does not read the records; None if it does.
    """

    refusal: str | None = None

    def __init__(self, reader: AvroReader, column: ArrowColumn, native: Native | None) -> None:
        self._column = column
        self._reader = reader
        same = reader.source.parsed == column.schema.parsed
        way = rewritten(reader.source, None if same else column.schema)
        writer, target = way.writer, way.target
        self._decode = AvroReader(
            reader.source,
            readable(writer),
            target,
            None,
            way.problems,
            reader.budget,
            native,
            way.skips_blindly,
            into=None if same else column.schema,
            is_raw=reader.is_raw,
            remedy=way.remedy,
        ).decode
        self._compiled = None if native is None else self._compile(native, writer, target)
        free = FREE_PARTS if reader.source.unbounded else max(reader.source.excess, 1)
        # Whose values are Python objects at once.
        self._records_at_once = max(_OBJECTS // free, 1)

    def _compile(self, native: Native, writer: Any, target: Any) -> ColumnDecoder | None:
        source, column = self._reader.source, self._column
        if source.unbounded:
            self.refusal = "a few bytes may be any number of values"
        elif self._reader.is_raw:
            self.refusal = "a record is its bytes, without Avro's length"
        else:
            try:
                return native.column_decoder(writer, target, column.type, column.type_as_read)
            except ValueError as error:
                self.refusal = str(error)
                _log.debug("%s is not read by the compiled part: %s", source.name, error)
        return None

    def compiled(self, values: Any, start: int, prefix: bytes) -> Any | None:
        """Read good records of this schema by the compiled part; None if there are others.

        Args:
            values: The records, as a list or an array.
            start: The start of their bodies.
            prefix: The bytes with which a record of this schema begins.
        """
        if self._compiled is None or not self._is_bounded(values):
            return None
        found = self._compiled.read(values, start, prefix)
        return None if found is None or found[1] else found[0]

    def alike(self, values: list[Any], start: int, prefix: bytes) -> Any | None:
        """Read good records of this schema by fastavro; None if there are others, or too many.

        Raises:
            DecodeError: A record is unreadable.
        """
        if self._compiled is not None or len(values) > self._records_at_once or None in values:
            return None
        if prefix and not all(map(methodcaller("startswith", prefix), values)):
            return None
        decode = self._decode
        array = self._column.as_read([decode(data, start) for data in values])
        return None if self._column.moments.refused(array) else self._column.in_microseconds(array)

    def read(self, batch: Batch, rows: Sequence[int], records: list[Any], start: int) -> Any:
        """Read records; unreadable ones are null, and reported to the batch.

        Args:
            batch: The batch.
            rows: The records' rows in the batch.
            records: The records, or None.
            start: The start of their bodies.
        """
        if self._compiled is not None and self._is_bounded(records):
            found = self._compiled.read(records, start, b"")
            if found is not None:
                array, left = found
                if not left:
                    return array
                # What the compiled part does not take is read by fastavro, and put in its place.
                instead = self._one_by_one(batch, [rows[at] for at in left], [records[at] for at in left], start)
                order = list(range(len(records)))
                for at, place in enumerate(left):
                    order[place] = len(records) + at
                whole = batch.arrow.concat_arrays([array, instead])
                return whole.take(batch.arrow.array(order, batch.arrow.int64()))
        return self._one_by_one(batch, rows, records, start)

    def _is_bounded(self, values: Any) -> bool:
        """Whether no record needs a check first; the compiled part takes no unbounded schemas."""
        if self._reader.budget.most is None:
            return True
        if isinstance(values, list):
            longest = max((len(data) for data in values if data is not None), default=0)
        else:
            compute = require("pyarrow.compute", "arrow")
            longest = compute.max(compute.binary_length(values)).as_py() or 0
        return self._reader.is_bounded(longest)

    def _one_by_one(self, batch: Batch, rows: Sequence[int], records: list[Any], start: int) -> Any:
        step = self._records_at_once
        pieces = [
            self._some(batch, rows[at : at + step], records[at : at + step], start)
            for at in range(0, max(len(records), 1), step)
        ]
        return pieces[0] if len(pieces) == 1 else batch.arrow.concat_arrays(pieces)

    def _some(self, batch: Batch, rows: Sequence[int], records: list[Any], start: int) -> Any:
        values: list[Any] = []
        for row, data in zip(rows, records, strict=True):
            value = None
            if data is not None:
                try:
                    value = self._decode(data, start)
                except SerializationError as error:
                    batch.fail(row, error)
            values.append(value)
        array = batch.collect(values, self._column.as_read, rows.__getitem__)
        refused = self._column.moments.refused(array)
        for at, found in refused.items():
            batch.fail(rows[at], DecodeError(found.message, hint=found.hint))
        if refused:
            kept = [None if at in refused else at for at in range(len(array))]
            array = array.take(batch.arrow.array(kept, batch.arrow.int64()))
        return self._column.in_microseconds(array)


def _first(values: Any) -> bytes | None:
    """The first record that is not null."""
    if isinstance(values, list):
        return next((data for data in values if data is not None), None)
    if values.null_count == len(values):
        return None
    first: bytes = next(data for data in values if data.is_valid).as_py()
    return first


def _in_order(batch: Batch, array: Any, rows: list[int]) -> Any:
    """An array whose items belong to these rows, in the order of the rows."""
    return array.take(batch.compute.sort_indices(batch.arrow.array(rows, batch.arrow.int64())))


def _starts_with(batch: Batch, prefix: bytes) -> Any:
    return batch.compute.equal(batch.compute.binary_slice(batch.column, 0, len(prefix)), prefix)
