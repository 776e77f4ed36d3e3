"""Functions for Spark's workers: by default Arrow UDFs where pyspark has them (4.1), pandas UDFs otherwise.

Both run the same code on Arrow arrays; the pandas UDF converts at its boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, StructField, StructType

from payload_stores.plugins import require
from serde_chain.spark.arguments import ARROW
from serde_chain.spark.columns.kafka import HEADERS, ColumnOrName, as_column, called
from serde_chain.spark.prerequisites import kind_of_udf, worker_packages
from serde_chain.spark.udfs.shipping import Plan, pickled, remedy


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
            filter on its result evaluates it again, unless it is in a step of its own
            (:mod:`serde_chain.spark.columns.frame`).
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


def map_batches(frame: DataFrame, work: str, plan: object, schema: str) -> DataFrame:
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
        from serde_chain.spark.udfs.pandas_edge import to_arrow, to_frame

        arrays = (to_arrow(columns, batch if isinstance(batch, tuple) else (batch,)) for batch in batches)
        yield from map(to_frame, run(arrays))

    return run_pandas


class _InWorkers:
    """Represents a function for workers, which replaces it there.

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
            import_module("serde_chain.spark.udfs.memory").bound_address_space()
            for package in packages:
                import_module(package)
            module, _, name = work.partition(":")
            function = getattr(import_module(module), name)
            import_module("serde_chain.spark.udfs.archives").forget_archives()
        except ImportError as error:
            raise ImportError(
                f"the interpreter of Spark's workers, {sys.executable}, cannot load what it needs ({error}). {hint}"
            ) from error
        return function

    return load
