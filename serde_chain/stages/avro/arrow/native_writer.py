"""Writes Arrow arrays as Avro records by the compiled part, without a Python object per row.

Arrays cross the border by the Arrow PyCapsule interface. Rows that the compiled part does not take are left to
fastavro, which reports the error if there is one.
"""

from __future__ import annotations

from typing import Any

from serde_chain.stages.avro.native import Native
from serde_chain.stages.avro.schema import AvroSchema


class NativeWriter:
    """Writes arrays by one schema. The bytes are those that fastavro writes for the same values.

    Args:
        native: The compiled part.
        schema: The schema of the records.
        prefix: The bytes in front of each record.
        ordered: Whether maps must be sorted; schemas with maps are not taken then.

    Raises:
        ValueError: The compiled part does not take the schema.
    """

    def __init__(self, native: Native, schema: AvroSchema, prefix: bytes = b"", *, ordered: bool = False) -> None:
        self._encoder = native.column_encoder(schema.parsed, prefix, ordered=ordered)

    def write(self, values: Any) -> tuple[Any, list[int]]:
        """Write rows.

        Args:
            values: A ``pyarrow.Array``; nulls stay null.

        Returns:
            A ``pyarrow.BinaryArray`` with a record per row, and the rows that are not taken, which are null.

        Raises:
            ValueError: The compiled part does not take the array's type.
        """
        return self._encoder.encode(*values.__arrow_c_array__())
