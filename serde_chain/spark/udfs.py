"""Functions for Spark's workers: by default Arrow UDFs where pyspark has them (4.1), pandas UDFs otherwise.

Both run the same code on Arrow arrays; the pandas UDF converts at its boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from payload_stores.plugins import require
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.plan.arguments import ARROW, PERMISSIVE
from serde_chain.spark.plan.kafka import HEADERS, KAFKA, ColumnOrName, as_column, called
from serde_chain.spark.plan.prerequisites import has_arrow_udfs, kind_of_udf, worker_packages
from serde_chain.spark.plan.reading import RETRIES, FieldPlan, ReadPlan, pickled
from serde_chain.spark.plan.shipping import remedy
from serde_chain.spark.plan.types import as_nullable, spark_of
from serde_chain.spark.plan.writing import WritePlan

if TYPE_CHECKING:
    from serde_chain.spark.plan.field_columns import FetchPlan
    from serde_chain.spark.plan.jobs import CopyPlan, FindPlan, ListingPlan

    Plan: TypeAlias = ReadPlan | WritePlan | FindPlan | CopyPlan | FetchPlan

__all__ = [
    "DECODE",
    "check_takes",
    "make_function",
    "make_udf",
    "map_batches",
    "plain_udf",
    "result_type",
    "run_in_workers",
]

DECODE: Final = "serde_chain.spark.worker.decode:decode_batches"


def run_in_workers(
    name: str,
    config: Mapping[str, object],
    columns: Mapping[str, Column],
    *,
    value: FieldPlan | None,
    key: FieldPlan | None = None,
    gives: tuple[str, ...] = (),
    mode: str,
    where: Column | None = None,
    leaves_empty: bool = False,
    once: bool = True,
) -> Column:
    """Read columns of Spark's Kafka source in the workers.

    Args:
        name: The name in a query's plan.
        config: Flat configuration.
        columns: The columns by their names in the source.
        value: As in :class:`~serde_chain.spark.plan.reading.ReadPlan`, like the other arguments.
        key: The plan for keys.
        gives: The fields of the column's struct; empty for the value alone, or for the key if only keys are read.
        mode: The mode.
        where: The rows that cross into Python; None for all.
        leaves_empty: Return null if neither value nor key is present.
        once: As for :func:`make_udf`.

    Returns:
        The column. Used several times in a query, it is evaluated several times.

    Raises:
        ConfigError: A part of the configuration cannot be pickled.
    """
    skips = where is not None
    plan = ReadPlan(config, tuple(columns), value, key, gives, mode, leaves_empty=leaves_empty, skips=skips)
    arguments = [functions.unix_millis(at) if name == "timestamp" else at for name, at in columns.items()]
    if where is not None:
        arguments = [functions.when(where, argument) for argument in arguments]
    column: Column = make_udf(name, DECODE, plan, result_type(plan), once=once)(*arguments)
    return column


def make_function(name: str, plan: ReadPlan, *, kind: str | None = None) -> Callable[..., Any]:
    """Make the function that Spark ships to its workers.

    Args:
        name: The name in a query's plan.
        plan: The function's instructions.
        kind: As for :func:`make_udf`.

    Returns:
        A function of columns, in the order of the plan's.

    Raises:
        ConfigError: The kind is unknown, or a part of the configuration cannot be pickled.
        MissingDependencyError: pyspark has no functions of this kind.
    """
    return make_udf(name, DECODE, plan, result_type(plan), kind=kind)


def make_udf(
    name: str, work: str, plan: Plan, returns: DataType, *, once: bool = True, kind: str | None = None
) -> Callable[..., Any]:
    """Make a function that Spark ships to its workers.

    Args:
        name: The name in a query's plan.
        work: The function in the worker, ``module:function``. It gets the pickled plan and an iterator of tuples of
            ``pyarrow.Array``, and returns an iterator of ``pyarrow.Array``.
        plan: Its instructions.
        returns: The type of the column.
        once: Evaluate it once per row, before all filters. Otherwise, filters on other columns go before it, and a
            filter on its result evaluates it again, unless it is in a step of its own (:mod:`.own_steps`).
        kind: ``pandas`` or ``arrow``; None for ``arrow`` if pyspark has it, and ``pandas`` otherwise.

    Returns:
        A function of columns, in the order of the plan's.

    Raises:
        ConfigError: The kind is unknown, or a part of the configuration cannot be pickled.
        MissingDependencyError: pyspark has no functions of this kind.
    """
    function, field = plain_udf(name, work, plan, returns, once=once, kind=kind)

    def call(*columns: ColumnOrName) -> Column:
        result: Column = function(*map(_without_null, plan.columns, columns))
        return called(name, columns[0], result if field is None else result.getField(field))

    return call


def map_batches(frame: DataFrame, work: str, plan: ListingPlan, schema: str) -> DataFrame:
    """Convert a DataFrame into another one in the workers, batch by batch.

    Args:
        frame: The DataFrame.
        work: As for :func:`make_udf`; it takes and returns iterators of ``pyarrow.RecordBatch``.
        plan: Its instructions.
        schema: The columns of its result.

    Raises:
        ConfigError: A part of the configuration cannot be pickled.
    """
    return frame.mapInArrow(_arrow_function(_InWorkers(work), pickled(plan)), schema)


def result_type(plan: ReadPlan) -> DataType:
    """The type of a plan's column."""
    types = {**KAFKA, "error": StringType(), RETRIES: LongType()}
    for name, field in ((KEY, plan.key), (VALUE, plan.value)):
        if field is not None:
            kind = spark_of(field.arrow_type)
            types[name] = as_nullable(kind) if plan.mode == PERMISSIVE else kind
    return StructType([StructField(name, types[name]) for name in plan.gives]) if plan.gives else types[plan.alone]


