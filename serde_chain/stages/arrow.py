"""Tables in Arrow's IPC streaming format, by pyarrow (https://arrow.apache.org/docs/format/Columnar.html)."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.arrow import BatchForm
from serde_chain.base import Buffer, PartsSerializer, PlainDeserializer
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.schemas.part_budget import MAX_PARTS, TOO_MANY, Budget

# Fields of the tables Message, RecordBatch and DictionaryBatch of Arrow's format/Message.fbs, and kinds of messages.
_HEADER_TYPE: Final = 1
_HEADER: Final = 2
_BODY_LENGTH: Final = 3
_MESSAGE_METADATA: Final = 4
_DATA: Final = 1
_COMPRESSION: Final = 3
_SCHEMA_MESSAGE: Final = 1
_DICTIONARY_MESSAGE: Final = 2
_BATCH_MESSAGE: Final = 3
# Those of format/Schema.fbs: Schema, Field and the types with a vector or a text, by their number in Type.
_FIELDS: Final = 1
_SCHEMA_METADATA: Final = 2
_NAME: Final = 0
_TYPE_TYPE: Final = 2
_TYPE: Final = 3
_CHILDREN: Final = 5
_FIELD_METADATA: Final = 6
_TIMESTAMP: Final = 10
_UNION: Final = 14
# In pyarrow's text on a wrong value, but not in the name of a type.
_NUMBER: Final = re.compile(r"(?<![\w(\[])-?\d[\d.]*")
_CONTINUATION: Final = 0xFFFFFFFF
# Reading copies what several places share, so that some bytes could become gigabytes.
_MOST_SHARED: Final = 16
# The end of a stream may be left out, but then a truncated one passes for a whole one.
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
_EXTRA: Final = "arrow"


class ArrowSerializer(PartsSerializer[Any]):
    """Writes a ``pyarrow.Table`` or ``RecordBatch`` as an IPC stream, uncompressed; not for record keys.

    Before ``large-message``, tables of 32 MiB and more are uploaded from their own memory.

    Example:
        >>> import pyarrow as pa
        >>> from serde_chain import DeserializerChain, SerializerChain
        >>> data = SerializerChain.from_config({"value.serializer": "arrow"})(pa.table({"flux": [1.5]}))
        >>> DeserializerChain.from_config({"value.deserializer": "arrow"})(data).to_pylist()
        [{'flux': 1.5}]
    """

    varies = "Equal tables may have other chunks and dictionaries: give keys another stage, such as msgpack"

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package."""
        super().configure(config, is_key)
        arrow = require("pyarrow", _EXTRA)
        ipc = require("pyarrow.ipc", _EXTRA)

        def parts(data: Any) -> list[Buffer]:
            if not isinstance(data, (arrow.Table, arrow.RecordBatch)):
                raise EncodeError(
                    f"arrow takes pyarrow.Table or RecordBatch, not {type(data).__name__}",
                    hint="Pass pyarrow.table(value): it accepts the frames of Polars and DuckDB too",
                )
            sink = _Sink()
            try:
                with ipc.new_stream(sink, data.schema) as writer:
                    writer.write(data)
            except Exception as error:
                message = str(error)
                drop_data(error)
                raise EncodeError(f"the table cannot be written: {message[:300]}") from error
            return sink.parts

        self.give_parts(parts)


