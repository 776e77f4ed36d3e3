"""Calls of Spark's own Avro functions, which need the jar ``spark-avro``, and checks of their availability."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from pyspark.sql import Column, SparkSession, functions
from pyspark.sql.types import DataType

from serde_chain.spark.arguments import FAILFAST, PERMISSIVE
from serde_chain.stages.avro.schema import AvroSchema

READABLE: Final = "__serde_chain_readable"
"""An extra field for ``from_avro`` to read, whose default shows success."""


_GREGORIAN: Final = "CORRECTED"
_REBASE: Final = "spark.sql.avro.datetimeRebaseModeInWrite"


def changes_dates(session: SparkSession) -> str | None:
    """The session setting that makes ``to_avro``, which has no options, write old dates in another calendar.

    Args:
        session: The session.

    Returns:
        The setting, and the value that keeps dates; None if dates are written unchanged.
    """
    mode = session.conf.get(_REBASE)
    return None if mode == _GREGORIAN else f"{_REBASE} = {mode}, not {_GREGORIAN}"


def from_avro(value: Column, schema: str, reader: str | None, mode: str) -> Column:
    """Spark's function; modes that it lacks become ``FAILFAST``.

    Args:
        value: The binary column.
        schema: The writer's schema, as JSON.
        reader: The schema to read into, as JSON; None if it is the writer's.
        mode: The mode.
    """
    from pyspark.sql.avro import functions as avro

    # Avro's calendar is Gregorian, regardless of the session's setting for files of older Sparks.
    options = {"mode": PERMISSIVE if mode == PERMISSIVE else FAILFAST, "datetimeRebaseMode": _GREGORIAN}
    if reader is not None:
        options["avroSchema"] = reader
    return avro.from_avro(value, schema, options)


def type_of_from_avro(session: SparkSession, schemas: Sequence[str], reader: str | None, mode: str) -> DataType:
    """Try ``from_avro`` without a record; returns the type of its column.

    Args:
        session: The session to try it in.
        schemas: The writers' schemas, as JSON.
        reader: The schema to read into, as JSON; None if it is the writers'.
        mode: The mode.

    Raises:
        Exception: Spark's error: the jar is missing, or a schema is unsupported.
    """
    nothing = functions.lit(None).cast("binary")
    # If the jar is missing, pyspark prints a page about it.
    with contextlib.redirect_stdout(io.StringIO()):
        columns = [from_avro(nothing, schema, reader, mode) for schema in schemas]
        # Writers' schemas are not checked before the first record.
        columns += [from_avro(nothing, schema, None, mode) for schema in schemas]
        return session.range(0).select(*columns).schema[0].dataType


def required_field(schema: Mapping[str, Any]) -> str | None:
    """The first field of a record that is never null; None if all may be."""
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        if not any(kind in ("null", {"type": "null"}) for kind in kinds):
            return str(field["name"])
    return None


def aliases_not_told_apart(reader: AvroSchema, writers: Sequence[AvroSchema]) -> tuple[str, str] | None:
    """A name and its alias that Avro's Java implementation, and so Spark, does not distinguish; None without any.

    It renames a writer's fields and types by the reader's aliases, also where the reader has the old name itself, or
    the writer the new one. In the specification, and here, an alias counts where the name is missing.

    Args:
        reader: The schema to read into.
        writers: The writers' schemas.
    """
    for definition in reader.named.values():
        for alias in definition.get("aliases", ()):
            if alias in reader.named or any({alias, definition["name"]} <= other.named.keys() for other in writers):
                return definition["name"], alias
        names = {field["name"] for field in definition.get("fields", ())}
        for field in definition.get("fields", ()):
            for alias in set(field.get("aliases", ())) - {field["name"]}:
                if alias in names or any(_has_fields(other, {alias, field["name"]}) for other in writers):
                    return field["name"], alias
    return None


def _has_fields(schema: AvroSchema, names: AbstractSet[str]) -> bool:
    """Whether a record of a schema has fields of some names."""
    return any(
        names <= {field["name"] for field in definition.get("fields", ())} for definition in schema.named.values()
    )


def names_not_told_apart(schema: AvroSchema) -> tuple[str, str] | None:
    """Two fields of a record whose names Spark's functions do not distinguish; None if there are none.

    Spark ignores case, and fails at each record of such a schema, but not when a query is planned.

    Args:
        schema: The schema.
    """
    for definition in schema.named.values():
        known = {READABLE: READABLE}
        for field in definition.get("fields", ()):
            other = known.setdefault(field["name"].lower(), field["name"])
            if other is not field["name"]:
                return other, field["name"]
    return None


def unwritable(schema: AvroSchema) -> str | None:
    """Why ``to_avro`` fails at each record of a schema that ``from_avro`` reads; None if it writes it.

    Args:
        schema: The schema.
    """
    if isinstance(schema.parsed, list) and sum(branch != "null" for branch in schema.parsed) > 1:
        return "to_avro writes no union of several types as a whole record"
    if (names := names_not_told_apart(schema)) is not None:
        return f"to_avro does not distinguish the fields {' and '.join(names)}"
    if any(map(_is_of_nothing, [schema.parsed, *schema.named.values()])):
        return "to_avro writes no union of null alone"  # read as an empty struct
    return None


def _is_of_nothing(part: Any) -> bool:
    """Whether a union in a type has no branch but null; not in the definitions that it names."""
    if isinstance(part, list):
        return all(branch in ("null", {"type": "null"}) for branch in part) or any(map(_is_of_nothing, part))
    if not isinstance(part, dict):
        return False
    below = [part.get(name) for name in ("type", "items", "values")]
    return any(map(_is_of_nothing, [*below, *part.get("fields", ())]))