def _without_null(name: str, column: ColumnOrName) -> ColumnOrName:
    """Make a column one that Spark sends at a bounded cost.

    Spark 4.1 computes the size of a batch for each row that it adds, and to do so walks back through all lists of the
    batch to the last one that is not null: without headers, the usual case, the cost of a batch would be quadratic.
    """
    return functions.coalesce(as_column(column), functions.array().cast(HEADERS)) if name == "headers" else column


def plain_udf(
    name: str, work: str, plan: Plan, returns: DataType, *, once: bool = True, kind: str | None = None
) -> tuple[Callable[..., Any], str | None]:
    """Like :func:`make_udf`, for callers with their own calling convention.

    Returns:
        The user-defined function, whose headers must not be null, and the relevant field of its result; None for
        the result itself.

    Raises:
        ConfigError: The kind is unknown, or a part of the configuration cannot be pickled.
        MissingDependencyError: pyspark has no functions of this kind.
    """
    spark: Any = functions  # its attributes depend on the version
    kind = kind_of_udf(kind)
    run = _arrow_function(_InWorkers(work, kind), pickled(plan))
    if kind == ARROW:
        array = require("pyarrow", "spark").Array
        return _made(spark.arrow_udf, _named(run, name, array, array), returns, once=once), None
    pandas: Any = require("pandas", "spark")
    # In a struct, since a pandas.DataFrame, which represents a struct, cannot express that a whole row is null.
    function = _made(
        spark.pandas_udf,
        _named(_pandas_function(run, plan.columns), name, pandas.Series, pandas.DataFrame),
        StructType([StructField("result", returns)]),
        once=once,
    )
    return function, "result"


def check_takes(types: Mapping[str, DataType]) -> None:
    """Refuse columns that would not reach a worker unchanged.

    Args:
        types: The types of the keys and values to write.

    Raises:
        ConfigError: Only pandas UDFs are available, and a column is neither binary nor text.
    """
    if not has_arrow_udfs():
        for name, kind in types.items():
            if not isinstance(kind, BinaryType | StringType):
                raise ConfigError(
                    f"before pyspark 4.1, Python accepts the column for {name} only as binary or text, but it is "
                    f"{kind.simpleString()}",
                    hint="Use pyspark 4.1 or newer; for Avro, engine='native' may do, or says why not",
                    key=name,
                )


def _named(run: Callable[..., Any], name: str, takes: Any, gives: Any) -> Callable[..., Any]:
    hints: Any = Iterator
    run.__name__ = name
    # The annotations tell Spark that the function works on iterators.
    run.__annotations__ = {"batches": hints[tuple[takes, ...]], "return": hints[gives]}
    return run


def _made(udf: Any, run: Callable[..., Any], returns: DataType, *, once: bool) -> Callable[..., Any]:
    made = udf(run, returns)
    # They would be pickled with the function, which a worker without the package could not even unpickle.
    run.__annotations__ = {}
    # Tells Spark to evaluate it once per row and nowhere else. Spark copies deterministic functions into pushed-down
    # filters, and every copy would fetch all payloads again.
    function: Callable[..., Any] = made.asNondeterministic() if once else made
    return function


def _arrow_function(work: Any, pickled: bytes) -> Callable[..., Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        yield from work(pickled, batches)

    return run


def _pandas_function(run: Callable[..., Iterator[Any]], columns: tuple[str, ...]) -> Callable[..., Iterator[Any]]:
    def run_pandas(batches: Iterator[Any]) -> Iterator[Any]:
        from serde_chain.spark.worker.pandas_edge import to_arrow, to_frame

        arrays = (to_arrow(columns, batch if isinstance(batch, tuple) else (batch,)) for batch in batches)
        yield from map(to_frame, run(arrays))

    return run_pandas


class _InWorkers:
    """Represents a function of :mod:`serde_chain.spark.worker`, which replaces it in a worker.

    A worker unpickles a function before pyspark prepares the call, which imports pyarrow: if that is missing,
    pyspark's own error names neither the interpreter nor the remedy. So unpickling this object loads everything.

    Args:
        work: ``module:function``.
        kind: As for :func:`make_udf`.
    """

    def __init__(self, work: str, kind: str | None = None) -> None:
        self._given = (work, worker_packages(kind), remedy())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return _loader(), self._given


def _loader() -> Callable[[str, tuple[str, ...], str], Any]:
    # A nested function is pickled as code, not by its module's name. So it also arrives in an interpreter that lacks
    # this package, and can report that.
    def load(work: str, packages: tuple[str, ...], hint: str) -> Any:
        import sys
        from importlib import import_module

        try:
            # Allocators decide on their reservations when the packages are loaded.
            import_module("serde_chain.spark.worker.memory").bound_address_space()
            for package in packages:
                import_module(package)
            module, _, name = work.partition(":")
            function = getattr(import_module(module), name)
            import_module("serde_chain.spark.worker.archives").forget_archives()
        except ImportError as error:
            raise ImportError(
                f"the interpreter of Spark's workers, {sys.executable}, cannot load what it needs ({error}). {hint}"
            ) from error
        return function

    return load
