"""What pandas UDFs give back, turned into Arrow arrays as pyspark 4.0 does it."""

import math
from typing import Any

import pyarrow as pa
import pytest

from serde_chain.spark.udfs.pandas_edge import to_frame

FLOATS = [math.nan, -0.0, math.inf, -math.inf, None, 1.5]
DOUBLE = pa.float64()


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        (DOUBLE, FLOATS),
        (pa.float32(), FLOATS),
        (pa.struct([("x", DOUBLE), ("y", pa.float32())]), [None, *({"x": x, "y": x} for x in FLOATS)]),
        (pa.struct([pa.field("x", DOUBLE, nullable=False)]), [{"x": x} for x in FLOATS if x is not None]),
        (pa.list_(DOUBLE), [FLOATS, [], None]),
        (pa.map_(pa.string(), pa.float32()), [[(str(at), x) for at, x in enumerate(FLOATS)], None]),
        (pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(DOUBLE)))])), [[{"m": [("k", FLOATS)]}, None]]),
    ],
    ids=str,
)
def test_floats_come_back_as_they_were(kind: Any, items: list[Any]) -> None:
    array = pa.array(items, kind)
    series = to_frame(array)["result"]
    mask = None if hasattr(series.array, "__arrow_array__") else series.isnull()
    back = pa.Array.from_pandas(series, mask=mask, type=kind)
    assert back.type == kind
    assert repr(back.to_pylist()) == repr(items)
    back.validate(full=True)
