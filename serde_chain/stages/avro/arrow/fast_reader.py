"""A fast reader of Avro: the records of a batch as an object container file, for DataFusion's reader (arrow-rs).

A container file (Avro specification, "Object Container Files") is a header with the schema, and blocks of a count, a
length, the records one after the other, and a sync marker. The data buffer of an Arrow array of records *is* those
records one after the other, so a file around it costs no work per record.

A block has no marks between its records: a record that is cut short and one that is too long would make up for each
other, and all in between be misread. So every record is followed by a random number that is not known outside, and
that the schema has as a last field: where it is not read back, the bytes do not match the schema.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.arrow.columns import views
from serde_chain.signals import let_through
from serde_chain.stages.avro.container import encode_long

__all__ = ["VALUE", "NotReadError", "is_usable", "null_field", "read"]

VALUE: Final = "value"
_CHECK: Final = "check"
_SYNC: Final = b"serde-chain sync"
# Mean size in bytes from which on records are written one by one.
_LARGE_RECORD: Final = 64 << 10
# Address space in bytes that DataFusion needs: 190 MB are its own, the rest is for batches.
_ROOM: Final = 384 << 20

_log = logging.getLogger("serde_chain")
_lock = threading.RLock()
_session: Any = None
_null: Any = None
_forked = False


class NotReadError(Exception):
    """The reader could not read the bytes, or they are not the requested records."""


def _after_fork() -> None:
    global _forked  # noqa: PLW0603, a fact about this process
    _forked = _session is not None


# DataFusion's threads are not in a forked process, where it would wait for them forever.
os.register_at_fork(after_in_child=_after_fork)


def is_usable() -> bool:
    """Whether the reader works in this process.

    Not in one that was forked from another that had used it, nor in one whose address space is too limited.
    """
    if _forked:
        _log.debug("the fast Avro reader is not used in a process that was forked from one that has used it")
    return not _forked and _has_room()


@cache
def _has_room() -> bool:
    """Whether the library, which ends the process where memory is short, has the address space that it takes."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return True
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # not Linux
        return True
    _log.debug("the address space has %d of %d bytes in use", in_use, limit)
    return limit - in_use >= _ROOM


def null_field() -> Any:
    """The ``pyarrow.Field`` of the branch ``null`` in a union; pyarrow itself refuses to make it."""
    _open()
    return _null


def read(schema: Any, kind: Any, values: Any, start: int) -> Any:
    """Read records.

    Args:
        schema: Their schema as JSON, without references to named types.
        kind: The ``pyarrow.Field`` that the reader returns for it, named :data:`VALUE`.
        values: ``pyarrow`` array of the records with their framing, without nulls.
        start: Length of the framing in bytes.

    Returns:
        ``pyarrow.Array`` of type ``kind``, for all records in order.

    Raises:
        NotReadError: The reader failed, or the bytes are not one record after the other.
    """
    arrow, compute = require("pyarrow", "arrow"), require("pyarrow.compute", "arrow")
    mark = _mark()
    try:
        batch = _decode(schema, kind, _marked(values, start, mark, arrow, compute), len(values))
        marks = batch.column(1)
    except Exception as error:
        let_through(error)
        raise NotReadError(str(error)) from error
    except BaseException as error:
        # A panic in native code comes as a BaseException of its own.
        if type(error).__module__.startswith("pyo3"):
            raise NotReadError(str(error)) from error
        raise
    if len(batch) != len(values) or not compute.all(compute.equal(marks, struct.unpack("<d", mark)[0])).as_py():
        raise NotReadError("a record does not end where its bytes end")
    return batch.column(0)


def _mark() -> bytes:
    """Eight random bytes that are a number equal to itself."""
    while True:
        mark = secrets.token_bytes(8)
        (number,) = struct.unpack("<d", mark)
        if number == number and number != 0:  # noqa: PLR0124, not a NaN
            return mark


def _marked(values: Any, start: int, mark: bytes, arrow: Any, compute: Any) -> list[memoryview | bytes]:
    """The records without their framing, each followed by the mark; their source, piece by piece."""
    if values.nbytes > len(values) * _LARGE_RECORD:
        # Not joined, which would take their memory once more.
        return [part for view in views(values) if view is not None for part in (view[start:], mark)]
    kind = values.type
    if start:
        longest = compute.max(compute.binary_length(values)).as_py()
        values = compute.binary_slice(values, start, max(longest, start))
    joined = compute.binary_join_element_wise(values, arrow.scalar(mark, kind), arrow.scalar(b"", kind))
    width = 8 if arrow.types.is_large_binary(kind) else 4
    _, offsets, data = joined.buffers()
    ends = memoryview(offsets).cast("B")
    first = joined.offset * width
    last = first + len(joined) * width
    begin, end = (int.from_bytes(ends[at : at + width], "little") for at in (first, last))
    return [memoryview(data)[begin:end]]


def _decode(schema: Any, kind: Any, data: list[memoryview | bytes], count: int) -> Any:
    """The first ``count`` records, as a ``pyarrow.RecordBatch``."""
    arrow = require("pyarrow", "arrow")
    fields = [kind, arrow.field(_CHECK, arrow.float64(), nullable=False)]
    session = _open()
    # One more record than there is: the reader never ends if bytes are left when it has as many as a block declares.
    # So it is stopped as soon as it has returned as many as there are, which is one batch for it.
    with _file((_head(_record(schema), count + 1, sum(map(len, data))), *data, _SYNC)) as path:
        with _lock:  # the frame keeps the settings of the moment in which it is made
            session.sql(f"SET datafusion.execution.batch_size = {count}")
            frame = session.read_avro(path, schema=arrow.schema(fields), file_extension="")
        stream = frame.execute_stream()
        return stream.next().to_pyarrow()


def _record(schema: Any) -> Any:
    fields = [{"name": VALUE, "type": schema}, {"name": _CHECK, "type": "double"}]
    return {"type": "record", "name": "Checked", "fields": fields}


def _head(schema: Any, count: int, size: int) -> bytes:
    text = json.dumps(schema).encode()
    meta = encode_long(1) + _text(b"avro.schema") + encode_long(len(text)) + text + b"\0"
    return b"Obj\x01" + meta + _SYNC + encode_long(count) + encode_long(size)


def _text(text: bytes) -> bytes:
    return encode_long(len(text)) + text


@contextmanager
def _file(parts: tuple[bytes | memoryview, ...]) -> Iterator[str]:
    """A file in memory, where the system has such files; the reader accepts only paths."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112, once per batch
        with os.fdopen(os.memfd_create("serde-chain"), "wb", buffering=0) as file:
            for part in parts:
                _write_all(file, part)
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile(prefix="serde-chain-", suffix=".avro") as named:
        for part in parts:
            named.write(part)
        named.flush()
        yield named.name


def _write_all(file: Any, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:  # one call writes 2 GiB at most
        rest = rest[file.write(rest) :]


def _open() -> Any:
    """The session, made when it is first needed: the import takes a while."""
    global _session, _null
    with _lock:
        if _session is None:
            library: Any = require("datafusion", "arrow")
            settings = {"datafusion.execution.collect_statistics": "false"}
            session = library.SessionContext(library.SessionConfig(settings).with_target_partitions(1))
            union = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "int", "string"]}]}
            with _file((_head(union, 1, 1), b"\0", _SYNC)) as path:
                kind = session.read_avro(path, file_extension="").schema().field(0).type
            _session, _null = session, kind.field(0)
        return _session
