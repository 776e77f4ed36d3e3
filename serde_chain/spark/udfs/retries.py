"""The number of requests repeated by stores, as a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from payload_stores.plugins import require

RETRIES: Final = "serde_retries"
"""The column's name."""


class Retries:
    """Counts between batches.

    Args:
        total: Returns the number of repeated requests since the process began.

    Example:
        >>> import pyarrow as pa
        >>> totals = iter([1, 3])
        >>> retries = Retries(lambda: next(totals))
        >>> retries.column(pa.array([False, True, True])).to_pylist()
        [0, 2, 0]
    """

    def __init__(self, total: Callable[[], int]) -> None:
        self._total = total
        self._before = total()

    def column(self, rows: Any) -> Any:
        """The number since the last call.

        Args:
            rows: A ``pyarrow.BooleanArray``: whether a row may have caused a retry.

        Returns:
            A ``pyarrow.Int64Array`` with the whole number in the first row that may have caused it, otherwise 0.
        """
        arrow: Any = require("pyarrow", "spark")
        compute: Any = require("pyarrow.compute", "spark")
        now = self._total()
        counts = [0] * len(rows)
        if counts:
            counts[max(compute.index(rows, value=True).as_py(), 0)] = now - self._before
            self._before = now
        return arrow.array(counts, arrow.int64())
