"""DataFrames of Spark's Kafka source, read by the engine ``native``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, functions

from serde_chain.record import KEY, VALUE
from serde_chain.spark.jvm.columns import is_bad, message, read_natively
from serde_chain.spark.plan.arguments import DROPMALFORMED, FAILFAST
from serde_chain.spark.plan.engine import Choice
from serde_chain.spark.plan.kafka import CONTEXT, KAFKA
from serde_chain.spark.plan.plan import FieldPlan, changed_columns
from serde_chain.spark.plan.prerequisites import check_worker_python
from serde_chain.spark.plan.types import spark_of
from serde_chain.spark.references import marked
from serde_chain.spark.udfs import run_in_workers

__all__ = ["DECODED", "ERROR", "decode_natively"]

ERROR: Final = "serde_error"
DECODED: Final = "__serde_chain"


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
    context: dict[str, Column] = {name: functions.col(name) for name in CONTEXT if name in frame.columns}
    columns = {name: functions.col(name) for name in KAFKA if name in frame.columns}
    errors: list[Column] = []
    work = frame
    before = {name: choice.before for name, choice in choices.items() if choice.before is not None}
    if before:
        check_worker_python(frame.sparkSession)
        work, columns, errors = _run_before(work, config, before, columns, mode)
    read = dict(columns)
    for name, choice in choices.items():
        field: Any = fields[name]
        # In a step of its own, since it is used several times below.
        data = functions.col(f"{DECODED}_{name}_bytes")
        work = work.withColumn(f"{DECODED}_{name}_bytes", columns[name])
        result = read_natively(choice, data, spark_of(field.arrow_type), mode=mode, context=context, field=name)
        work = work.withColumn(f"{DECODED}_{name}_read", result)
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
        # An unreadable record keeps the headers that could help to read it.
        kept = functions.when(error.isNull(), columns["headers"]).otherwise(functions.col("headers")).alias("headers")
        selected[frame.columns.index("headers")] = kept
    return work.select(*selected, error.alias(ERROR))


def _run_before(
    frame: DataFrame, config: dict[str, object], plans: Mapping[str, FieldPlan], columns: dict[str, Column], mode: str
) -> tuple[DataFrame, dict[str, Column], list[Column]]:
    """Run the stages before the last: the DataFrame with their output, what to read now, and errors."""
    value, key = plans.get(VALUE), plans.get(KEY)
    crossing = marked(functions.col("headers"), plans.values())
    gives = changed_columns(columns, value, key, mode)
    result = run_in_workers("decode", config, columns, value=value, key=key, gives=gives, mode=mode, where=crossing)
    given = functions.col(DECODED)
    after = {
        name: functions.when(crossing, given[name]).otherwise(column) if name in gives else column
        for name, column in columns.items()
    }
    return frame.withColumn(DECODED, result), after, [given["error"]] if mode != FAILFAST else []
