"""Tables in Arrow's IPC streaming format, by pyarrow (https://arrow.apache.org/docs/format/Columnar.html)."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.arrow import BatchForm
from serde_chain.base import Buffer, PartsSerializer, PlainDeserializer
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.schemas.parts import MAX_PARTS, TOO_MANY, Budget

__all__ = ["ArrowDeserializer", "ArrowSerializer"]

# Fields of the tables Message, RecordBatch and DictionaryBatch of Arrow's format/Message.fbs.
_HEADER: Final = 2
_DATA: Final = 1
_COMPRESSION: Final = 3
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
                _check_messages(ipc.MessageReader.open_stream(buffer))
                source = arrow.BufferReader(buffer)
                table = ipc.open_stream(source).read_all()
                if source.tell() != size:
                    raise ValueError(f"{size - source.tell()} bytes after the end of the stream")
                if bytes(view[-len(_END) :]) != _END:
                    raise ValueError("it has no end, so it may be truncated")
                table.validate(full=True)
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


def _check_messages(messages: Iterator[Any]) -> None:
    """Refuse compressed buffers.

    Raises:
        ValueError: There are some.
        struct.error: A message is truncated.
    """
    for message in messages:
        kind = message.type
        if kind not in {"record batch", "dictionary"}:
            continue
        flat = memoryview(message.metadata).cast("B")
        batch = _field(flat, _table_at(flat, 0), _HEADER)
        if batch is not None and kind == "dictionary":
            batch = _field(flat, batch, _DATA)
        if batch is not None and _field(flat, batch, _COMPRESSION) is not None:
            raise ValueError("its buffers are compressed: write it uncompressed, and compress it by a stage")


def _table_at(flat: memoryview, at: int) -> int:
    """The table that an offset of a FlatBuffer refers to."""
    return at + int(struct.unpack_from("<I", flat, at)[0])


def _field(flat: memoryview, table: int, number: int) -> int | None:
    """The table in a field of a table (https://flatbuffers.dev/internals); None if it is absent."""
    fields = table - struct.unpack_from("<i", flat, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", flat, fields)[0]:
        return None
    offset = struct.unpack_from("<H", flat, fields + place)[0]
    return _table_at(flat, table + offset) if offset else None


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


def _values(table: Any, arrow: Any) -> Iterator[int]:
    """The number of values of each array without children: those of some types take no bytes."""
    arrays = [chunk for column in table.columns for chunk in column.chunks]
    lists = (arrow.ListType, arrow.LargeListType, arrow.ListViewType, arrow.LargeListViewType, arrow.FixedSizeListType)
    nested = (*lists, arrow.RunEndEncodedType)
    while arrays:
        array = arrays.pop()
        kind, types = array.type, arrow.types
        if types.is_struct(kind) or types.is_union(kind):
            arrays += [array.field(at) for at in range(kind.num_fields)]
            if kind.num_fields:
                continue
        elif types.is_map(kind):
            arrays += [array.keys, array.items]
            continue
        elif isinstance(kind, nested):
            arrays.append(array.values)
        elif types.is_dictionary(kind):
            arrays.append(array.dictionary)
        elif isinstance(kind, arrow.BaseExtensionType):
            arrays.append(array.storage)
            continue
        yield len(array)
