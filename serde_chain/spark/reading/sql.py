"""Chains as functions of Spark SQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import check_mode
from serde_chain.spark.chains.plan import ReadPlan
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.kafka import CONTEXT, KAFKA
from serde_chain.spark.prerequisites import check_packages, check_sql_functions
from serde_chain.spark.reading.columns import open_values
from serde_chain.spark.reading.functions import DECODE, result_type
from serde_chain.spark.udfs.make import plain_udf

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_COLUMNS: Final = (VALUE, "headers", *CONTEXT, KEY)


def register(
    session: SparkSession,
    name: str,
    config: Config | str | Path,
    *,
    schema: DataType | str | None = None,
    mode: str = "FAILFAST",
) -> None:
    """Make :func:`serde_chain.spark.deserialize` a temporary function of SQL, with its type.

    In SQL it takes ``value``, and optionally ``headers``, ``topic``, ``partition``, ``offset`` and ``key``, in this
    order or by name. The headers are required if the chain needs them, as with ``large-message``.

    Args:
        session: The session that gets the function.
        name: Its name; an existing function is replaced.
        config: As in :func:`serde_chain.spark.deserialize`, like the other arguments.
        schema: The type of the column.
        mode: The mode.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing, or pyspark is older than 4.0.

    Example:
        >>> register(spark, "alert", config)  # doctest: +SKIP
        >>> spark.sql("SELECT alert(value, headers).id FROM records")  # doctest: +SKIP
    """
    check_packages()
    check_sql_functions()
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a function", hint="Use letters, digits and underscores", key="name"
        )
    loaded = load(config)
    values = open_values(loaded, schema).whole
    plan = ReadPlan(loaded, _COLUMNS, values, None, (), check_mode(mode))
    function, field = plain_udf(name, DECODE, plan, result_type(plan))
    inner = f"__serde_chain_{name}"
    session.udf.register(inner, function)
    # Wrapped in an SQL function: Python's have no optional arguments, and must not get null headers.
    first, *others = [f"{column} {KAFKA[column].simpleString()}" for column in _COLUMNS]
    # Without them, a chain that needs them would take references for values.
    missing = f"raise_error('{name}() requires the headers, which mark references: {name}(value, headers)')"
    defaults = {"headers": missing} if values.needs_headers else {}
    takes = ", ".join([first, *(f"{other} DEFAULT {defaults.get(other.split()[0], 'NULL')}" for other in others)])
    given = ["coalesce(headers, array())" if column == "headers" else column for column in _COLUMNS]
    result = f"{inner}({', '.join(given)})" + (f".{field}" if field else "")
    session.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({takes}) RETURN {result}")
