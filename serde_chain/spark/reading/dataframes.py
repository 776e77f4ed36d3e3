"""Converts DataFrames of Spark's Kafka source into DataFrames of typed columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import DROPMALFORMED, FAILFAST, PERMISSIVE, as_topics, check_engine, check_mode
from serde_chain.spark.chains.plan import changed_columns
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.frame import in_own_step, optional_column, types_of
from serde_chain.spark.columns.headers import any_of, without_removed
from serde_chain.spark.columns.kafka import CONTEXT, KAFKA
from serde_chain.spark.columns.types import as_nullable
from serde_chain.spark.fields.columns import in_steps, read_for_steps
from serde_chain.spark.fields.planning import FieldsPlan
from serde_chain.spark.prerequisites import check_packages, check_worker_python
from serde_chain.spark.reading.engine import Choice
from serde_chain.spark.reading.functions import read_field, run_in_workers
from serde_chain.spark.reading.native import crossing, is_bad, message, read_natively
from serde_chain.spark.reading.planning import RecordsPlan, plan_records
from serde_chain.spark.reading.unreadable import ERROR, RAW, raw_records
from serde_chain.stages.large_fields.read import LargeFieldsDeserializer

_DECODED: Final = "__serde_chain"


def decode(
    config: Config | str | Path,
    *,
    mode: str = "FAILFAST",
    engine: str = "auto",
    topics: str | Sequence[str] = (),
    raw: bool = False,
    retries: bool = False,
    tombstones: bool = True,
) -> Callable[[DataFrame], DataFrame]:
    """Make a transformation for DataFrames of Spark's Kafka source, for batch and structured streaming.

    Example:
        >>> records = spark.read.format("kafka").option("includeHeaders", "true")...load()  # doctest: +SKIP
        >>> alerts = records.transform(decode(config))  # doctest: +SKIP

    Args:
        config: The configuration of a consumer: a mapping, or the path of a TOML or Java ``.properties`` file.
        mode: For undecodable records: ``FAILFAST`` ends the query with an error that names topic, partition and
            offset; ``PERMISSIVE`` leaves null, and adds the string column ``serde_error`` (null for good records);
            ``DROPMALFORMED`` drops the row. A fault other than the record's own (a store, registry or key provider
            that is down or refuses) ends the query in all modes. Only ``FAILFAST`` fetches payloads and fields
            (``large-message``, ``large-fields``) for the queries that use them; the other modes check, and fetch, whole
            records, as does ``retries``.
        engine: Reads the records. ``arrow``: Python, in Arrow's form. ``native``: Spark's own functions, such as
            ``from_avro`` (the jar ``spark-avro``), in the JVM; only records with references, and those with schema
            ids unknown when the query was planned, then pass through Python. ``auto``: ``native`` if the chain
            allows it, unless rows may have to pass through Python and the compiled part reads them there, which costs
            less; :func:`serde_chain.spark.explain` says why.
        topics: For ``native`` with a schema registry: the topics, whose subjects have the schemas.
        raw: With ``PERMISSIVE``: also add the column ``serde_raw``, a struct of ``value``, ``headers``, ``key`` and
            ``timestamp`` as received, null for good records, for :func:`serde_chain.spark.dead_letters`.
        retries: Add the column ``serde_retries``: the number of requests repeated by stores (those with
            :class:`payload_stores.SupportsRetryCount`), in the first record of a batch that may have caused them, and
            0 in the others. :func:`serde_chain.spark.observe` adds them up.
        tombstones: Keep records without a value, whose ``value`` is then null. ``False`` drops them, so that no value
            is null: with ``large-fields``, Spark can then leave out any field that a query does not use.

    Returns:
        A function from DataFrame to DataFrame. ``value`` becomes the typed column of ``value.deserializers``, and
        ``key`` that of ``key.deserializers``; without these they stay binary. Headers used by stages are removed
        from ``headers``. All other columns are unchanged.

    Raises:
        ConfigError: The configuration or an argument is wrong; from the function: a column is missing or has the wrong
            type.
        MissingDependencyError: A package is missing, also in the workers' interpreter if that can be checked.
    """
    check_packages()
    check_engine(engine)
    mode = check_mode(mode)
    if raw and mode != PERMISSIVE:
        raise ConfigError(
            f"raw=True keeps undecodable records, which {mode} does not",
            hint=f'Set mode="{PERMISSIVE}" too',
            key="raw",
        )
    named = as_topics(topics)
    plan = plan_records(load(config, named), mode=mode, engine=engine, topics=named, counts=retries)
    if not plan.chains:
        raise ConfigError(
            "the configuration names neither value.deserializers nor key.deserializers",
            hint='Set value.deserializers, for example to "large-message, zstd, avro"',
            key="value.deserializers",
        )

    def transform(frame: DataFrame) -> DataFrame:
        """Decode the Kafka columns of a DataFrame."""
        columns = _columns(frame, plan, adds=(ERROR, *((RAW,) if raw else ()), *plan.counted))
        if not tombstones:
            frame = frame.where(columns[VALUE].isNotNull())
        if not raw:
            return decoded(frame, columns)
        done = decoded(raw_records(frame, columns), columns)
        return done.withColumn(RAW, functions.when(functions.col(ERROR).isNotNull(), functions.col(RAW)))

    def decoded(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
        choices = plan.choices(frame.sparkSession)
        if plan.reads_apart:
            return _apart(frame, columns, plan, choices, nullable=tombstones)
        return _decoded(frame, columns, plan, choices)

    return transform


# A name that `from pyspark.sql.functions import *` does not hide.
decode_kafka = decode


def _apart(
    frame: DataFrame,
    columns: Mapping[str, Column],
    plan: RecordsPlan,
    choices: Mapping[str, Choice],
    *,
    nullable: bool,
) -> DataFrame:
    """Decode checked columns, each by itself: Spark drops those that a query does not use, with their payloads.

    Args:
        frame: As for :func:`_decoded`, like the other arguments.
        columns: The columns.
        plan: The plan.
        choices: The engines.
        nullable: Whether there may be tombstones.
    """
    check_worker_python(frame.sparkSession)
    made = {
        name: read_field("decode", plan.config, columns, field, choices[name], mode=FAILFAST, once=False)
        for name, field in plan.plans.items()
    }
    removed = [(columns[name], each) for name, field in plan.plans.items() for each in field.removes or ()]
    # Spark would take a name within a lambda function for the new column.
    work = frame.withColumn(f"{_DECODED}_headers", without_removed(columns["headers"], removed))
    made["headers"] = functions.col(f"{_DECODED}_headers")
    # Keys first: a function for keys after the one for values would collect all values of a batch, also for a query
    # that takes few rows.
    for name in (KEY, VALUE):
        if name in made:
            column = f"{_DECODED}_{name}"
            step, own = {column: made[name]}, choices[name].crosses
            if name == VALUE and isinstance(plan.fields, FieldsPlan):
                # What Python returns may be null where a value came.
                exists = (columns[VALUE] if choices[VALUE].native else made[VALUE]).isNotNull()
                # No earlier stage removes the header that names the fields: Spark need not compute those that are left.
                step, own = read_for_steps(column, made[VALUE], exists, _context(columns), plan.fields), True
            work = in_own_step(work, step, beside=VALUE) if own else work.withColumns(step)
            made[name] = functions.col(column)
    steps = [f"{_DECODED}_{name}" for name in made]
    if isinstance(plan.fields, FieldsPlan):
        work, changed, more = _by_column(work, made, columns, plan.config, plan.fields, nullable=nullable)
        made |= changed
        steps += more
    return work.withColumns(made).drop(*steps)


def _decoded(
    frame: DataFrame, columns: Mapping[str, Column], plan: RecordsPlan, choices: Mapping[str, Choice]
) -> DataFrame:
    """Decode checked columns, each row with one engine.

    Args:
        frame: The DataFrame.
        columns: Its columns by their names in Spark's Kafka source.
        plan: The plan for keys and values; fields not in it stay unchanged.
        choices: Their engines.
    """
    mode, fields = plan.mode, plan.plans
    context: dict[str, Column] = {name: columns[name] for name in CONTEXT if name in columns}
    # A row with one field that passes through Python does so as a whole.
    native = choices if all(choice.native for choice in choices.values()) else {}
    others = any_of(crossing(choice, columns[name], columns.get("headers")) for name, choice in native.items())
    if not native:
        others = functions.lit(True)  # Spark drops conditions that are always true
    gives: tuple[str, ...] = ()
    work = frame
    if others is not None:
        check_worker_python(frame.sparkSession)
        value, key = fields.get(VALUE), fields.get(KEY)
        gives = (*changed_columns(columns, value, key, mode), *plan.counted)
        sent = _sent(columns, native, with_keys=key is not None)
        given = run_in_workers("decode", plan.config, sent, value=value, key=key, gives=gives, mode=mode, where=others)
        work = work.withColumn(_DECODED, given)

    def merged(name: str, own: Column) -> Column:
        """Arrow's result for the rows that it has read, otherwise Spark's own."""
        if others is None or name not in gives:
            return own
        return functions.when(others, functions.col(_DECODED)[name]).otherwise(own)

    errors: list[Column] = []
    read: dict[str, Column] = {}
    for name, field in fields.items():
        data, own = columns[name], functions.lit(None)
        if name in native:
            own = read_natively(native[name], data, field, mode=mode, context=context)
        # A separate step, since it is used several times below.
        work = work.withColumn(f"{_DECODED}_{name}", merged(name, own))
        read[name] = functions.col(f"{_DECODED}_{name}")
        if name in native:
            errors.append(functions.when(is_bad(data, read[name]), message(native[name], data, context, name)))
    made = {name: merged(name, column) for name, column in columns.items() if name in gives} | read
    made |= {name: merged(name, functions.lit(0).cast("bigint")) for name in plan.counted}
    if mode != FAILFAST:
        said = functions.nullif(functions.concat_ws("; ", *errors), functions.lit(""))
        work = work.withColumn(f"{_DECODED}_error", merged("error", said))
        error = functions.col(f"{_DECODED}_error")
        if mode == DROPMALFORMED:
            work = work.where(error.isNull())
        else:
            made[ERROR] = error
    # The other columns are unchanged, whatever their names.
    steps = (_DECODED, f"{_DECODED}_error", *(f"{_DECODED}_{name}" for name in fields))
    return work.withColumns(made).drop(*steps)


def _sent(columns: Mapping[str, Column], native: Mapping[str, Choice], *, with_keys: bool) -> Mapping[str, Column]:
    """The columns to send to Python, each of which costs, also for rows that stay in the JVM."""
    if not native or any(choice.markers for choice in native.values()):
        return columns
    # Avro with its schema's id in front needs no others.
    used = {VALUE, "headers", *CONTEXT, *([KEY] if with_keys else [])}
    return {name: column for name, column in columns.items() if name in used}


def _context(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns that fetching a field needs."""
    return {name: columns[name] for name in ("headers", *CONTEXT, KEY) if name in columns}


