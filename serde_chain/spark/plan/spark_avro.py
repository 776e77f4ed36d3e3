"""Spark's own Avro functions, which need the jar ``spark-avro``: how they are called, and whether they can be."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, SparkSession, functions
from pyspark.sql.types import DataType

from serde_chain.spark.plan.arguments import FAILFAST, PERMISSIVE

__all__ = ["from_avro", "required_field", "type_of_from_avro"]


def from_avro(value: Column, schema: str, reader: str | None, mode: str) -> Column:
    """Spark's function; a mode that it lacks is ``FAILFAST``.

    Args:
        value: The binary column.
        schema: The writer's schema, as JSON.
        reader: The schema to read into, as JSON; None if it is the writer's.
        mode: The mode.
    """
    from pyspark.sql.avro import functions as avro

    options = {"mode": PERMISSIVE if mode == PERMISSIVE else FAILFAST}
    if reader is not None:
        options["avroSchema"] = reader
    return avro.from_avro(value, schema, options)


def type_of_from_avro(session: SparkSession, schemas: Sequence[str], reader: str | None, mode: str) -> DataType:
    """Try ``from_avro`` without a record: the type of the column that it would return.

    Args:
        session: Where to try it.
        schemas: The writers' schemas, as JSON.
        reader: The schema to read into, as JSON; None if it is the writers'.
        mode: The mode.

    Raises:
        Exception: What Spark raises: the jar is missing, or a schema is not one for Spark.
    """
    nothing = functions.lit(None).cast("binary")
    # Where the jar is missing, pyspark prints a page about it.
    with contextlib.redirect_stdout(io.StringIO()):
        columns = [from_avro(nothing, schema, reader, mode) for schema in schemas]
        # As writers' schemas they are not checked before the first record.
        columns += [from_avro(nothing, schema, None, mode) for schema in schemas]
        return session.range(0).select(*columns).schema[0].dataType


def required_field(schema: Mapping[str, Any]) -> str | None:
    """The first field of a record that is never null; None if all may be."""
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        if not any(kind in ("null", {"type": "null"}) for kind in kinds):
            return str(field["name"])
    return None
