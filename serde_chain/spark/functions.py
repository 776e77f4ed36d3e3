"""Functions for Spark's workers: Arrow UDFs where pyspark has them (4.1), pandas UDFs else.

Both run the same code on Arrow arrays; the pandas UDF wraps them in Series whose data stays in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import functions
from pyspark.sql.types import DataType, StructType

from payload_stores.plugins import require

__all__ = ["make_function"]


def make_function(name: str, pickled: bytes, python: str, returns: DataType) -> Callable[..., Any]:
    """Make the function that Spark ships to its workers.

    Args:
        name: What a query's plan shows.
        pickled: A :class:`~serde_chain.spark.plan.Plan`.
        python: The driver's interpreter, for a message.
        returns: Type of the column.

    Returns:
        A function of columns.
    """
    spark: Any = functions  # what it has depends on the version
    run = _arrow_function(pickled, python)
    if hasattr(spark, "arrow_udf"):
        run.__name__ = name
        made = spark.arrow_udf(run, returns, spark.ArrowUDFType.SCALAR_ITER)
    else:
        made = spark.pandas_udf(_pandas_function(name, run, is_struct=isinstance(returns, StructType)), returns)
    # As Spark understands it: evaluate it once per row and nowhere else. Spark copies deterministic functions into
    # filters that it pushes down, and every copy would fetch all payloads again.
    function: Callable[..., Any] = made.asNondeterministic()
    return function


def _arrow_function(pickled: bytes, python: str) -> Callable[..., Iterator[Any]]:
    # A nested function is pickled as code, not by its module's name. So it also arrives in an interpreter that lacks
    # this package, and can say so.
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        try:
            from serde_chain.spark.worker import decode_batches
        except ImportError as error:
            import sys

            raise ImportError(
                f"the interpreter of Spark's workers, {sys.executable}, cannot load serde-chain ({error}). "
                f"Set PYSPARK_PYTHON to an interpreter that has 'serde-chain[spark]'; the driver's is {python}"
            ) from error
        yield from decode_batches(pickled, batches)

    return run


def _pandas_function(name: str, run: Callable[..., Iterator[Any]], *, is_struct: bool) -> Callable[..., Any]:
    pandas: Any = require("pandas", "spark")
    result: Any = pandas.DataFrame if is_struct else pandas.Series

    def run_pandas(batches: Any) -> Any:
        import pandas as pd
        import pyarrow as pa

        def to_arrow(column: Any) -> Any:
            return pa.Array.from_pandas(column)

        def to_series(array: Any) -> Any:
            return pd.Series(array, dtype=pd.ArrowDtype(array.type))

        arrays = (tuple(map(to_arrow, batch if isinstance(batch, tuple) else (batch,))) for batch in batches)
        for array in run(arrays):
            if is_struct:
                names = [array.type.field(at).name for at in range(array.type.num_fields)]
                yield pd.DataFrame(dict(zip(names, map(to_series, array.flatten()), strict=True)))
            else:
                yield to_series(array)

    run_pandas.__name__ = name
    # Spark reads from the annotations which kind of function this is.
    hints: Any = Iterator
    run_pandas.__annotations__ = {"batches": hints[tuple[pandas.Series, ...]], "return": hints[result]}
    return run_pandas
