"""The edge of a pandas UDF around functions on Arrow arrays: Series in, a DataFrame out.

The DataFrame's columns are such that pyspark turns them into the very Arrow arrays that they were made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from payload_stores.plugins import require
from serde_chain.spark.worker.values import maps_as_dicts

__all__ = ["to_arrow", "to_frame"]


def to_arrow(names: Sequence[str], columns: Sequence[Any]) -> tuple[Any, ...]:
    """Turn a batch of Kafka columns into Arrow arrays.

    Args:
        names: What they are, as in :class:`~serde_chain.spark.plan.plan.Plan`; there may be fewer columns.
        columns: A ``pandas.Series`` each.
    """
    arrow = require("pyarrow", "spark")
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    # Named, since a Series of nothing but None has no type.
    types = {
        "value": arrow.binary(),
        "headers": arrow.list_(header),
        "topic": arrow.string(),
        "partition": arrow.int32(),
        "offset": arrow.int64(),
        "key": arrow.binary(),
        "timestamp": arrow.int64(),
    }
    return tuple(
        arrow.Array.from_pandas(column, type=types[name]) for name, column in zip(names, columns, strict=False)
    )


def to_frame(array: Any) -> Any:
    """Turn an Arrow array into a DataFrame of one column ``result``."""
    pandas = require("pandas", "spark")
    types = require("pyarrow.types", "spark")
    if not types.is_nested(array.type):
        return pandas.DataFrame({"result": pandas.Series(array, dtype=pandas.ArrowDtype(array.type))})
    convert = maps_as_dicts(array.type, types)
    items = array.to_pylist()
    items = items if convert is None else [None if item is None else convert(item) for item in items]
    return pandas.DataFrame({"result": pandas.Series(items, dtype=object)})
