"""Columns for reading with the engine ``native``: Spark's own functions read the last stage, in the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, cast

from pyspark.sql import Column, functions

from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import DROPMALFORMED, FAILFAST, PERMISSIVE
from serde_chain.spark.chains.plan import FieldPlan
from serde_chain.spark.columns.headers import any_of, marked
from serde_chain.spark.columns.types import spark_of
from serde_chain.spark.reading.engine import Choice
from serde_chain.spark.reading.moments import beyond
from serde_chain.spark.spark_avro import READABLE, from_avro, required_field
from serde_chain.stages.avro.schema import AvroSchema

_TO_THE_END: Final = 2**31 - 1


def crossing(choice: Choice, value: Column, headers: Column | None) -> Column | None:
    """Whether Arrow must read a row instead.

    Args:
        choice: The engine and its instructions.
        value: The bytes, as received. The column is used several times.
        headers: The record's headers; None if no stage needs any.

    Returns:
        A condition, null for false without a value; None if it is never true.
    """
    conditions = []
    if choice.markers and headers is not None:
        conditions.append(marked(headers, choice.markers))
    if choice.open_ended:
        conditions.append(~_is_known(choice, value))
    return any_of(conditions)


def read_natively(
    choice: Choice, value: Column, field: FieldPlan, *, mode: str, context: Mapping[str, Column]
) -> Column:
    """Read the last stage.

    Args:
        choice: The engine and its instructions.
        value: The bytes of rows for which :func:`crossing` is not true. The column is used several times.
        field: The plan with which Arrow would read them.
        mode: The mode; all but ``FAILFAST`` return null for unreadable values.
        context: Columns by name that identify the record.
    """
    if choice.kind == "bytes":
        return value
    if choice.kind == "string":
        text = value.cast("string")
        result = functions.when(functions.is_valid_utf8(text), text)
    else:
        result = _avro(choice, value, mode, has_context=bool(context))
    plain = choice.kind == "avro" and len(choice.branches) == 1 and not choice.branches[0].prefix
    if mode != FAILFAST:
        return _without_beyond(choice, result)
    error = functions.concat(
        functions.lit("DecodeError: "), message(choice, value, context, KEY if field.is_key else VALUE)
    )
    whatever = functions.raise_error(error).cast(spark_of(field.arrow_type))
    if not plain or context:
        result = result.when(value.isNotNull(), whatever)
    return _without_beyond(choice, result, whatever)


def _without_beyond(choice: Choice, result: Column, instead: Column | None = None) -> Column:
    """A column with another value, or null, for records with dates, times and UUIDs that are not read."""
    if not choice.branches:
        return result
    schema = _schema_of(choice)
    if beyond(schema, result) is None:
        return result

    def of(record: Column) -> Column:
        wrong = functions.coalesce(cast(Column, beyond(schema, record)), functions.lit(False))
        kept = functions.when(~wrong, record)
        return kept if instead is None else kept.otherwise(instead)

    return let(result, of)


def _schema_of(choice: Choice) -> AvroSchema:
    """The schema into which branches are read."""
    return AvroSchema.parse(choice.reader or choice.branches[0].schema)


def _is_known(choice: Choice, value: Column) -> Column:
    """Whether a value has the prefix of a branch."""
    prefixes: Any = [functions.lit(branch.prefix) for branch in choice.branches]
    return functions.substring(value, 1, len(choice.branches[0].prefix)).isin(*prefixes)


def _avro(choice: Choice, value: Column, mode: str, *, has_context: bool) -> Column:
    result: Any = functions
    for branch in choice.branches:
        data = functions.substring(value, len(branch.prefix) + 1, _TO_THE_END) if branch.prefix else value
        read = from_avro(data, branch.schema, choice.reader, mode)
        conditions = [functions.startswith(value, functions.lit(branch.prefix))] if branch.prefix else []
        if mode == PERMISSIVE:
            # It returns a record of nulls for an unreadable value.
            read = _or_null(read, str(required_field(json.loads(choice.reader or branch.schema))))
        elif mode == DROPMALFORMED or has_context:
            probe = _probe(json.loads(choice.reader or branch.schema), whole=mode == DROPMALFORMED)
            conditions.append(from_avro(data, branch.schema, probe, PERMISSIVE)[READABLE].isNotNull())
        if not conditions:
            return read
        result = result.when(reduce(lambda a, b: a & b, conditions), read)
    column: Column = result
    return column


def _or_null(record: Column, required: str) -> Column:
    """A record, or null if a field that is never null is null."""
    return let(record, lambda whole: functions.when(whole[required].isNotNull(), whole))


def _probe(reader: dict[str, Any], *, whole: bool) -> str:
    """A reader schema that detects unreadable records faster than reading them completely.

    Avro skips the other fields and detects truncated and foreign bytes on the way, except in types of which it only
    reads the length, or nothing: these are read.
    """
    fields = [field for field in reader["fields"] if whole or not _steps_safely(field["type"])]
    return json.dumps({**reader, "fields": [*fields, {"name": READABLE, "type": "boolean", "default": True}]})


def _steps_safely(kind: Any) -> bool:
    if isinstance(kind, list):
        return all(map(_steps_safely, kind))
    if isinstance(kind, dict):
        plain = "logicalType" not in kind and kind["type"] in {"array", *_SAFE}
        return plain and (kind["type"] != "array" or _steps_safely(kind["items"]))
    return kind in _SAFE


_SAFE: Final = frozenset(["null", "boolean", "int", "long", "float", "double"])


def message(choice: Choice, value: Column, context: Mapping[str, Column], field: str) -> Column:
    """The error of an unreadable value, with its position, in the words of the other engine."""
    if choice.kind == "string":
        problem = functions.lit("the text is not UTF-8")
    else:
        text = "the bytes are not a record of the schema"
        if choice.branches and beyond(_schema_of(choice), value) is not None:
            text += ", or a date is outside the years 1 to 9999, a time not of one day, or a text not a uuid"
        problem = functions.lit(text)
        prefix = choice.branches[0].prefix if choice.branches and not choice.open_ended else b""
        if prefix:
            begins = functions.hex(functions.substring(value, 1, len(prefix)))
            expected = functions.lit(f" instead of the schema's {prefix.hex().upper()}")
            other = functions.concat(functions.lit("the data begins with "), begins, expected)
            problem = functions.when(_is_known(choice, value), problem).otherwise(other)
    parts = [problem, functions.lit(" [")]
    if "topic" in context:
        parts += [functions.lit("topic="), _text(context["topic"]), functions.lit(", ")]
    parts.append(functions.lit(f"field={field}, stage={choice.label}"))
    for name in ("partition", "offset"):
        if name in context:
            parts += [functions.lit(f", {name}="), _text(context[name])]
    return functions.concat(*parts, functions.lit("]"))


def _text(column: Column) -> Column:
    return functions.coalesce(column.cast("string"), functions.lit("null"))


def is_bad(value: Column, result: Column) -> Column:
    """Whether a value exists but is unreadable."""
    return value.isNotNull() & result.isNull()


def let(column: Column, use: Callable[[Column], Column]) -> Column:
    """Use a column several times and evaluate it once, like ``let`` in other languages."""
    return functions.get(functions.transform(functions.array(column), use), functions.lit(0))
