"""Dates, times, UUIDs and decimals: the values that are read, by one rule for records, columns and Spark.

Avro's numbers reach further than Python's dates, any text may be declared a UUID, and any bytes a decimal of few
digits. Such a record is undecodable, in every form of reading alike, so that error policies keep the same records. A
reader schema without the logical type reads the number, the text, or the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import time
from typing import Any, Final, NamedTuple
from uuid import UUID

from serde_chain.stages.avro.types import bare, decimal_of, has_digits, kind

UUID_TYPE: Final = "uuid"
_DECIMAL: Final = "decimal"
_DAY_MS: Final = 86_400_000
# Python's dates are of the years 1 to 9999.
_DAYS: Final = (-719_162, 2_932_896)
_MS: Final = (_DAYS[0] * _DAY_MS, (_DAYS[1] + 1) * _DAY_MS - 1)
_MICROS: Final = (_MS[0] * 1000, _MS[1] * 1000 + 999)

LIMITS: Final[Mapping[str, tuple[int, int]]] = {
    "date": _DAYS,
    "time-millis": (0, _DAY_MS - 1),
    "time-micros": (0, _DAY_MS * 1000 - 1),
    "timestamp-millis": _MS,
    "timestamp-micros": _MICROS,
    "local-timestamp-millis": _MS,
    "local-timestamp-micros": _MICROS,
}
"""The smallest and the largest number of each logical type."""

REMEDY: Final = "To get the {what} itself, read into an avro.reader.schema in which the field has no logicalType"


class Beyond(NamedTuple):
    """A value that is not read.

    Attributes:
        path: The names of the fields down to it.
        logical: Its logical type.
        precision: That of a decimal.
    """

    path: tuple[str, ...]
    logical: str
    precision: int = 0

    @property
    def message(self) -> str:
        """What is wrong."""
        where = f"the field {'.'.join(self.path)}" if self.path else "the value"
        if self.logical == UUID_TYPE:
            return f"{where} is not a {self.logical}"
        if self.logical == _DECIMAL:
            return f"{where} is a decimal with more digits than its precision of {self.precision}"
        if self.logical.startswith("time-"):
            return f"{where} is not a {self.logical} of one day"
        return f"{where} is a {self.logical} outside the years 1 to 9999"

    @property
    def hint(self) -> str:
        """What to do."""
        if self.logical == _DECIMAL:
            return (
                "Read into an avro.reader.schema in which its precision is larger; or it has no logicalType, for bytes"
            )
        return REMEDY.format(what="text" if self.logical == UUID_TYPE else "number")


def limited(schema: Any) -> str | None:
    """The logical type of a bare schema, if it has values that are not read."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    is_text = logical == UUID_TYPE and kind(schema) == "string"
    return logical if is_text or (logical in LIMITS and kind(schema) in {"int", "long"}) else None


def is_uuid(text: str) -> bool:
    """Whether Python takes a text for a UUID.

    Example:
        >>> is_uuid("7fdc7a2c-2a5b-4a55-9a62-c0d4b4cdd2c3"), is_uuid("unknown")
        (True, False)
    """
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def read_time(number: int, schema: Any, _reader_schema: Any = None) -> time:
    """Read a time of day; called by fastavro for the logical type.

    Raises:
        ValueError: It is of another day.
    """
    logical = schema["logicalType"]
    per_second = 1000 if logical.endswith("millis") else 1_000_000
    if not 0 <= number < 86_400 * per_second:
        raise ValueError("a time is not of one day")
    seconds, rest = divmod(number, per_second)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * (1_000_000 // per_second))


def beyond(schema: Any, value: Any, named: Mapping[str, Any]) -> Beyond | None:
    """The first value in a record that is not read.

    Args:
        schema: The parsed schema.
        value: The record, read without logical types; that of a union of several types besides null is a tuple of the
            position of its type among these, and the value.
        named: Definitions of named types.
    """
    return next(_beyond(schema, value, named, ()), None)


def _beyond(schema: Any, value: Any, named: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Beyond]:
    schema = bare(schema, named)
    if value is None:
        return
    if isinstance(schema, list):
        others = [branch for branch in schema if kind(bare(branch, named)) != "null"]
        if len(others) > 1 and not isinstance(value, tuple):
            return  # of int and long, or of float and double: one type in columns, without a logical type
        at, inner = value if len(others) > 1 else (0, value)
        yield from _beyond(others[at], inner, named, path)
        return
    match kind(schema):
        case "record":
            for field in schema["fields"]:
                yield from _beyond(field["type"], value[field["name"]], named, (*path, field["name"]))
        case "array" | "map" as which:
            for item in value if which == "array" else value.values():
                yield from _beyond(schema["items" if which == "array" else "values"], item, named, path)
        case _ if (logical := limited(schema)) is not None and not _is_read(logical, value):
            yield Beyond(path, logical)
        case _ if (shape := decimal_of(schema)) is not None and not has_digits(_number(value), shape[0]):
            yield Beyond(path, _DECIMAL, shape[0])


def _number(value: Any) -> int:
    return int.from_bytes(value, signed=True)


def _is_read(logical: str, value: Any) -> bool:
    if logical == UUID_TYPE:
        return is_uuid(value)
    least, most = LIMITS[logical]
    return bool(least <= value <= most)