def _by_column(
    work: DataFrame,
    made: Mapping[str, Column],
    columns: Mapping[str, Column],
    config: Mapping[str, object],
    plan: FieldsPlan,
    *,
    nullable: bool,
) -> tuple[DataFrame, dict[str, Column], tuple[str, ...]]:
    """Values and headers of read records, with the fields that a query uses.

    Args:
        work: The DataFrame with the read values.
        made: The columns that were read.
        columns: The columns as received.
        config: Flat configuration.
        plan: The fields.
        nullable: Whether values may be null.

    Returns:
        The DataFrame with the steps that fetch fields, the values and headers, and the names of the steps' columns.
    """
    headers = made["headers"]
    removed = [(functions.lit(True), each) for each in LargeFieldsDeserializer.removed_headers]
    # Asked outside of a lambda function, in which the name would be that of the value with its fields.
    is_tombstone = columns[VALUE].isNull()
    left = functions.when(is_tombstone, headers).otherwise(without_removed(headers, removed))
    context = tuple(_context(columns))
    work, value, names = in_steps(work, f"{_DECODED}_{VALUE}", config, plan, context=context, nullable=nullable)
    return work, {VALUE: value, "headers": left}, names


def _columns(frame: DataFrame, plan: RecordsPlan, *, adds: tuple[str, ...]) -> dict[str, Column]:
    """The columns of a DataFrame, by their names in Spark's Kafka source.

    Where Spark does not tell them before it runs the query, it finds out itself which of them exist. The result of
    ``decode`` then has ``headers`` in any case.

    Raises:
        ConfigError: The DataFrame is not from Spark's Kafka source, or already has columns to be added.
    """
    needed = {VALUE, *plan.plans}
    if any(field.needs_headers or field.adds_headers for field in plan.plans.values()):
        needed.add("headers")
    types = types_of(frame, {*KAFKA, *adds})
    if types is None:
        return {
            name: functions.col(name).cast(kind) if name in needed else optional_column(frame, name, kind)
            for name, kind in KAFKA.items()
        }
    _check_types(types, needed, adds)
    return {name: functions.col(name) for name in KAFKA if name in types}


def _check_types(types: Mapping[str, DataType], needed: set[str], adds: tuple[str, ...]) -> None:
    for name, expected in KAFKA.items():
        kind = types.get(name)
        if kind is None:
            if name not in needed:
                continue
            raise ConfigError(
                f"the DataFrame has no column {name}",
                hint='Read it with .option("includeHeaders", "true"): the chain needs the headers'
                if name == "headers"
                else "decode() requires the columns of Spark's Kafka source",
                key=name,
            )
        if as_nullable(kind) != expected:
            raise ConfigError(
                f"the column {name} is {kind.simpleString()}, expected {expected.simpleString()}",
                hint="decode() requires the unchanged columns of Spark's Kafka source, and only once",
                key=name,
            )
    if there := next((name for name in adds if name in types), None):
        raise ConfigError(f"the DataFrame already has a column {there}", hint="Was it decoded before?", key=there)
