"""Arrays and tables in a line."""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["summary"]

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
    # Whoever made the value has imported its package.
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        array: Any = value
        return f"<{str(array.dtype)[:_MOST]} array, shape {array.shape}>"
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(value, arrow.Table):
        table: Any = value
        columns = ", ".join(table.column_names[:_MOST])
        return f"<table, {table.num_rows:,} rows of {columns[:_MOST]}>"
    return None
