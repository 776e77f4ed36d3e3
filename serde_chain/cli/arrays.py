"""Arrays and tables: in a line, and as files."""

from __future__ import annotations

import io
import sys
from typing import Any, Final, cast

__all__ = ["as_file", "summary"]

_MOST: Final = 100


def summary(value: object) -> str | None:
    """What an array or a table is, without its values; None for other objects.

    Args:
        value: A value of a record.

    Example:
        >>> import numpy
        >>> summary(numpy.zeros((512, 512), "f4")), summary("M 51")
        ('<float32 array, shape (512, 512)>', None)
    """
    if _is_array(value):
        array: Any = value
        return f"<{str(array.dtype)[:_MOST]} array, shape {array.shape}>"
    if _is_table(value):
        table: Any = value
        columns = ", ".join(table.column_names[:_MOST])
        return f"<table, {table.num_rows:,} rows of {columns[:_MOST]}>"
    return None


def as_file(value: object) -> tuple[bytes, str] | None:
    r"""An array as an ``.npy`` file (NEP 1), a table as an ``.arrow`` file (Arrow IPC); None for other objects.

    Args:
        value: A value of a record.

    Returns:
        The file's content, and the suffix of its name.

    Raises:
        ValueError: The array contains Python objects.

    Example:
        >>> import numpy
        >>> content, suffix = as_file(numpy.zeros(3))
        >>> content[:6], suffix
        (b'\x93NUMPY', '.npy')
    """
    if _is_array(value):
        from numpy.lib import format as npy

        content = io.BytesIO()
        npy.write_array(content, cast("Any", value), allow_pickle=False)
        return content.getvalue(), ".npy"
    if _is_table(value):
        import pyarrow as pa

        sink, table = pa.BufferOutputStream(), cast("Any", value)
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes(), ".arrow"
    return None


# A package that is not loaded has made no value.
def _is_array(value: object) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_table(value: object) -> bool:
    arrow: Any = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(value, arrow.Table)
