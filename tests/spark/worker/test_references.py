"""What records refer to, as the executors of jobs see it, without Spark."""

import json
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_chain import RecordContext, SerializerChain
from serde_chain.spark.plan.references import WHOLE, plan_reading
from serde_chain.spark.worker.references import find_references

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PAYLOAD = 4 << 20
COUNT = 16


def test_an_audit_holds_no_more_payloads_than_a_reader_may(tmp_path: Path) -> None:
    config = {
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "large.message.downloads.max.bytes": 2 * PAYLOAD,
        "local.path": str(tmp_path),
    }
    values, headers = [], []
    with SerializerChain.from_config(config) as chain:
        for at in range(COUNT):
            pairs: list[Any] = []
            values.append(chain(bytes([at]) * PAYLOAD, RecordContext("t", "value", pairs)))
            headers.append([{"key": name, "value": value} for name, value in pairs])
    next(path for path in tmp_path.rglob("*") if path.is_file()).write_bytes(b"short")
    plan = replace(plan_reading(config, ("t",)), check=WHOLE)
    arrays: dict[str, Any] = {
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "topic": pa.array(["t"] * COUNT),
        "partition": pa.array([0] * COUNT),
        "offset": pa.array(range(COUNT)),
        "key": pa.nulls(COUNT, pa.binary()),
    }
    columns = tuple(arrays[name] for name in plan.columns)
    pickled = pickle.dumps(plan)
    list(find_references(pickled, iter([tuple(column.slice(0, 1) for column in columns)])))  # modules are loaded once
    tracemalloc.start()
    try:
        [found] = find_references(pickled, iter([columns]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    entries = [entry for text in found.to_pylist() for entry in json.loads(text)]
    assert len(entries) == COUNT
    assert [entry["kind"] for entry in entries if "kind" in entry] == ["PayloadIntegrityError"]
    # The bound, and one payload that is being checked.
    assert peak < 3.5 * PAYLOAD
