"""Column functions that put payloads in place of references, and leave all other records to the JVM."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, functions
from pyspark.sql.types import BinaryType, DataType, StructField, StructType, TimestampType

from payload_stores.plugins import require
from serde_chain.chain import DeserializerChain
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.spark.plan.plan import FieldPlan, Plan, check_mode, load
from serde_chain.spark.plan.prerequisites import check_packages
from serde_chain.spark.plan.schemas import HEADERS, ColumnOrName, as_column
from serde_chain.spark.udfs import make_function
from serde_chain.stages.large_message.read import LargeMessageDeserializer

__all__ = ["marked", "plan_references", "read_bytes", "resolve", "resolve_record"]

_CONTEXT: Final = ("topic", "partition", "offset")
_TYPES: Final = {"topic": "string", "partition": "int", "offset": "bigint"}


def resolve(
    value: ColumnOrName,
    headers: ColumnOrName,
    config: Config | str | Path,
    *,
    topic: ColumnOrName | None = None,
    partition: ColumnOrName | None = None,
    offset: ColumnOrName | None = None,
    mode: str = "FAILFAST",
) -> Column:
    """Put payloads in place of references to them.

    Only records that bear a format's mark cross into Python; the others stay in the JVM, as do the functions that read
    the column afterwards, as ``from_avro`` and ``from_protobuf``.

    Args:
        value: The binary column with the values.
        headers: The column with the headers, as Spark's Kafka source gives it with ``includeHeaders``.
        config: The configuration of a consumer with ``large-message`` in ``value.deserializers``: a mapping, or the
            path of a TOML or Java ``.properties`` file. Stages after ``large-message`` are not run.
        topic: Column with the topic. This and the next two say in errors which record it was.
        partition: Column with the partition.
        offset: Column with the offset.
        mode: ``FAILFAST`` ends the query where a payload cannot be had; ``PERMISSIVE`` and ``DROPMALFORMED`` give null.

    Returns:
        A binary column.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.
    """
    check_packages()
    loaded = load(config)
    plan, names = plan_references(loaded, is_key=False)
    if plan is None:
        raise _no_references()
    context = {"topic": topic, "partition": partition, "offset": offset}
    return read_bytes(value, headers, loaded, plan, names=names, context=context, mode=mode)


def read_bytes(
    value: ColumnOrName,
    headers: ColumnOrName,
    config: dict[str, object],
    plan: FieldPlan,
    *,
    names: frozenset[str] | None,
    context: Mapping[str, ColumnOrName | None],
    mode: str,
) -> Column:
    """Run the first stages of a chain, which give bytes, on the records that they are for.

    Args:
        value: The binary column with the values.
        headers: The column with the headers.
        config: Flat configuration.
        plan: Which stages.
        names: Headers of which these records have one; None for all records.
        context: Columns with topic, partition and offset, where they are known.
        mode: The mode.
    """
    whole, head = as_column(value), as_column(headers).cast(HEADERS)
    offloaded = marked(head, names)
    columns = {"value": whole, "headers": head}
    for name in _CONTEXT:
        given = context.get(name)
        if given is not None:
            columns[name] = as_column(given).cast(_TYPES[name])
    shipped = Plan(config, tuple(columns), plan, None, gives=(), mode=check_mode(mode), python=sys.executable)
    function = make_function("resolve", shipped, BinaryType())
    fetched: Column = function(*(functions.when(offloaded, column) for column in columns.values()))
    return functions.when(offloaded, fetched).otherwise(whole)


def resolve_record(
    value: ColumnOrName,
    headers: ColumnOrName,
    key: ColumnOrName,
    config: Config | str | Path,
    *,
    topic: ColumnOrName | None = None,
    partition: ColumnOrName | None = None,
    offset: ColumnOrName | None = None,
    timestamp: ColumnOrName | None = None,
    mode: str = "FAILFAST",
) -> Column:
    """Put stored records in place of references: value, headers, key and timestamp as they were before.

    Args:
        value: As in :func:`resolve`.
        headers: As in :func:`resolve`.
        key: The binary column with the keys; resolved too where ``key.deserializers`` has ``large-message``.
        config: As in :func:`resolve`, for values, keys or both.
        topic: As in :func:`resolve`.
        partition: As in :func:`resolve`.
        offset: As in :func:`resolve`.
        timestamp: Column with the timestamps, for formats that do not store one.
        mode: As in :func:`resolve`; null is then the field that cannot be had.

    Returns:
        A column ``struct<value: binary, headers: array<struct<key: string, value: binary>>, key: binary, timestamp:
        timestamp>``. Transport headers are removed from the headers; null where none are left, as Spark has it.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.
    """
    check_packages()
    loaded = load(config)
    plans = [plan_references(loaded, is_key=is_key) for is_key in (False, True)]
    (of_value, _), (of_key, _) = plans
    found = [markers for plan, markers in plans if plan is not None]
    if not found:
        raise _no_references()
    head = as_column(headers).cast(HEADERS)
    names = None if None in found else frozenset[str]().union(*(markers for markers in found if markers is not None))
    offloaded = marked(head, names)
    came = {
        "value": as_column(value),
        "headers": head,
        "key": as_column(key),
        "timestamp": (functions.lit(None) if timestamp is None else as_column(timestamp)).cast("timestamp"),
    }
    columns = {**came, "timestamp": functions.unix_millis(came["timestamp"])}
    for name, given in zip(_CONTEXT, (topic, partition, offset), strict=True):
        columns[name] = (functions.lit(None) if given is None else as_column(given)).cast(_TYPES[name])
    fields: dict[str, DataType] = {
        "value": BinaryType(),
        "headers": HEADERS,
        "key": BinaryType(),
        "timestamp": TimestampType(),
    }
    shipped = Plan(
        loaded,
        tuple(columns),
        of_value,
        of_key,
        gives=tuple(fields),
        mode=check_mode(mode),
        python=sys.executable,
        leaves_empty=True,
    )
    returns = StructType([StructField(name, kind) for name, kind in fields.items()])
    function = make_function("resolve_record", shipped, returns)
    fetched = function(*(functions.when(offloaded, column) for column in columns.values()))
    # The function stands here once: where its result were used twice, Spark would call it twice.
    return functions.coalesce(fetched, functions.struct(*(column.alias(name) for name, column in came.items())))


def plan_references(
    config: dict[str, object], *, is_key: bool, stages: int = 0
) -> tuple[FieldPlan | None, frozenset[str] | None]:
    """Plan the stages of a chain up to the one that follows references.

    Args:
        config: Flat configuration.
        is_key: Whether for keys.
        stages: As many stages instead, which give bytes.

    Returns:
        The plan, None if there is nothing to do; and the names of headers of which every record that the stages change
        has one, None if they may change any record.
    """
    with DeserializerChain.from_config(config, is_key=is_key) as chain:
        moving = [at for at, stage in enumerate(chain.stages, 1) if getattr(stage, "moves_payloads", False)]
        count = stages or (moving[0] if moving else 0)
        if not count:
            return None, None
        first = chain.stages[0]
        plan = FieldPlan(
            is_key,
            require("pyarrow", "spark").binary(),
            needs_headers=bool(moving),
            stages=count,
            restores=any(getattr(stage, "restores_records", False) for stage in chain.stages[:count]),
        )
        # What another stage takes off, it takes off all records.
        known = count == 1 and isinstance(first, LargeMessageDeserializer)
        return plan, first.marker_headers() if known else None


def marked(headers: Column, names: Iterable[str] | None) -> Column:
    """Whether a record may hold a reference."""
    if names is None:
        return functions.lit(True)
    wanted: Any = sorted(names)
    return functions.exists(headers, lambda header: header["key"].isin(*wanted))


def _no_references() -> ConfigError:
    return ConfigError(
        "no stage of the configuration follows references",
        hint="Name large-message in value.deserializers",
        key="value.deserializers",
    )
