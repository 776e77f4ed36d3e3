"""The third reader of batches: the compiled part, which decodes records of one schema straight into a column.

Arrays cross the border by the Arrow PyCapsule interface. A record that the compiled part does not take is left to the
other readers, which report the error if there is one.
"""

from __future__ import annotations

from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.schemas.parts import MOST_FIELDS
from serde_chain.stages.avro.arrow.types import ArrowColumn
from serde_chain.stages.avro.native import Native

__all__ = ["NativeReader"]


class NativeReader:
    """Reads records of one schema into one type.

    Args:
        native: The compiled part.
        writer: The writer's schema, as returned by ``rewritten``.
        target: The reader's schema, likewise; None without resolution.
        column: The column to read into.

    Raises:
        ValueError: The compiled part does not take the schemas.
    """

    def __init__(self, native: Native, writer: Any, target: Any, column: ArrowColumn) -> None:
        self._make: Final = require("pyarrow", "arrow").array
        self._type = column.type
        self._decoder = native.column_decoder(writer, target, column.type, column.type_as_read, MOST_FIELDS)

    def read(self, values: Any, start: int, prefix: bytes = b"") -> tuple[Any, list[int]]:
        """Read records.

        Args:
            values: The records with their framing: a list, or a ``pyarrow`` array of binary or large binary.
            start: Length of the framing in bytes.
            prefix: The first bytes of a record that is taken.

        Returns:
            A ``pyarrow.Array`` with a row per record, and the rows that are not taken, which are null.
        """
        if isinstance(values, list):
            capsule, left = self._decoder.of_list(values, start, prefix)
        else:
            schema, array = values.__arrow_c_array__()
            capsule, left = self._decoder.of_array(schema, array, start, prefix)
        return self._make(_Exported(self._type, capsule)), left


class _Exported:
    """An array on its way into pyarrow."""

    def __init__(self, type_: Any, capsule: Any) -> None:
        self._type = type_
        self._capsule = capsule

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._type.__arrow_c_schema__(), self._capsule
