"""The rule of :mod:`serde_chain.stages.avro.moments` for columns that Spark's own ``from_avro`` has read."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, functions

from serde_chain.stages.avro.moments import LIMITS, UUID_TYPE, limited
from serde_chain.stages.avro.resolution import branches
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import bare, kind

_ENDS: Final = ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999")
_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "date": ("date", ""),
    "timestamp-millis": ("timestamp", "+00:00"),
    "timestamp-micros": ("timestamp", "+00:00"),
    "local-timestamp-millis": ("timestamp_ntz", ""),
    "local-timestamp-micros": ("timestamp_ntz", ""),
}
"""The type of a column, and the time zone of the limits as text."""


def beyond(schema: AvroSchema, record: Column) -> Column | None:
    """Whether a record has a date, time or UUID that is not read; null for false.

    Args:
        schema: The schema that it was read into.
        record: The record. The column is used several times.

    Returns:
        A condition; None if the schema has no such types.
    """
    return _beyond(schema.parsed, record, schema.named)


def _beyond(schema: Any, column: Column, named: Mapping[str, Any]) -> Column | None:
    schema = bare(schema, named)
    if isinstance(schema, list):
        members = branches(schema, named)
        if members is not None:
            return _any([_beyond(each, column[f"member{at}"], named) for at, each in enumerate(members)])
        others = [branch for branch in schema if kind(bare(branch, named)) != "null"]
        return _beyond(others[0], column, named) if len(others) == 1 else None
    match kind(schema):
        case "record":
            return _any([_beyond(field["type"], column[field["name"]], named) for field in schema["fields"]])
        case "array" | "map" as which:
            item = schema["items" if which == "array" else "values"]
            if _beyond(item, column, named) is None:
                return None
            values = column if which == "array" else functions.map_values(column)
            return functions.exists(values, lambda value: _or_false(_beyond(item, value, named)))
    logical = limited(schema)
    return None if logical is None else _leaf(logical, column)


def _leaf(logical: str, column: Column) -> Column:
    if logical == UUID_TYPE:
        plain = functions.regexp_replace(column, "urn:|uuid:|-|^\\{+|\\}+$", "")
        return ~plain.rlike("^[0-9a-fA-F]{32}$")
    if logical not in _TYPES:
        least, most = LIMITS[logical]
        return (column < least) | (column > most)
    type_, zone = _TYPES[logical]
    first, last = (functions.lit(end[:10] if type_ == "date" else end + zone).cast(type_) for end in _ENDS)
    return (column < first) | (column > last)


def _or_false(condition: Column | None) -> Column:
    return functions.coalesce(functions.lit(False) if condition is None else condition, functions.lit(False))


def _any(conditions: list[Column | None]) -> Column | None:
    given = [_or_false(condition) for condition in conditions if condition is not None]
    return reduce(operator.or_, given) if given else None
