"""The edge of a pandas UDF around functions on Arrow arrays: Series in, a DataFrame out.

The DataFrame's columns are such that pyspark turns them into the very Arrow arrays that they were made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from payload_stores.plugins import require

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
    convert = _maps_as_dicts(array.type, types)
    items = array.to_pylist()
    items = items if convert is None else [None if item is None else convert(item) for item in items]
    return pandas.DataFrame({"result": pandas.Series(items, dtype=object)})


def _maps_as_dicts(kind: Any, types: Any) -> Callable[[Any], Any] | None:
    """A function that makes maps dictionaries, where pyarrow has pairs; None where there are no maps."""
    if types.is_map(kind):
        convert = _maps_as_dicts(kind.item_type, types) or (lambda item: item)
        return lambda pairs: {key: None if item is None else convert(item) for key, item in pairs}
    if types.is_list(kind):
        inner = _maps_as_dicts(kind.value_type, types)
        return inner and (lambda items: [None if item is None else inner(item) for item in items])
    if types.is_struct(kind):
        fields = [(field.name, _maps_as_dicts(field.type, types)) for field in kind]
        changed = [(name, convert) for name, convert in fields if convert is not None]
        if changed:
            return lambda record: (
                record | {name: convert(record[name]) for name, convert in changed if record[name] is not None}
            )
    return None
