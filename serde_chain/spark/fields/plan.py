"""The instructions to workers that fetch a column within values; they need no pyspark for it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class FieldColumn:
    """A column within the value that may hold references.

    Attributes:
        path: Names of fields, from the value on. What is below an array or a union belongs to one column.
        arrow_type: The ``pyarrow.DataType`` of the column.
    """

    path: tuple[str, ...]
    arrow_type: Any

    @property
    def name(self) -> str:
        """The path in Spark's notation."""
        return ".".join(self.path)


@dataclass(frozen=True)
class FetchPlan:
    """The work of a function that fetches one column.

    Attributes:
        columns: The function's arguments: the column, and the record as JSON, null without references.
        config: The whole configuration, flat.
        column: The column.
        context: The columns of Spark's Kafka source in the record; of ``headers``, only the value of ``large-fields``.
        mode: The mode.
        python: The driver's interpreter, for messages.
    """

    columns: ClassVar = ("value", "record")

    config: Mapping[str, object] = field(repr=False)
    column: FieldColumn
    context: tuple[str, ...]
    mode: str
    python: str = field(default_factory=lambda: sys.executable)
