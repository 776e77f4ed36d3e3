"""DataFrames of Spark's Kafka source, read by the engine ``native``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType, TimestampType

from serde_chain.record import KEY, VALUE
from serde_chain.spark.jvm.columns import is_bad, message, read_natively
from serde_chain.spark.plan.engine import Choice
from serde_chain.spark.plan.plan import DROPMALFORMED, FAILFAST, FieldPlan, Plan
from serde_chain.spark.plan.prerequisites import check_worker_python
from serde_chain.spark.plan.schemas import HEADERS, spark_of
from serde_chain.spark.references import marked, plan_references
from serde_chain.spark.udfs import make_function

__all__ = ["DECODED", "ERROR", "decode_natively"]

ERROR: Final = "serde_error"
DECODED: Final = "__serde_chain"
_CONTEXT: Final[tuple[str, ...]] = ("topic", "partition", "offset")
# What a stored record has beside its value and headers.
_RESTORED: Final[Mapping[str, DataType]] = {KEY: BinaryType(), "timestamp": TimestampType()}


def decode_natively(
    frame: DataFrame,
    config: dict[str, object],
    choices: Mapping[str, Choice],
    fields: Mapping[str, FieldPlan | None],
    mode: str,
) -> DataFrame:
    """Decode the Kafka columns of a DataFrame.

    Args:
        frame: With columns as they were checked.
        config: Flat configuration.
        choices: What Spark is to do with ``key`` and ``value``; those not here stay.
        fields: Their plans.
        mode: The mode.
    """
    context: dict[str, Column] = {name: functions.col(name) for name in _CONTEXT if name in frame.columns}
    columns = {name: functions.col(name) for name in frame.columns if name in {KEY, VALUE, "headers", "timestamp"}}
    errors: list[Column] = []
    work = frame
    if any(choice.before for choice in choices.values()):
        check_worker_python(frame.sparkSession)
        work, columns, errors = _resolve(work, config, choices, columns, mode)
    read = dict(columns)
    for name, choice in choices.items():
        field: Any = fields[name]
        # In a step of its own, since it is used several times below.
        data = functions.col(f"{DECODED}_{name}_bytes")
        work = work.withColumn(f"{DECODED}_{name}_bytes", columns[name])
        found = read_natively(choice, data, spark_of(field.arrow_type), mode=mode, context=context, field=name)
        work = work.withColumn(f"{DECODED}_{name}_read", found)
        read[name] = functions.col(f"{DECODED}_{name}_read")
        errors.append(functions.when(is_bad(data, read[name]), message(choice, data, context, name)))
    selected = [read.get(name, functions.col(f"`{name}`")).alias(name) for name in frame.columns]
    if mode == FAILFAST:
        return work.select(*selected)
    work = work.withColumn(f"{DECODED}_error", functions.nullif(functions.concat_ws("; ", *errors), functions.lit("")))
    error = functions.col(f"{DECODED}_error")
    if mode == DROPMALFORMED:
        return work.where(error.isNull()).select(*selected)
    if "headers" in columns:
        # What cannot be read keeps what could help to read it.
        kept = functions.when(error.isNull(), columns["headers"]).otherwise(functions.col("headers")).alias("headers")
        selected[frame.columns.index("headers")] = kept
    return work.select(*selected, error.alias(ERROR))


def _resolve(
    frame: DataFrame, config: dict[str, object], choices: Mapping[str, Choice], columns: dict[str, Column], mode: str
) -> tuple[DataFrame, dict[str, Column], list[Column]]:
    """Run the stages before the last: the DataFrame with what they gave, what to read now, and errors."""
    plans: dict[str, FieldPlan] = {}
    names: frozenset[str] | None = frozenset()
    for name, choice in choices.items():
        plan, markers = None, None
        if choice.before:
            plan, markers = plan_references(config, is_key=name == KEY, stages=choice.before)
        if plan is not None:
            plans[name] = plan
            names = None if names is None or markers is None else names | markers
    names_of = (VALUE, "headers", *_CONTEXT, KEY, "timestamp")
    arguments = {
        name: functions.unix_millis(name) if name == "timestamp" else functions.col(name)
        for name in names_of
        if name in frame.columns
    }
    returned: dict[str, DataType] = {name: BinaryType() for name in (KEY, VALUE) if name in plans}
    if "headers" in columns:
        returned["headers"] = HEADERS
    if any(plan.restores for plan in plans.values()):
        returned |= {name: kind for name, kind in _RESTORED.items() if name in columns}
    replaced = set(returned)
    if mode != FAILFAST:
        returned["error"] = StringType()
    shipped = Plan(
        config,
        tuple(arguments),
        plans.get(VALUE),
        plans.get(KEY),
        gives=tuple(returned),
        mode=mode,
        python=sys.executable,
    )
    kind = StructType([StructField(name, kind) for name, kind in returned.items()])
    function = make_function("decode", shipped, kind)
    offloaded = marked(functions.col("headers"), names)
    fetched = functions.col(DECODED)
    work = frame.withColumn(DECODED, function(*(functions.when(offloaded, column) for column in arguments.values())))
    after = {
        name: functions.when(offloaded, fetched[name]).otherwise(column) if name in replaced else column
        for name, column in columns.items()
    }
    return work, after, [fetched["error"]] if mode != FAILFAST else []
