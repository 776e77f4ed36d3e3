"""Avro object container files, one per record (Avro specification, "Object Container Files"): hop's ``avro`` format.

Each record contains its schema, so readers need none. The schema is as untrusted as the rest of the record, and is
checked before use.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from payload_stores.plugins import require
from serde_chain.base import Buffer
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.part_budget import PARTS_PER_BYTE, Budget
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.block_codecs import BLOCK_CODECS
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.wire import varint

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_MAX_OUTPUT: Final = 256 << 20
# Allowed parts of a schema beyond one per character, since types used twice count twice; and of a file's records
# beyond those paid for by its bytes. Both are untrusted, and there may be many small files.
_FREE_PARTS: Final = 1000

Write = Callable[[Any, Any, Any], None]


class RecordReading(Protocol):
    """The way to read the records of a file."""

    def read(self, buffer: io.BytesIO) -> Any:
        """Read the record at a buffer's position, up to its end."""

    @property
    def source(self) -> AvroSchema:
        """The records' schema."""

    @property
    def budget(self) -> Budget:
        """Maximum number of parts; a number applies to all records of a file together."""

    @property
    def skips_blindly(self) -> bool:
        """Whether records must be checked before they are read."""


R = TypeVar("R", bound=RecordReading)


def framing_advice(data: Buffer) -> str | None:
    r"""Advice for a reader of another framing; None if the data is not a container file.

    Example:
        >>> framing_advice(b"Obj\x01\x04")
        'The bytes are an Avro container file: set avro.framing = container'
    """
    is_file = bytes(memoryview(data)[: len(_MAGIC)]) == _MAGIC
    return "The bytes are an Avro container file: set avro.framing = container" if is_file else None


class FileWriter:
    """Writes files of one record each; has the signature of fastavro's ``schemaless_writer``.

    Args:
        schema: The schema.
        write: fastavro's ``schemaless_writer``.

    Attributes:
        header: The bytes in front of every record.
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
    """Parse a file's schema.

    Raises:
        ValueError: The text is not a schema, or its records could claim unbounded work in a few bytes.
    """
    try:
        schema = AvroSchema.parse(text)
        check_depth(schema.parsed)
        most = _FREE_PARTS + len(text)
        if avro_bounds.weight(schema.parsed, schema.named) > most:
            raise ValueError(f"the schema has {len(text)} characters, and its records more than {most} parts")
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    return schema


def read_file(data: Buffer, reading: Callable[[str], RecordReading]) -> list[Any]:
    """Read all records of a file.

    Args:
        data: The file.
        reading: Returns the way to read records of a schema, given as JSON text.

    Raises:
        ValueError: The data is not a container file, or is truncated.
        EOFError: A record is truncated.
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
    return records


def schema_name(data: Buffer) -> str:
    r"""The full name of a file's schema, or its type, without reading a record.

    Args:
        data: The file.

    Raises:
        ValueError: The data is not a container file, or its schema is none.
        RecursionError: The schema nests too deeply.

    Example:
        >>> schema_name(b"Obj\x01\x02\x16avro.schema\x0c" + b'"long"' + bytes(17))
        'long'
    """
    text, _ = _open(data)
    schema = json.loads(text.lstrip("\ufeff"))
    if not isinstance(schema, dict):
        return str(schema) if isinstance(schema, str) else "union"
    name, namespace = schema.get("name", schema.get("type")), schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in str(name) else str(name)


def only_record(data: Buffer, reading: Callable[[str], R]) -> tuple[R, bytes]:
    """The only record of a file.

    Args:
        data: The file.
        reading: Returns the way to read records of a schema, given as JSON text.

    Returns:
        The way to read it, and its bytes.

    Raises:
        ValueError: The data is not a container file, is truncated, or does not contain exactly one record.
    """
    text, blocks = _open(data)
    filled = [(count, block) for count, block in blocks if count]
    if [count for count, _ in filled] != [1]:
        raise ValueError(f"it has {sum(count for count, _ in filled)} records, but a column requires one per file")
    how, record = reading(text), filled[0][1]
    bounds = _Bounds(how, len(data))
    bounds.add(len(record))
    bounds.check(record, 0)
    return how, record


class _Bounds:
    """The remaining parts of a file, for all of its records together.

    Args:
        how: The way to read its records.
        size: Size of the file in bytes.
    """

    def __init__(self, how: RecordReading, size: int) -> None:
        source, most = how.source, how.budget.most
        self._source = source
        self._look = most is not None or source.unbounded or source.excess > 0 or how.skips_blindly
        self._left = _FREE_PARTS if most is None else most
        self._per_byte = PARTS_PER_BYTE if most is None else 0
        self.add(size)

    def add(self, size: int) -> None:
        """Count more bytes."""
        self._left += self._per_byte * size

    def check(self, block: bytes, start: int) -> None:
        """Check a record; ValueError if it has more parts than remain."""
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
    if codec not in BLOCK_CODECS:
        raise ValueError(f"its codec is {codec[:50]!r}, and only {', '.join(BLOCK_CODECS)} are read")
    return str(metadata.get("avro.schema", b""), "utf-8"), _blocks(cursor, sync, BLOCK_CODECS[codec])


def _blocks(
    cursor: _Cursor, sync: bytes, decompress: Callable[[memoryview, int], bytes]
) -> Iterator[tuple[int, bytes]]:
    """Record counts, and the records' bytes."""
    left = _MAX_OUTPUT
    while cursor.left:
        count, size = cursor.long(), cursor.long()
        block = decompress(cursor.take(size), left)
        left -= len(block)
        if bytes(cursor.take(_SYNC_BYTES)) != sync:
            raise ValueError("a block does not end at its sync marker")
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
            raise ValueError("the file is truncated")
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


def encode_long(number: int) -> bytes:
    """A count or size in Avro's encoding."""
    return varint.encode(varint.to_zigzag(number))
