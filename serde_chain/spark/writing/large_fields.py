"""Plans for moving single fields to the store, by columns, before Spark writes the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from serde_chain.chain import SerializerChain
from serde_chain.clients.client_chains import ClientChains
from serde_chain.spark.prerequisites import has_arrow_udfs
from serde_chain.stages.large_fields.paths import Pattern
from serde_chain.stages.large_fields.write import LargeFieldsSerializer


@dataclass(frozen=True)
class MovePlan:
    """The columns that may go to the store.

    Attributes:
        paths: The names of the fields down to each column.
        kind: A struct of these columns alone, in the structs around them.
        min_bytes: Size from which they go, in bytes.
    """

    paths: tuple[tuple[str, ...], ...]
    kind: StructType
    min_bytes: int


def plan_moves(setup: ClientChains[SerializerChain], column: DataType | None) -> MovePlan | str | None:
    """Plan which columns of the values may go to the store.

    Args:
        setup: The chains.
        column: The type of the values; None if there are none.

    Returns:
        The plan; the reason if fields can only be moved with the rest of the value; None if the value chain does not
        begin with ``large-fields``, exactly.
    """
    first = setup.value.stages[0] if setup.value is not None and setup.value.stages else None
    # A subclass may behave differently.
    if not isinstance(first, LargeFieldsSerializer) or type(first) is not LargeFieldsSerializer:
        return None
    if not has_arrow_udfs():
        return "pyspark has no Arrow UDFs, which move single columns"
    paths: list[tuple[str, ...]] = []
    kinds: list[DataType] = []
    for pattern in first.patterns:
        kind = _column(pattern, column)
        if kind is None:
            return f"{pattern.text} is moved in Python: it is not a column of bytes or text"
        paths.append(tuple(step.name for step in pattern.steps))
        kinds.append(kind)
    return MovePlan(tuple(paths), _struct(list(zip(paths, kinds, strict=True))), first.min_bytes)


def _column(pattern: Pattern, kind: DataType | None) -> DataType | None:
    """The type of the only column that a pattern names; None if it may name others."""
    for step in pattern.steps:
        if step.is_glob or step.arrays or not isinstance(kind, StructType) or step.name not in kind.names:
            return None
        kind = kind[step.name].dataType
    return kind if isinstance(kind, (BinaryType, StringType)) else None


def _struct(columns: Sequence[tuple[tuple[str, ...], DataType]]) -> StructType:
    """A struct of columns by their paths, in the structs around them."""
    below: dict[str, list[tuple[tuple[str, ...], DataType]]] = {}
    for (name, *rest), kind in columns:
        below.setdefault(name, []).append((tuple(rest), kind))
    return StructType(
        [StructField(name, _struct(inner) if inner[0][0] else inner[0][1]) for name, inner in below.items()]
    )
