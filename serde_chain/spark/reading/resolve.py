"""Column functions that replace references by payloads, and leave all other records to the JVM."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, functions

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import VALUE
from serde_chain.spark.arguments import check_mode
from serde_chain.spark.chains.opened import plan_references
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.headers import marked
from serde_chain.spark.columns.kafka import HEADERS, KAFKA, ColumnOrName, as_column, called, typed_columns
from serde_chain.spark.prerequisites import check_packages
from serde_chain.spark.reading.functions import run_in_workers


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
    """Replace references by their payloads.

    Only records with a format's mark cross into Python; the others stay in the JVM, as do the functions that then read
    the column, such as ``from_avro`` and ``from_protobuf``.

    Args:
        value: The binary column with the values.
        headers: The column with the headers, as returned by Spark's Kafka source with ``includeHeaders``.
        config: The configuration of a consumer with ``large-message`` in ``value.deserializers``: a mapping, or the
            path of a TOML or Java ``.properties`` file. Stages after ``large-message`` are not run.
        topic: Column with the topic. This and the next two identify the record in errors.
        partition: Column with the partition.
        offset: Column with the offset.
        mode: ``FAILFAST`` ends the query at a payload that cannot be retrieved; ``PERMISSIVE`` and
            ``DROPMALFORMED`` return null.

    Returns:
        A binary column.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.

    Example:
        >>> payload = resolve("value", "headers", config, topic="topic", offset="offset")  # doctest: +SKIP
        >>> records.select(from_avro(payload, schema))  # doctest: +SKIP
    """
    check_packages()
    loaded = load(config)
    plan = plan_references(loaded, is_key=False)
    if plan is None:
        raise _no_references()
    beside = typed_columns(headers=headers, topic=topic, partition=partition, offset=offset)
    columns = {VALUE: as_column(value), **beside}
    crossing = marked(columns["headers"], plan.markers)
    result = run_in_workers("resolve", loaded, columns, value=plan, mode=check_mode(mode), where=crossing)
    return called("resolve", value, functions.when(crossing, result).otherwise(columns[VALUE]))


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
    """Replace references by stored records: with their original value, headers, key and timestamp.

    Args:
        value: As in :func:`resolve`.
        headers: As in :func:`resolve`.
        key: The binary column with the keys; resolved too if ``key.deserializers`` has ``large-message``.
        config: As in :func:`resolve`, for values, keys or both.
        topic: As in :func:`resolve`.
        partition: As in :func:`resolve`.
        offset: As in :func:`resolve`.
        timestamp: Column with the timestamps, for formats that do not store one.
        mode: As in :func:`resolve`; a field that cannot be retrieved is then null.

    Returns:
        A column of structs with the fields ``value`` (binary), ``headers`` (an array, as in Spark's Kafka source),
        ``key`` (binary) and ``timestamp``. Transport headers are removed; ``headers`` is null if none are left.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.

    Example:
        >>> record = resolve_record("value", "headers", "key", config, timestamp="timestamp")  # doctest: +SKIP
        >>> records.select(record.alias("record")).select("record.*")  # doctest: +SKIP
    """
    check_packages()
    loaded = load(config)
    of_value, of_key = (plan_references(loaded, is_key=is_key) for is_key in (False, True))
    plans = [plan for plan in (of_value, of_key) if plan is not None]
    if not plans:
        raise _no_references()
    came = {
        "value": as_column(value),
        "headers": as_column(headers).cast(HEADERS),
        "key": as_column(key),
        "timestamp": as_column(functions.lit(None) if timestamp is None else timestamp).cast(KAFKA["timestamp"]),
    }
    result = run_in_workers(
        "resolve_record",
        loaded,
        {**came, **typed_columns(topic=topic, partition=partition, offset=offset)},
        value=of_value,
        key=of_key,
        gives=tuple(came),
        mode=check_mode(mode),
        where=marked(came["headers"], *[plan.markers for plan in plans]),
        leaves_empty=True,
    )
    # The column is used once: Spark would call the function once per use.
    own = functions.struct(*(column.alias(name) for name, column in came.items()))
    return called("resolve_record", value, functions.coalesce(result, own))


def _no_references() -> ConfigError:
    return ConfigError(
        "no stage of the configuration follows references",
        hint="Name large-message in value.deserializers",
        key="value.deserializers",
    )