class ArrowDeserializer(PlainDeserializer[Any]):
    """Reads an IPC stream into a ``pyarrow.Table`` over the same memory, without a copy.

    Offsets, text and names are validated, since pyarrow would fail or crash when it uses wrong ones. Refuses compressed
    buffers, whose size in memory their bytes do not bound.
    """

    options = (MAX_PARTS,)
    plain: Callable[[Any], Any]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package, and read ``serde.max.parts``."""
        super().configure(config, is_key)
        arrow = require("pyarrow", _EXTRA)
        ipc = require("pyarrow.ipc", _EXTRA)
        budget = Budget.read(config)

        def read(data: Buffer) -> Any:
            view = memoryview(data).cast("B")
            size = len(view)
            try:
                buffer = arrow.py_buffer(data)
                _check_messages(view)
                source = arrow.BufferReader(buffer)
                table = ipc.open_stream(source).read_all()
                if source.tell() != size:
                    raise ValueError(f"{size - source.tell()} bytes after the end of the stream")
                if bytes(view[-len(_END) :]) != _END:
                    raise ValueError("it has no end, so it may be truncated")
                table.validate()
                _check_views(table, arrow, _MOST_SHARED * size)
                _validate(table, arrow)
                _check_names(list(table.schema), arrow)
                # Rows without columns take no bytes, either.
                count = max(table.num_rows, sum(_values(table, arrow)))
            except Exception as error:
                message = str(error)
                drop_data(error)
                raise DecodeError(f"the bytes are not an Arrow IPC stream: {message[:300]}") from error
            # A value has a bit at least: 8 for each byte.
            if count > budget.of(2 * size):
                raise DecodeError(str(budget.exceeded(2 * size)), hint=TOO_MANY)
            return table

        self.plain = read

    def batch_form(self) -> BatchForm:
        """A column of the checked bytes: tables of different schemas have no common type."""
        from serde_chain.arrow.encoded import EncodedBatch

        return EncodedBatch(self)


class _Sink(io.RawIOBase):
    """Keeps the buffers that pyarrow writes, which are those of the table."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.parts.append(memoryview(data))
        return len(data)


def _check_messages(view: memoryview) -> None:
    """Refuse compressed buffers, and schemas that are larger in memory than their bytes explain.

    Raises:
        ValueError: There are some.
        struct.error: A message is truncated.
    """
    for flat in _messages(view):
        message = _table_at(flat, 0)
        kind_at = _place(flat, message, _HEADER_TYPE)
        kind, header = flat[kind_at] if kind_at else 0, _field(flat, message, _HEADER)
        if sum(_sizes(flat, message, header if kind == _SCHEMA_MESSAGE else None)) > _MOST_SHARED * len(flat):
            raise ValueError("its names and metadata share their bytes")
        if kind not in {_DICTIONARY_MESSAGE, _BATCH_MESSAGE}:
            continue
        if header is not None and kind == _DICTIONARY_MESSAGE:
            header = _field(flat, header, _DATA)
        if header is not None and _field(flat, header, _COMPRESSION) is not None:
            raise ValueError("its buffers are compressed: write it uncompressed, and compress it by a stage")


def _messages(view: memoryview) -> Iterator[memoryview]:
    """The metadata of each message ("Encapsulated message format"), without reading any."""
    at = 0
    while True:
        (size,) = struct.unpack_from("<I", view, at)
        at += 4
        if size == _CONTINUATION:
            (size,) = struct.unpack_from("<I", view, at)
            at += 4
        if size == 0:
            return
        flat = view[at : at + size]
        yield flat
        length_at = _place(flat, _table_at(flat, 0), _BODY_LENGTH)
        at += size + (struct.unpack_from("<q", flat, length_at)[0] if length_at else 0)
        if at < size:
            raise ValueError("the length of a body is negative")


def _sizes(flat: memoryview, message: int, schema: int | None) -> Iterator[int]:
    """The sizes of texts and vectors, as often as they are referred to.

    Raises:
        ValueError: A field, or a pair of metadata, is referred to twice.
    """
    seen: set[int] = set()
    pairs = _tables(flat, message, _MESSAGE_METADATA, seen)
    fields: list[int] = []
    if schema is not None:
        pairs += _tables(flat, schema, _SCHEMA_METADATA, seen)
        fields = _tables(flat, schema, _FIELDS, seen)
    while fields:
        field = fields.pop()
        yield _length(flat, field, _NAME)
        fields += _tables(flat, field, _CHILDREN, seen)
        pairs += _tables(flat, field, _FIELD_METADATA, seen)
        kind_at, kind = _place(flat, field, _TYPE_TYPE), _field(flat, field, _TYPE)
        if kind_at and kind is not None and flat[kind_at] in {_TIMESTAMP, _UNION}:
            yield _length(flat, kind, 1)  # its timezone, or its type ids
    for pair in pairs:
        yield _length(flat, pair, 0) + _length(flat, pair, 1)


def _length(flat: memoryview, table: int, number: int) -> int:
    """The length of a text or vector in a field of a table."""
    at = _field(flat, table, number)
    return 0 if at is None else int(struct.unpack_from("<I", flat, at)[0])


