"""Avro object container files, one per record (Avro specification, "Object Container Files"): hop's ``avro`` format.

Each record carries its schema, so that a reader needs none. That schema comes from the wire like the rest, and is
looked over before it is used.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from payload_stores.plugins import require
from serde_chain.base import Buffer
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.parts import PARTS_PER_BYTE, Budget
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.wire import varint

__all__ = ["FileWriter", "Reading", "Write", "encode_long", "only_record", "parse_schema", "read_file"]

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_MAX_OUTPUT: Final = 256 << 20
# Parts of a schema beyond one for each character of it, since types that are named twice count twice; and of a file's
# records beyond those that its bytes pay for. Both come from the wire, and small files may be many.
_FREE_PARTS: Final = 1000

Write = Callable[[Any, Any, Any], None]


class Reading(Protocol):
    """How the records of a file are read."""

    def read(self, buffer: io.BytesIO) -> Any:
        """Read the record at which a buffer stands, up to its end."""

    @property
    def source(self) -> AvroSchema:
        """Their schema."""

    @property
    def budget(self) -> Budget:
        """How many parts they may have; all records of a file together where it is a number."""


R = TypeVar("R", bound=Reading)


class FileWriter:
    """Writes files of one record each; with the same signature as fastavro's ``schemaless_writer``.

    Args:
        schema: The schema.
        write: fastavro's ``schemaless_writer``.

    Attributes:
        header: What stands in front of every record.
    """

    def __init__(self, schema: AvroSchema, write: Write) -> None:
        fastavro: Any = require("fastavro", "avro")
        self._write = write
        self._sync = os.urandom(_SYNC_BYTES)
        buffer = io.BytesIO()
        fastavro.writer(buffer, schema.parsed, [], sync_marker=self._sync)
        self.header = buffer.getvalue()

    def __call__(self, buffer: io.BytesIO, schema: Any, data: Any) -> None:
        """Write the file's only block."""
        block = io.BytesIO()
        self._write(block, schema, data)
        buffer.write(encode_long(1) + encode_long(block.tell()))
        buffer.write(block.getbuffer())
        buffer.write(self._sync)


def parse_schema(text: str) -> AvroSchema:
    """Parse a schema that came with a file.

    Raises:
        ValueError: It is not a schema, or a few bytes could become unbounded work with it.
    """
    try:
        schema = AvroSchema.parse(text)
        check_depth(schema.parsed)
        most = _FREE_PARTS + len(text)
        if avro_bounds.weight(schema.parsed, schema.named) > most:
            raise ValueError(f"the schema has {len(text)} characters, and a record of it more than {most} parts")
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return schema


def read_file(data: Buffer, reading: Callable[[str], Reading]) -> list[Any]:
    """Read all records of a file.

    Args:
        data: The file.
        reading: How to read records of a schema, given as JSON text.

    Raises:
        ValueError: It is not such a file, or is cut off.
        EOFError: A record is cut off.
    """
    text, blocks = _open(data)
    how = reading(text)
    bounds = _Bounds(how, len(data))
    records: list[Any] = []
    for count, block in blocks:
        if count < 0:
            raise ValueError(f"a block claims {count} records")
        bounds.add(len(block))
        buffer = io.BytesIO(block)
        for _ in range(count):
            bounds.check(block, buffer.tell())
            records.append(how.read(buffer))
        if buffer.tell() != len(block):
            raise ValueError(f"{len(block) - buffer.tell()} bytes follow the records of a block")
    if not records:
        raise ValueError("the file is cut off, or contains no records")
    return records


def only_record(data: Buffer, reading: Callable[[str], R]) -> tuple[R, bytes]:
    """The record of a file that has one.

    Args:
        data: The file.
        reading: How to read records of a schema, given as JSON text.

    Returns:
        How it is read, and its bytes.

    Raises:
        ValueError: It is not such a file, is cut off, or does not contain exactly one record.
    """
    text, blocks = _open(data)
    filled = [(count, block) for count, block in blocks if count]
    if [count for count, _ in filled] != [1]:
        raise ValueError(f"it has {sum(count for count, _ in filled)} records, and a column takes one of each file")
    how, record = reading(text), filled[0][1]
    bounds = _Bounds(how, len(data))
    bounds.add(len(record))
    bounds.check(record, 0)
    return how, record


class _Bounds:
    """How many parts may still be built of a file's bytes, by all of its records together.

    Args:
        how: How its records are read.
        size: Bytes of the file.
    """

    def __init__(self, how: Reading, size: int) -> None:
        source, most = how.source, how.budget.most
        self._source = source
        self._look = most is not None or source.unbounded or source.excess > 0
        self._left = _FREE_PARTS if most is None else most
        self._per_byte = PARTS_PER_BYTE if most is None else 0
        self.add(size)

    def add(self, size: int) -> None:
        """Count more bytes."""
        self._left += self._per_byte * size

    def check(self, block: bytes, start: int) -> None:
        """Look a record over; ValueError if it has more parts than are left."""
        if self._look:
            schema, named = self._source.parsed, self._source.named
            self._left -= avro_bounds.check_bounds(schema, named, block, start, Budget(self._left), self._source.filled)


def _open(data: Buffer) -> tuple[str, Iterator[tuple[int, bytes]]]:
    """The schema of a file, and its blocks."""
    cursor = _Cursor(memoryview(data).cast("B"))
    if bytes(cursor.take(len(_MAGIC))) != _MAGIC:
        raise ValueError("it is not an Avro object container file")
    metadata = dict(_metadata(cursor))
    sync = bytes(cursor.take(_SYNC_BYTES))
    codec = bytes(metadata.get("avro.codec", b"null")).decode("ascii", "replace")
    if codec not in {"null", "deflate"}:
        raise ValueError(f"its codec is {codec[:50]!r}, and only null and deflate are read")
    return str(metadata.get("avro.schema", b""), "utf-8"), _blocks(cursor, sync, deflated=codec == "deflate")


def _blocks(cursor: _Cursor, sync: bytes, *, deflated: bool) -> Iterator[tuple[int, bytes]]:
    """Counts of records, and their bytes."""
    left = _MAX_OUTPUT
    while cursor.left:
        count, size = cursor.long(), cursor.long()
        block = _inflate(cursor.take(size), left) if deflated else bytes(cursor.take(size))
        left -= len(block)
        if bytes(cursor.take(_SYNC_BYTES)) != sync:
            raise ValueError("a block does not end where it should")
        yield count, block


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left:
            raise ValueError("the file is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def long(self) -> int:
        number, self._at = varint.read(self._data, self._at)
        return varint.from_zigzag(number)


def _metadata(cursor: _Cursor) -> Iterator[tuple[str, memoryview]]:
    while count := cursor.long():
        if count < 0:
            count = -count
            cursor.long()  # the size of the block, for readers that skip it
        for _ in range(count):
            name = str(cursor.take(cursor.long()), "utf-8")
            yield name, cursor.take(cursor.long())


def _inflate(data: memoryview, most: int) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        block = inflate.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"a block is corrupt: {error}") from error
    # fastavro and others leave a part of zlib's checksum behind the end, so the bytes that follow are ignored.
    if len(block) > most or not inflate.eof:
        raise ValueError(f"a block is cut off, or larger than {_MAX_OUTPUT} bytes when it is decompressed")
    return block


def encode_long(number: int) -> bytes:
    """A count or size as Avro writes it."""
    return varint.encode(varint.to_zigzag(number))
