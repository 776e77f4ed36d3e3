"""The pandas UDF boundary of functions on Arrow arrays: Series in, a DataFrame out.

pyspark turns the DataFrame's columns into exactly the original Arrow arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from payload_stores.plugins import require
from serde_chain.arrow.nested import objects
from serde_chain.errors import ConfigError


def to_arrow(names: Sequence[str], columns: Sequence[Any]) -> tuple[Any, ...]:
    """Turn a batch of Kafka columns into Arrow arrays.

    Args:
        names: Their names, as in :class:`~serde_chain.spark.chains.plan.ReadPlan`; there may be fewer columns.
        columns: One ``pandas.Series`` each.

    Raises:
        ConfigError: A column has another type: conversions lose such types, and their nulls.
    """
    arrow = require("pyarrow", "spark")
    kinds = require("pyarrow.types", "spark")
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    # By name, since a Series of only None has no type.
    types = {
        "value": arrow.binary(),
        "headers": arrow.list_(header),
        "topic": arrow.string(),
        "partition": arrow.int32(),
        "offset": arrow.int64(),
        "key": arrow.binary(),
        "timestamp": arrow.int64(),
    }

    def convert(name: str, column: Any) -> Any:
        kind = types[name]
        if len(column.shape) == 1:  # a struct arrives as a DataFrame
            with suppress(arrow.ArrowException):
                if kind != arrow.binary():
                    return arrow.Array.from_pandas(column, type=kind)
                # Not to a given type: pyarrow silently turns numbers and text into bytes.
                array = arrow.Array.from_pandas(column)
                if kinds.is_null(array.type):
                    return array.cast(kind)
                if kinds.is_binary(array.type) or kinds.is_string(array.type):
                    return array
        words = "binary or text" if kind == arrow.binary() else kind
        raise ConfigError(
            f"a pandas UDF accepts the column for {name} only as {words}",
            hint="Use an Arrow UDF (pyspark 4.1 or newer), or encode(); before pyspark 4.1, that needs to_avro",
            key=name,
        )

    return tuple(convert(name, column) for name, column in zip(names, columns, strict=False))


def to_frame(array: Any) -> Any:
    """Turn an Arrow array into a DataFrame of one column ``result``."""
    pandas = require("pandas", "spark")
    types = require("pyarrow.types", "spark")
    if not types.is_nested(array.type):
        return pandas.DataFrame({"result": pandas.Series(array, dtype=pandas.ArrowDtype(array.type))})
    items = objects(array)
    if _has_nan(array):
        nan = require("numpy", "spark").float32("nan")
        items = [_with_nan(item, nan) for item in items]
    return pandas.DataFrame({"result": pandas.Series(items, dtype=object)})


def _has_nan(array: Any) -> bool:
    """Whether the array contains a NaN at any depth."""
    compute: Any = require("pyarrow.compute", "spark")
    types = require("pyarrow.types", "spark")
    if types.is_floating(array.type):
        return bool(compute.any(compute.is_nan(array)).as_py())
    if types.is_struct(array.type):
        return any(map(_has_nan, array.flatten()))
    if types.is_map(array.type):
        return _has_nan(array.items)
    if types.is_list(array.type) or types.is_large_list(array.type):
        return _has_nan(array.flatten())
    return False


def _with_nan(item: Any, nan: Any) -> Any:
    """Replace each NaN at any depth by NumPy's: pyarrow treats Python's as null in data from pandas."""
    if isinstance(item, float):
        return nan if math.isnan(item) else item
    if isinstance(item, dict):
        return {key: _with_nan(value, nan) for key, value in item.items()}
    if isinstance(item, list):
        return [_with_nan(value, nan) for value in item]
    return item
