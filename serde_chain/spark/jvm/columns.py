"""Columns for the engine ``native``: Spark's own functions read the last stage, in the JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, functions
from pyspark.sql.types import DataType

from serde_chain.spark.plan.arguments import DROPMALFORMED, FAILFAST, PERMISSIVE
from serde_chain.spark.plan.engine import Choice
from serde_chain.spark.plan.spark_avro import from_avro, required_field

__all__ = ["is_bad", "let", "message", "read_natively"]

# A field that no record has, in a schema to read into: it has its default where a record could be read, and is null
# where from_avro has given up.
_READABLE: Final = "__serde_chain_readable"
_TO_THE_END: Final = 2**31 - 1
# Confluent's framing begins with it.
_MAGIC: Final = b"\0"


def read_natively(
    choice: Choice, value: Column, kind: DataType, *, mode: str, context: Mapping[str, Column], field: str
) -> Column:
    """Read the last stage.

    Args:
        choice: What to do.
        value: The output of the stages before. It is used several times.
        kind: Type of the result.
        mode: The mode; all but ``FAILFAST`` return null for what cannot be read.
        context: Columns by name that identify the record.
        field: ``key`` or ``value``.
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
        unknown = _names_an_unknown_id(choice, value)
        if unknown is None:
            return result
        # The id may have been registered since, which is not the record's fault: no row may be lost to that.
        text = functions.concat(functions.lit("SchemaRegistryError: "), message(choice, value, context, field))
        # First, since from_avro must not see such bytes.
        return functions.when(unknown, functions.raise_error(text).cast(kind)).otherwise(result)
    if plain and not context:
        return result
    error = functions.concat(functions.lit("DecodeError: "), message(choice, value, context, field))
    whatever = functions.raise_error(error).cast(kind)
    return result.when(value.isNotNull(), whatever)


def _names_an_unknown_id(choice: Choice, value: Column) -> Column | None:
    """Whether a value names, in the registry's framing, none of the schemas that are known; None without framing."""
    prefixes = [branch.prefix for branch in choice.branches if branch.prefix.startswith(_MAGIC)]
    if not prefixes:
        return None
    framed = functions.startswith(value, functions.lit(_MAGIC)) & (functions.length(value) >= len(prefixes[0]))
    return framed & ~_begins_with(value, prefixes)


def _begins_with(value: Column, prefixes: list[bytes]) -> Column:
    return reduce(lambda a, b: a | b, [functions.startswith(value, functions.lit(prefix)) for prefix in prefixes])


def _avro(choice: Choice, value: Column, mode: str, *, has_context: bool) -> Column:
    result: Any = functions
    for branch in choice.branches:
        data = functions.substring(value, len(branch.prefix) + 1, _TO_THE_END) if branch.prefix else value
        read = from_avro(data, branch.schema, choice.reader, mode)
        conditions = [functions.startswith(value, functions.lit(branch.prefix))] if branch.prefix else []
        if mode == PERMISSIVE:
            # It returns a record of nothing but nulls for what it cannot read.
            read = _or_null(read, str(required_field(json.loads(choice.reader or branch.schema))))
        elif mode == DROPMALFORMED or has_context:
            probe = _probe(json.loads(choice.reader or branch.schema), whole=mode == DROPMALFORMED)
            conditions.append(from_avro(data, branch.schema, probe, PERMISSIVE)[_READABLE].isNotNull())
        if not conditions:
            return read
        result = result.when(reduce(lambda a, b: a & b, conditions), read)
    column: Column = result
    return column


def _or_null(record: Column, required: str) -> Column:
    """A record, or null where a field is null that never is."""
    return let(record, lambda whole: functions.when(whole[required].isNotNull(), whole))


def _probe(reader: dict[str, Any], *, whole: bool) -> str:
    """A schema to read into that finds what cannot be read, in less time than reading all of it.

    Avro steps over the other fields. On the way it finds what is cut off or foreign, save in types of which it only
    reads the length, or nothing: these are read.
    """
    fields = [field for field in reader["fields"] if whole or not _steps_safely(field["type"])]
    return json.dumps({**reader, "fields": [*fields, {"name": _READABLE, "type": "boolean", "default": True}]})


def _steps_safely(kind: Any) -> bool:
    if isinstance(kind, list):
        return all(map(_steps_safely, kind))
    if isinstance(kind, dict):
        plain = "logicalType" not in kind and kind["type"] in {"array", *_SAFE}
        return plain and (kind["type"] != "array" or _steps_safely(kind["items"]))
    return kind in _SAFE


_SAFE: Final = frozenset(["null", "boolean", "int", "long", "float", "double"])


def message(choice: Choice, value: Column, context: Mapping[str, Column], field: str) -> Column:
    """The error of a value that could not be read, with its place, in the words of the other engine."""
    if choice.kind == "string":
        problem = functions.lit("the text is not UTF-8")
    else:
        problem = functions.lit("the bytes are not a record of the schema")
        prefixes = [branch.prefix for branch in choice.branches if branch.prefix]
        if prefixes:
            known = _begins_with(value, prefixes)
            begins = functions.hex(functions.substring(value, 1, len(prefixes[0])))
            unknown = functions.concat(
                functions.lit("the data begins with "),
                begins,
                functions.lit(", which is not the id of a schema that was known when the query was planned"),
                functions.lit(": restart the query if it was registered since, or use engine='arrow'"),
            )
            problem = functions.when(known, problem).otherwise(unknown)
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
    """Whether there was a value, and it could not be read."""
    return value.isNotNull() & result.isNull()


def let(column: Column, use: Callable[[Column], Column]) -> Column:
    """Use a column several times and have it evaluated once, as ``let`` does in other languages."""
    return functions.get(functions.transform(functions.array(column), use), functions.lit(0))
