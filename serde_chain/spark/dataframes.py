"""DataFrames of Spark's Kafka source into DataFrames of typed columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, functions

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.jvm.decode import DECODED, ERROR, decode_natively
from serde_chain.spark.plan.arguments import DROPMALFORMED, PERMISSIVE, as_topics, check_engine, check_mode
from serde_chain.spark.plan.engine import choose
from serde_chain.spark.plan.fields import plan_field
from serde_chain.spark.plan.kafka import KAFKA
from serde_chain.spark.plan.plan import FieldPlan, changed_columns
from serde_chain.spark.plan.portable import load
from serde_chain.spark.plan.prerequisites import check_packages, check_worker_python
from serde_chain.spark.plan.types import as_nullable
from serde_chain.spark.udfs import run_in_workers
from serde_chain.spark.unreadable import RAW, raw_records

__all__ = ["decode"]


def decode(
    config: Config | str | Path,
    *,
    mode: str = "FAILFAST",
    engine: str = "auto",
    topics: str | Sequence[str] = (),
    raw: bool = False,
) -> Callable[[DataFrame], DataFrame]:
    """Make a transformation for DataFrames of Spark's Kafka source, in batch and in structured streaming.

    Example:
        >>> records = spark.read.format("kafka").option("includeHeaders", "true")...load()  # doctest: +SKIP
        >>> alerts = records.transform(decode(config))  # doctest: +SKIP

    Args:
        config: The configuration of a consumer: a mapping, or the path of a TOML or Java ``.properties`` file.
        mode: For records that cannot be read: ``FAILFAST`` ends the query with an error that names topic, partition and
            offset; ``PERMISSIVE`` leaves null, and adds the string column ``serde_error`` (null for good records);
            ``DROPMALFORMED`` drops the row. What is not the record's own fault (a store, registry or key provider that
            is down or refuses) ends the query in all modes.
        engine: What reads the last stage. ``arrow``: Python, in Arrow's form. ``native``: Spark's own functions, as
            ``from_avro`` (the jar ``spark-avro``), in the JVM; only records with references then pass through Python.
            ``auto``: ``native`` where that reads all that ``arrow`` reads; :func:`serde_chain.spark.explain` says why.
        topics: For ``native`` with a schema registry: the topics, whose subjects have the schemas. Schemas registered
            after the query was planned are not known to it.
        raw: With ``PERMISSIVE``: add the column ``serde_raw`` as well, a struct of ``value``, ``headers``, ``key`` and
            ``timestamp`` as they came, null for good records. :func:`serde_chain.spark.dead_letters` takes it.

    Returns:
        A function from DataFrame to DataFrame. ``value`` becomes the typed column of ``value.deserializers``, and
        ``key`` that of ``key.deserializers``; without these they stay binary. Headers that stages have used are taken
        out of ``headers``. All other columns stay.

    Raises:
        ConfigError: The configuration or an argument is wrong; from the function: a column is missing or of a wrong
            type.
        MissingDependencyError: A package is missing, also in the workers' interpreter where that can be seen.
    """
    check_packages()
    check_engine(engine)
    mode = check_mode(mode)
    if raw and mode != PERMISSIVE:
        raise ConfigError(
            f"raw=True keeps what cannot be read, which {mode} does not",
            hint=f'Set mode="{PERMISSIVE}" beside it',
            key="raw",
        )
    loaded = load(config)
    value = plan_field(loaded, is_key=False)
    key = plan_field(loaded, is_key=True)
    if value is None and key is None:
        raise ConfigError(
            "the configuration names neither value.deserializers nor key.deserializers",
            hint='Set value.deserializers, for instance to "large-message, zstd, avro"',
            key="value.deserializers",
        )

    def transform(frame: DataFrame) -> DataFrame:
        """Decode the Kafka columns of a DataFrame."""
        _check_columns(frame, value, key)
        if not raw:
            return decoded(frame)
        done = decoded(raw_records(frame))
        return done.withColumn(RAW, functions.when(functions.col(ERROR).isNotNull(), functions.col(RAW)))

    def decoded(frame: DataFrame) -> DataFrame:
        choices = {
            KEY if field.is_key else VALUE: choose(
                loaded, field, engine=engine, mode=mode, topics=as_topics(topics), session=frame.sparkSession
            )
            for field in (key, value)
            if field is not None
        }
        if all(choice.native for choice in choices.values()):
            return decode_natively(frame, loaded, choices, {KEY: key, VALUE: value}, mode)
        check_worker_python(frame.sparkSession)
        columns = {name: functions.col(name) for name in KAFKA if name in frame.columns}
        gives = changed_columns(columns, value, key, mode)
        done = frame.withColumn(
            DECODED, run_in_workers("decode", loaded, columns, value=value, key=key, gives=gives, mode=mode)
        )
        if mode == DROPMALFORMED:
            done = done.where(functions.col(DECODED).getField("error").isNull())
        selected = [
            functions.col(DECODED).getField(name).alias(name) if name in gives else functions.col(f"`{name}`")
            for name in frame.columns
        ]
        if mode == PERMISSIVE:
            selected.append(functions.col(DECODED).getField("error").alias(ERROR))
        return done.select(*selected)

    return transform


def _check_columns(frame: DataFrame, value: FieldPlan | None, key: FieldPlan | None) -> None:
    """Refuse a DataFrame that is not one of Spark's Kafka source.

    Raises:
        ConfigError: Names the column.
    """
    types = {field.name: field.dataType for field in frame.schema}
    needed = {"value"} | ({"key"} if key is not None else set())
    if any(field is not None and field.needs_headers for field in (value, key)):
        needed.add("headers")
    for name, expected in KAFKA.items():
        kind = types.get(name)
        if kind is None:
            if name not in needed:
                continue
            raise ConfigError(
                f"the DataFrame has no column {name}",
                hint='Read it with .option("includeHeaders", "true"): the chain needs the headers'
                if name == "headers"
                else "decode() takes what Spark's Kafka source returns",
                key=name,
            )
        if as_nullable(kind) != expected:
            raise ConfigError(
                f"the column {name} is {kind.simpleString()}, expected {expected.simpleString()}",
                hint="decode() takes the columns of Spark's Kafka source as they come, once",
                key=name,
            )
    if ERROR in types:
        raise ConfigError(f"the DataFrame has a column {ERROR} already", hint="Was it decoded before?", key=ERROR)