def _tables(flat: memoryview, table: int, number: int, seen: set[int]) -> list[int]:
    """The tables of a vector in a field of a table."""
    at = _field(flat, table, number)
    if at is None:
        return []
    found = []
    for place in range(at + 4, at + 4 + 4 * _length(flat, table, number), 4):
        each = _table_at(flat, place)
        if each in seen:
            raise ValueError("a part of its schema or metadata is referred to twice")
        seen.add(each)
        found.append(each)
    return found


def _table_at(flat: memoryview, at: int) -> int:
    """The table that an offset of a FlatBuffer refers to."""
    return at + int(struct.unpack_from("<I", flat, at)[0])


def _place(flat: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table is (https://flatbuffers.dev/internals); None if it is absent."""
    fields = table - struct.unpack_from("<i", flat, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", flat, fields)[0]:
        return None
    offset = struct.unpack_from("<H", flat, fields + place)[0]
    return table + offset if offset else None


def _check_names(fields: list[Any], arrow: Any) -> None:
    """Refuse names of fields and time zones that are not text: pyarrow finds them only when they are used.

    Raises:
        UnicodeDecodeError: There are some.
    """
    while fields:
        field = fields.pop()
        kind = field.type
        str(field.name)
        if arrow.types.is_timestamp(kind):
            str(kind.tz)
        fields += [kind.field(at) for at in range(kind.num_fields)]
        if arrow.types.is_dictionary(kind):
            fields.append(arrow.field("", kind.value_type))


def _field(flat: memoryview, table: int, number: int) -> int | None:
    """The table, text or vector in a field of a table; None if it is absent."""
    place = _place(flat, table, number)
    return None if place is None else _table_at(flat, place)


def _validate(table: Any, arrow: Any) -> None:
    """Check all values.

    Raises:
        ValueError: One is wrong; the text does not quote it.
    """
    try:
        table.validate(full=True)
    except arrow.ArrowInvalid as error:
        reason = _NUMBER.sub("…", str(error))
    else:
        return
    raise ValueError(reason)


def _check_views(table: Any, arrow: Any, most: int) -> None:
    """Refuse views of the same memory, over and over: text is validated, and lists are converted, for each view.

    Raises:
        ValueError: They are.
    """
    for array in _arrays(table, arrow):
        if arrow.types.is_string_view(array.type) or arrow.types.is_binary_view(array.type):
            _, views, *_ = array.buffers()
            lengths = memoryview(views).cast("B").cast("i")[::4] if views is not None else ()
            if sum(lengths[array.offset : array.offset + len(array)]) > most:
                raise ValueError("its views of text overlap: cast it to string or binary")
        is_list = isinstance(array, (arrow.ListViewArray, arrow.LargeListViewArray))
        if is_list and sum(array.sizes.to_pylist()) > len(array.values):
            raise ValueError("its views of lists overlap: cast it to a list type")


def _arrays(table: Any, arrow: Any) -> Iterator[Any]:
    """All arrays of a table, those within others too."""
    arrays = [chunk for column in table.columns for chunk in column.chunks]
    lists = (arrow.ListType, arrow.LargeListType, arrow.ListViewType, arrow.LargeListViewType, arrow.FixedSizeListType)
    nested = (*lists, arrow.RunEndEncodedType)
    while arrays:
        array = arrays.pop()
        kind, types = array.type, arrow.types
        if types.is_struct(kind) or types.is_union(kind):
            arrays += [array.field(at) for at in range(kind.num_fields)]
        elif types.is_map(kind):
            arrays += [array.keys, array.items]
        elif isinstance(kind, nested):
            arrays.append(array.values)
        elif types.is_dictionary(kind):
            arrays.append(array.dictionary)
        elif isinstance(kind, arrow.BaseExtensionType):
            arrays.append(array.storage)
        yield array


def _values(table: Any, arrow: Any) -> Iterator[int]:
    """The number of values of each array without children: those of some types take no bytes."""
    types = arrow.types
    for array in _arrays(table, arrow):
        kind = array.type
        is_whole = (types.is_struct(kind) or types.is_union(kind)) and kind.num_fields
        if not (is_whole or types.is_map(kind) or isinstance(kind, arrow.BaseExtensionType)):
            yield len(array)
