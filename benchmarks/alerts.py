"""Survey alerts with image cut-outs into Arrow: batches of records with large fields, against fastavro by hand."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa

from benchmarks.harness import Row, Table, measure
from serde_chain import DeserializerChain

_ROUNDS: Final = 15
# A batch: as many records as consumers take at once, up to librdkafka's default of queued bytes.
_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = 64 << 20
_CUTOUTS: Final = ("cutoutDifference", "cutoutScience", "cutoutTemplate")
_MEASUREMENTS: Final = 80
_FEW_COLUMNS: Final = ["diaSourceId", "diaSource.midpointMjdTai", "diaSource.measurement0"]

# The shape of the alerts of the Vera C. Rubin Observatory: a source of many nullable numbers, the sources before it,
# and three images.
_SOURCE: Final = {
    "type": "record",
    "name": "diaSource",
    "fields": [
        {"name": "diaSourceId", "type": "long"},
        {"name": "midpointMjdTai", "type": "double"},
        {"name": "band", "type": ["null", "string"], "default": None},
        {"name": "isNegative", "type": "boolean"},
        *(
            {"name": f"measurement{n}", "type": ["null", "float" if n % 3 else "double"], "default": None}
            for n in range(_MEASUREMENTS)
        ),
    ],
}
ALERT: Final = {
    "type": "record",
    "name": "alert",
    "fields": [
        {"name": "diaSourceId", "type": "long"},
        {"name": "diaSource", "type": _SOURCE},
        {"name": "prvDiaSources", "type": ["null", {"type": "array", "items": "diaSource"}], "default": None},
        *({"name": name, "type": ["null", "bytes"], "default": None} for name in _CUTOUTS),
    ],
}


class _Shape(NamedTuple):
    name: str
    schema: Any
    record: dict[str, Any]
    wanted: Any | None = None  # the reader's schema
    columns: list[str] | None = None


def run(*, quick: bool) -> Iterator[Table]:
    """Alerts of several sizes, documents of two large fields, and one field of twelve."""
    rows = [_row(shape, quick=quick) for shape in _shapes()]
    yield Table("arrow-large", "Avro records with large fields into Arrow", "µs a batch", rows)


def _shapes() -> Sequence[_Shape]:
    def pair(size: int) -> _Shape:
        fields = [{"name": "id", "type": "long"}, *({"name": n, "type": "bytes"} for n in ("first", "second"))]
        schema = {"type": "record", "name": "pair", "fields": fields}
        record = {"id": 1159, "first": random.randbytes(size), "second": random.randbytes(size)}
        return _Shape(f"two fields of {size // 1000} KB", schema, record)

    def one_of_twelve(size: int) -> _Shape:
        fields = [{"name": f"field{n}", "type": "bytes"} for n in range(11)]
        schema = {"type": "record", "name": "twelve", "fields": [*fields, {"name": "id", "type": "long"}]}
        wanted = {"type": "record", "name": "twelve", "fields": [{"name": "id", "type": "long"}]}
        record = {"id": 1159, **{f"field{n}": random.randbytes(size) for n in range(11)}}
        return _Shape(f"one field of twelve, {11 * size // 1000} KB", schema, record, wanted)

    return (
        _Shape("alert of 60 KB, no earlier source", ALERT, alert_of(0, 20_000)),
        _Shape("alert of 60 KB, 2 earlier sources", ALERT, alert_of(2, 20_000)),
        _Shape("alert of 60 KB, 10 earlier sources", ALERT, alert_of(10, 20_000)),
        _Shape("alert of 60 KB, 3 columns", ALERT, alert_of(2, 20_000), columns=_FEW_COLUMNS),
        _Shape("alert of 180 KB, 2 earlier sources", ALERT, alert_of(2, 60_000)),
        _Shape("alert without images, 2 earlier sources", ALERT, alert_of(2, 0)),
        pair(4_000),
        pair(10_000),
        pair(20_000),
        pair(200_000),
        one_of_twelve(5_000),
        one_of_twelve(20_000),
        one_of_twelve(20),
    )


def alert_of(earlier: int, image_bytes: int) -> dict[str, Any]:
    """An alert with a number of earlier sources, and three images."""
    return {
        "diaSourceId": 1159,
        "diaSource": _source(0),
        "prvDiaSources": [_source(n) for n in range(1, earlier + 1)] or None,
        **{name: random.randbytes(image_bytes) if image_bytes else None for name in _CUTOUTS},
    }


def _source(number: int) -> dict[str, Any]:
    measured = {f"measurement{n}": 0.25 * n if n % 5 else None for n in range(_MEASUREMENTS)}
    return {"diaSourceId": number, "midpointMjdTai": 61_041.5, "band": "r", "isNegative": False, **measured}


def _row(shape: _Shape, *, quick: bool) -> Row:
    buffer = io.BytesIO()
    parsed = fastavro.parse_schema(shape.schema)
    fastavro.schemaless_writer(buffer, parsed, shape.record)
    one = buffer.getvalue()
    count = min(_BATCH_RECORDS, _BATCH_BYTES // len(one))
    listed = [one[:1] + one[1:] for _ in range(count)]
    batch = pa.array(listed, pa.binary())
    schemas = {"avro.schema": json.dumps(shape.schema)}
    if shape.wanted is not None:
        schemas["avro.reader.schema"] = json.dumps(shape.wanted)
    chain = DeserializerChain.from_config({"value.deserializers": "avro", **schemas})
    kind = chain.to_arrow(batch, topic="t", columns=shape.columns).type

    def ours() -> Any:
        return chain.to_arrow(batch, topic="t", columns=shape.columns)

    def by_hand() -> Any:
        return pa.array([fastavro.schemaless_reader(io.BytesIO(data), parsed, None) for data in listed], kind)

    if ours() != by_hand():
        raise AssertionError("the arrays differ")
    return measure(shape.name, ours, "fastavro → dicts → Arrow", by_hand, quick=quick, rounds=_ROUNDS, at=f"{count:,}")
