"""Alerts as they come into Parquet, as brokers of alerts save them: against dictionaries, pandas and Arrow by hand.

By hand is the first step of Fink's pipeline, with fastavro in place of Confluent's slower class.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.alerts import ALERT, alert_of
from benchmarks.harness import Row, Table, measure
from serde_chain import DeserializerChain

_ROUNDS: Final = 9
_RECORDS: Final = 200
_VERSION: Final = "lsst.v11_0"


def run(*, quick: bool) -> Iterator[Table]:
    """Alerts with and without images."""
    rows = [
        _row(name, alert_of(earlier, size), quick=quick)
        for name, earlier, size in (
            ("alert of 60 KB, 2 earlier sources", 2, 20_000),
            ("alert of 60 KB, 10 earlier sources", 10, 20_000),
            ("alert without images, 10 earlier sources", 10, 0),
        )
    ]
    yield Table("raw-parquet", "Avro alerts into Parquet", "µs a batch", rows)


def by_hand(listed: list[bytes], parsed: Any, kind: Any) -> pa.Table:
    """Dictionaries, then pandas, then Arrow."""
    messages: list[Any] = [fastavro.schemaless_reader(io.BytesIO(data), parsed, None) for data in listed]
    table = pa.Table.from_pandas(pd.DataFrame.from_records(messages), schema=pa.schema(list(kind)))
    version = pa.field("lsst_schema_version", pa.string())
    return table.append_column(version, [[_VERSION] * len(table)]).replace_schema_metadata()


def ours(listed: list[bytes], chain: DeserializerChain) -> pa.Table:
    """Avro to Arrow."""
    table = pa.Table.from_struct_array(chain.to_arrow(listed, topic="t"))
    return table.append_column("lsst_schema_version", pa.array([_VERSION] * len(table)))


def _row(name: str, alert: dict[str, Any], *, quick: bool) -> Row:
    buffer = io.BytesIO()
    parsed = fastavro.parse_schema(ALERT)
    fastavro.schemaless_writer(buffer, parsed, alert)
    listed = [buffer.getvalue()[:1] + buffer.getvalue()[1:] for _ in range(_RECORDS)]
    chain = DeserializerChain.from_config({"value.deserializers": "avro", "avro.schema": json.dumps(ALERT)})
    kind = chain.to_arrow(listed[:1], topic="t").type
    if _saved(ours(listed, chain)) != _saved(by_hand(listed, parsed, kind)):
        raise AssertionError("the files differ")
    return measure(
        name,
        lambda: _write(ours(listed, chain)),
        "fastavro → dicts → pandas → Arrow",
        lambda: _write(by_hand(listed, parsed, kind)),
        quick=quick,
        rounds=_ROUNDS,
    )


def _write(table: pa.Table) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file


def _saved(table: pa.Table) -> pa.Table:
    return pq.read_table(_write(table))
