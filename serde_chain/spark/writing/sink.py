"""Converts DataFrames and columns into the input of Spark's Kafka sink."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from serde_chain.catalogue import marker_headers
from serde_chain.clients.limits import KEY_ROOM
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import NATIVE, PANDAS, check_engine
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.frame import optional_column, types_of
from serde_chain.spark.columns.headers import marked
from serde_chain.spark.columns.kafka import HEADERS, ColumnOrName, as_column, called
from serde_chain.spark.columns.types import as_nullable
from serde_chain.spark.prerequisites import check_packages, check_worker_python, kind_of_udf
from serde_chain.spark.udfs.make import make_udf
from serde_chain.spark.udfs.retries import RETRIES
from serde_chain.spark.writing.engine import WritingChoice, check_fits_pandas, check_takes, choose_writing
from serde_chain.spark.writing.large_fields import MovePlan
from serde_chain.spark.writing.native import size_beside_value, write_natively
from serde_chain.spark.writing.plan import WritePlan, asking, limited, open_setup, plan_offload, with_defaults
from serde_chain.spark.writing.topic_limits import SinkLimits
from serde_chain.wire.large_fields import HEADER

_log = logging.getLogger("serde_chain")

_ENCODE: Final = "serde_chain.spark.writing.worker:encode_batches"
_ENCODED: Final = "__serde_chain"
_MOVED: Final = f"{_ENCODED}_moved"
# The columns of Spark's Kafka sink, with their types; key and value may have any type that their chains accept.
_SINK: Final[Mapping[str, DataType | None]] = {
    "topic": StringType(),
    "partition": None,
    "key": None,
    "value": None,
    "headers": HEADERS,
}
_BINARY: Final = BinaryType()
_RECORD: Final = StructType([StructField("value", _BINARY), StructField("headers", HEADERS)])


def encode(
    config: Config | str | Path, *, topic: str | None = None, engine: str = "auto", retries: bool = False
) -> Callable[[DataFrame], DataFrame]:
    """Make a transformation into the columns of Spark's Kafka sink, for batch and structured streaming.

    Example:
        >>> records = alerts.select(struct("*").alias("value"), col("id").alias("key"))  # doctest: +SKIP
        >>> sink = records.transform(encode(config, topic="alerts")).write.format("kafka")  # doctest: +SKIP

    Args:
        config: The configuration of a producer: a mapping, or the path of a TOML or Java ``.properties`` file. The
            default of payload ids is ``content``, so that retried and speculative tasks write the same
            objects.
        topic: The topic of all records; otherwise the column ``topic`` names it, or the sink's own option, which
            chains that need the topic do not see.
        engine: Runs the first stage. ``native``: Spark's own functions, such as ``to_avro`` (the jar ``spark-avro``),
            in the JVM; only values that may be offloaded then pass through Python. ``arrow``: Python, for all
            rows. ``auto``: ``native`` if it writes the same bytes as the chain.
        retries: Add the column ``serde_retries``, like :func:`serde_chain.spark.decode`; the sink ignores it.

    Returns:
        A function from DataFrame to DataFrame. Existing columns ``value``, ``key``, ``headers``, ``topic`` and
        ``partition`` become the sink's; others are dropped. ``value`` is the input of
        ``value.serializers``, such as a struct for ``avro``; null stays null, a tombstone.

    Raises:
        ConfigError: The configuration or an argument is wrong; from the function: a column is missing or has the wrong
            type.
        MissingDependencyError: A package is missing.
    """
    check_packages()
    engine = check_engine(engine)
    loaded = with_defaults(load(config))
    with closing(open_setup(loaded)) as setup:
        if setup.value is None and setup.key is None:
            raise ConfigError(
                "the configuration names neither value.serializers nor key.serializers",
                hint='Set value.serializers, for example to "avro, zstd, large-message"',
                key="value.serializers",
            )
        broker = asking(setup)

    counted = (RETRIES,) if retries else ()

    def transform(frame: DataFrame) -> DataFrame:
        """Encode the columns of a DataFrame."""
        types = types_of(frame, _SINK)
        columns = _columns_of(frame, types, topic)
        sink = _Sink(loaded, broker.limits(topic))
        with closing(open_setup(*sink)) as setup:
            choice = choose_writing(setup, types, topic=topic, engine=engine, session=frame.sparkSession)
        for name in choice.avoidable:
            _log.warning("to_avro cannot write the column %s, so Python does: %s", name, choice.reasons[name])
        if choice.engine == NATIVE:
            return _natively(frame, sink, columns, choice, counted)
        check_worker_python(frame.sparkSession)
        check_takes({name: types[name] for name in (KEY, VALUE) if types is not None and name in types})
        gives = (*(name for name in (KEY, VALUE, "headers") if name in columns or name == "headers"), *counted)
        result = _in_workers("encode", sink, columns, gives)
        done = frame.withColumn(_ENCODED, result)
        encoded: dict[str, Column] = {name: functions.col(_ENCODED).getField(name) for name in gives}
        return done.select(*[column.alias(name) for name, column in _in_order({**columns, **encoded})])

    return transform


# A name that `from pyspark.sql.functions import *` does not hide.
encode_kafka = encode


def serialize(
    column: ColumnOrName,
    config: Config | str | Path,
    *,
    topic: ColumnOrName,
    key: ColumnOrName | None = None,
    headers: ColumnOrName | None = None,
) -> Column:
    """Serialize values of Kafka records with ``value.serializers``, in Python.

    Args:
        column: The column with the values in the chain's input type: a struct for ``avro``, binary, text.
        config: As in :func:`encode`.
        topic: Column with the topic; ``functions.lit("alerts")`` for one.
        key: Column with the encoded keys, for stages that need them.
        headers: Column with the record's existing headers.

    Returns:
        A column ``struct<value: binary, headers: array<struct<key: string, value: binary>>>``; ``headers`` is null
        without headers. It counts as nondeterministic, so that Spark evaluates it once.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: A package is missing.

    Example:
        >>> record = serialize(struct("*"), config, topic=lit("alerts"))  # doctest: +SKIP
        >>> alerts.select(record.alias("record")).select("record.*")  # doctest: +SKIP
    """
    columns = {VALUE: as_column(column), **_beside(topic, key, headers)}
    return called("serialize", column, _in_workers("serialize", _checked(config), columns, (VALUE, "headers")))


def serialize_udf(config: Config | str | Path, *, kind: str | None = None) -> Callable[..., Column]:
    """Make :func:`serialize` as a function of columns: an Arrow UDF or a pandas UDF.

    Args:
        config: As in :func:`encode`.
        kind: ``arrow`` (pyspark 4.1 or newer) or ``pandas`` (any pyspark); None for ``arrow`` if pyspark has it, and
            ``pandas`` otherwise. A pandas UDF accepts values only as binary or text: pandas would change the types
            and nulls of others. A chain whose Avro schema requires others is refused here, other columns by the worker.

    Returns:
        A user-defined function of these columns, all but the first two optional: value, topic, key,
        headers.

    Raises:
        ConfigError: The configuration or the kind is wrong, or the chain writes no values that a pandas UDF accepts.
        MissingDependencyError: A package is missing, or ``kind`` is ``arrow`` and pyspark older than 4.1.

    Example:
        >>> to_record = serialize_udf(config)  # doctest: +SKIP
        >>> alerts.select(to_record(struct("*"), lit("alerts")).alias("record"))  # doctest: +SKIP
    """
    sink = _checked(config, kind)
    plan = WritePlan(sink.config, (VALUE, "topic", KEY, "headers"), (VALUE, "headers"), limits=sink.limits)
    return make_udf("serialize", _ENCODE, plan, _RECORD, kind=kind)


def offload(
    value: ColumnOrName,
    headers: ColumnOrName | None,
    config: Config | str | Path,
    *,
    topic: ColumnOrName,
    key: ColumnOrName | None = None,
) -> Column:
    """Replace values that are too large for a record by references: the inverse of :func:`serde_chain.spark.resolve`.

    Only values that may be offloaded cross into Python; the others stay in the JVM, as do the functions that made the
    column, such as ``to_avro`` and ``to_protobuf``.

    Args:
        value: The binary column with the encoded values. It is used several times: make it in a previous step, with
            ``withColumn``.
        headers: Column with the record's existing headers; None for none.
        config: As in :func:`encode`, with ``large-message`` in ``value.serializers``. Stages before it are not run.
        topic: As in :func:`serialize`.
        key: As in :func:`serialize`.

    Returns:
        The same as :func:`serialize`.

    Raises:
        ConfigError: The configuration is wrong, or has no ``large-message``.
        MissingDependencyError: A package is missing.

    Example:
        >>> encoded = alerts.withColumn("bytes", to_avro(struct("*"), schema))  # doctest: +SKIP
        >>> record = offload("bytes", None, config, topic=lit("alerts"))  # doctest: +SKIP
    """
    check_packages()
    loaded = with_defaults(load(config))
    with closing(open_setup(loaded)) as setup:
        sink = _Sink(loaded, asking(setup).limits(None))
        planned = plan_offload(limited(setup, sink.limits))
    if planned is None:
        raise ConfigError(
            "no stage of the configuration offloads", hint="Name large-message in value.serializers", key=_STAGES
        )
    return called("offload", value, _offloaded(as_column(value), _beside(topic, key, headers), sink, *planned))


_STAGES: Final = "value.serializers"


class _Sink(NamedTuple):
    """What workers need besides a plan's own columns.

    Attributes:
        config: Flat configuration.
        limits: What is known of the limits of topics.
    """

    config: dict[str, object]
    limits: SinkLimits


def _natively(
    frame: DataFrame,
    sink: _Sink,
    columns: dict[str, Column],
    choice: WritingChoice,
    counted: tuple[str, ...],
) -> DataFrame:
    done, retries = frame, _no_retries()
    if choice.moves is not None or choice.offloads is not None:
        check_worker_python(frame.sparkSession)
    for name in (KEY, VALUE):  # ids of payloads may depend on the encoded key
        if name not in choice.writers:
            continue
        if name == VALUE and choice.moves is not None:
            moved = _moved(columns[VALUE], _around(columns), sink, choice.moves, counted)
            done = done.withColumn(_MOVED, moved)
            columns |= _with_moved(columns, choice.moves)
            retries = functions.coalesce(functions.col(_MOVED).getField(RETRIES), retries) if counted else retries
        # A separate step: it is used several times below.
        done = done.withColumn(f"{_ENCODED}_{name}", write_natively(choice.writers[name], columns[name]))
        columns[name] = functions.col(f"{_ENCODED}_{name}")
    if choice.offloads is not None:
        offloaded = _offloaded(columns[VALUE], _around(columns), sink, *choice.offloads, counted=counted)
        done = done.withColumn(_ENCODED, offloaded)
        columns |= {name: functions.col(_ENCODED).getField(name) for name in (VALUE, "headers")}
        retries = retries + functions.col(_ENCODED).getField(RETRIES) if counted else retries
    columns |= dict.fromkeys(counted, retries)
    return done.select(*[column.alias(name) for name, column in _in_order(columns)])


def _around(columns: Mapping[str, Column]) -> dict[str, Column]:
    """The columns of a record that stages of its value may need."""
    return {name: columns[name] for name in ("topic", "partition", KEY, "headers") if name in columns}


def _moved(
    value: Column, beside: Mapping[str, Column], sink: _Sink, plan: MovePlan, counted: tuple[str, ...]
) -> Column:
    """The columns that may go to the store, with references, and the record's headers; null where none goes there.

    Only these columns cross into Python, of rows in which one of them is large enough.
    """
    large = [functions.octet_length(_at(value, path)) >= plan.min_bytes for path in plan.paths]
    if "headers" in beside:
        # On a value that is whole again, a mark of the record that it was read from would be wrong.
        large.append(marked(beside["headers"], frozenset({HEADER})) & value.isNotNull())
    crossing = reduce(operator.or_, [functions.coalesce(one, functions.lit(False)) for one in large])
    columns = {VALUE: _only(value, plan.kind), **beside}
    gives = (VALUE, "headers", *counted)
    result = _in_workers("move_fields", sink, columns, gives, end=1, value=plan.kind, where=crossing)
    return functions.when(crossing, result)


def _with_moved(columns: Mapping[str, Column], plan: MovePlan) -> dict[str, Column]:
    """Values with references in place of moved fields, and the headers to go with them."""
    moved = functions.col(_MOVED)
    value = columns[VALUE]
    for path in plan.paths:
        own, found = _at(columns[VALUE], path), _at(moved.getField(VALUE), path)
        name = ".".join(f"`{step}`" for step in path)
        value = value.withField(name, functions.when(moved.isNotNull(), found).otherwise(own))
    headers = columns.get("headers", functions.lit(None).cast(HEADERS))
    own_headers = functions.when(moved.isNotNull(), moved.getField("headers")).otherwise(headers)
    return {VALUE: value, "headers": own_headers}


def _at(value: Column, path: tuple[str, ...]) -> Column:
    for step in path:
        value = value.getField(step)
    return value


def _only(value: Column, kind: StructType) -> Column:
    """A struct with only the fields of a type, null where it is null."""
    fields: list[Column] = []
    for field in kind:
        column = value.getField(field.name)
        fields.append(
            (_only(column, field.dataType) if isinstance(field.dataType, StructType) else column).alias(field.name)
        )
    return functions.when(value.isNotNull(), functions.struct(*fields))


def _offloaded(
    value: Column,
    beside: Mapping[str, Column],
    sink: _Sink,
    first: int,
    most: int,
    *,
    counted: tuple[str, ...] = (),
) -> Column:
    columns = {VALUE: value, **beside}
    gives = (VALUE, "headers", *counted)
    if not most:  # the format also marks values that stay in their records
        return _in_workers("offload", sink, columns, gives, first=first)
    headers = beside.get("headers", functions.lit(None).cast(HEADERS))
    # A larger key or more headers leave less of the record's limit to the value.
    crossing = (functions.length(value) > most) | (size_beside_value(beside.get(KEY), beside.get("headers")) > KEY_ROOM)
    if "headers" in beside:
        # Such headers come from the record that the value was read from: on an inline value, a mark would be wrong.
        crossing |= marked(headers, marker_headers(is_key=False))
    result = _in_workers("offload", sink, columns, gives, first=first, where=crossing)
    own = {VALUE: value, "headers": headers, RETRIES: _no_retries()}
    return functions.when(crossing, result).otherwise(functions.struct(*[own[name].alias(name) for name in gives]))


def _in_workers(
    name: str,
    sink: _Sink,
    columns: Mapping[str, Column],
    gives: tuple[str, ...],
    *,
    first: int = 0,
    end: int | None = None,
    value: DataType = _BINARY,
    where: Column | None = None,
) -> Column:
    types: dict[str, DataType] = {KEY: _BINARY, VALUE: value, "headers": HEADERS, RETRIES: LongType()}
    plan = WritePlan(sink.config, tuple(columns), gives, first, end, limits=sink.limits)
    returns = StructType([StructField(field, types[field]) for field in gives])
    arguments = columns.values() if where is None else [functions.when(where, column) for column in columns.values()]
    column: Column = make_udf(name, _ENCODE, plan, returns)(*arguments)
    return column


def _no_retries() -> Column:
    return functions.lit(0).cast("bigint")


def _checked(config: Config | str | Path, kind: str | None = None) -> _Sink:
    """A configuration with a value chain that a user-defined function of this kind can run."""
    check_packages()
    loaded = with_defaults(load(config))
    with closing(open_setup(loaded)) as setup:
        if setup.value is None:
            raise ConfigError("the configuration names no value.serializers", key=_STAGES)
        if kind_of_udf(kind) == PANDAS:
            check_fits_pandas(setup.value)
        return _Sink(loaded, asking(setup).limits(None))


def _beside(topic: ColumnOrName, key: ColumnOrName | None, headers: ColumnOrName | None) -> dict[str, Column]:
    columns = {"topic": as_column(topic).cast("string")}
    if key is not None:
        columns[KEY] = as_column(key)
    if headers is not None:
        columns["headers"] = as_column(headers).cast(HEADERS)
    return columns


def _columns_of(frame: DataFrame, types: Mapping[str, DataType] | None, topic: str | None) -> dict[str, Column]:
    """The columns of a DataFrame that the sink uses; all of them, null if absent, where Spark does not tell the types.

    Raises:
        ConfigError: A column is missing, or has the wrong type.
    """
    columns: dict[str, Column]
    if types is None:
        columns = {name: optional_column(frame, name, kind) for name, kind in _SINK.items()}
        columns |= {VALUE: functions.col(VALUE), "partition": optional_column(frame, "partition", IntegerType())}
    else:
        _check_columns(types)
        columns = {name: functions.col(name) for name in _SINK if name in types}
    if topic is not None:
        columns["topic"] = functions.lit(topic)
    return columns


def _check_columns(types: Mapping[str, DataType]) -> None:
    if VALUE not in types:
        raise ConfigError(
            "the DataFrame has no column value",
            hint='Put the record into one: records.select(struct("*").alias("value"))',
            key=VALUE,
        )
    for name, expected in _SINK.items():
        if expected is not None and name in types and as_nullable(types[name]) != expected:
            raise ConfigError(
                f"the column {name} is {types[name].simpleString()}, expected {expected.simpleString()}", key=name
            )


def _in_order(columns: Mapping[str, Column]) -> list[tuple[str, Column]]:
    return [(name, columns[name]) for name in (*_SINK, RETRIES) if name in columns]
