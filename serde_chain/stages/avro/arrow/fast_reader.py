"""A fast Avro reader: passes a batch's records as an object container file to DataFusion's reader (arrow-rs).

A container file (Avro specification, "Object Container Files") consists of a header with the schema, and blocks of a
count, a length, consecutive records, and a sync marker. The data buffer of an Arrow array of records *is* those
consecutive records, so wrapping it in a file costs no work per record.

A block has no marks between its records: a record that is too short and one that is too long would compensate for each
other, and all records in between be misread. So every record is followed by a secret random number, which the schema
declares as the last field: if it is not read back, the bytes do not match the schema.
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
from payload_stores.signals import let_through
from serde_chain.arrow.columns import views
from serde_chain.stages.avro.container import encode_long

__all__ = ["VALUE", "NotReadError", "is_usable", "null_field", "read"]

VALUE: Final = "value"
_CHECK: Final = "check"
_SYNC: Final = b"serde-chain sync"
# From this mean size in bytes on, records are written one by one.
_LARGE_RECORD: Final = 64 << 10
# Address space in bytes required by DataFusion: 190 MB for itself, the rest for batches.
_ROOM: Final = 384 << 20

_log = logging.getLogger("serde_chain")
_lock = threading.RLock()
_session: Any = None
_null: Any = None
_forked = False


class NotReadError(Exception):
    """The reader failed, or its result is not the requested records."""


def _after_fork() -> None:
    global _forked  # noqa: PLW0603, a fact about this process
    _forked = _session is not None


# A forked process lacks DataFusion's threads and would wait for them forever.
os.register_at_fork(after_in_child=_after_fork)


def is_usable() -> bool:
    """Whether the reader works in this process.

    It does not after a fork of a process that had used it, nor with too little address space.
    """
    if _forked:
        _log.debug("the fast Avro reader is not used in a process forked after its first use")
    return not _forked and _has_room()


@cache
def _has_room() -> bool:
    """Whether enough address space remains: the library aborts the process when memory is short."""
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
    """The ``pyarrow.Field`` of a union's ``null`` branch, which pyarrow itself refuses to create."""
    _open()
    return _null


def read(schema: Any, kind: Any, values: Any, start: int) -> Any:
    """Read records.

    Args:
        schema: Their schema as JSON, without references to named types.
        kind: The ``pyarrow.Field`` that the reader returns for the schema, named :data:`VALUE`.
        values: ``pyarrow`` array of the records with their framing, without nulls.
        start: Length of the framing in bytes.

    Returns:
        ``pyarrow.Array`` of type ``kind``, for all records in order.

    Raises:
        NotReadError: The reader failed, or the bytes are not consecutive records.
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
        # A panic in native code is raised as a BaseException.
        if type(error).__module__.startswith("pyo3"):
            raise NotReadError(str(error)) from error
        raise
    if len(batch) != len(values) or not compute.all(compute.equal(marks, struct.unpack("<d", mark)[0])).as_py():
        raise NotReadError("a record does not end where its bytes end")
    return batch.column(0)


def _mark() -> bytes:
    """Eight random bytes of a number equal to itself."""
    while True:
        mark = secrets.token_bytes(8)
        (number,) = struct.unpack("<d", mark)
        if number == number and number != 0:  # noqa: PLR0124, not a NaN
            return mark


def _marked(values: Any, start: int, mark: bytes, arrow: Any, compute: Any) -> list[memoryview | bytes]:
    """The records without their framing, each followed by the mark, as consecutive pieces."""
    if values.nbytes > len(values) * _LARGE_RECORD:
        # Not joined, which would double their memory.
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
    # One more record than exist: the reader never ends if bytes remain after the records that a block declares. So
    # it is stopped once it has returned the existing records, which form one batch.
    with _file((_head(_record(schema), count + 1, sum(map(len, data))), *data, _SYNC)) as path:
        with _lock:  # the frame captures the settings at its creation
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
    """A file in memory, if the system supports them; the reader accepts only paths."""
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
    """The session, created on first use: the import takes a while."""
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
