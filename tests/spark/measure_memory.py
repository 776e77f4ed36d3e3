"""Measures what a worker takes in memory for a batch of references to large payloads; prints it as JSON.

In a process of its own, with what Spark runs in its workers. Run with the last stage's name, an empty folder and the
size that payloads have, in bytes.
"""

import gc
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from serde_chain import RecordContext, SerializerChain
from serde_chain.spark.chains.plan import ReadPlan
from serde_chain.spark.reading.worker import decode_batches
from tests.memory import peak_bytes, reset_peak
from tests.spark.records import whole_plan

COUNT = 12
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Image",
        "fields": [{"name": "pixels", "type": {"type": "array", "items": "float"}}, {"name": "raw", "type": "bytes"}],
    }
)


def batch(write: SerializerChain, values: list[Any]) -> tuple[Any, Any]:
    """Kafka's columns."""
    data, headers = [], []
    for value in values:
        ctx = RecordContext("t", "value", [])
        data.append(write(value, ctx))
        pairs: Any = ctx.headers
        headers.append([{"key": name, "value": found} for name, found in pairs])
    return pa.array(data, pa.binary()), pa.array(headers, HEADERS)


def main(last: str, folder: str, size: int) -> None:
    """Measure and print."""
    config: dict[str, Any] = {
        "value.deserializers": f"large-message, {last}",
        "avro.schema": SCHEMA,
        "large.message.payload.store.class": "local",
        "local.path": folder,
    }
    writing = {key: value for key, value in config.items() if "deserializers" not in key}
    with SerializerChain.from_config({**writing, "value.serializers": f"{last}, large-message"}) as write:
        if last == "avro":
            # Half of it numbers, half bytes.
            values: list[Any] = [{"pixels": [0.5] * (size // 8), "raw": bytes(size // 2)}]
            small: Any = {"pixels": [0.5], "raw": b""}
        else:
            values, small = [bytes(size)], b""
        one = batch(write, values)
        few = batch(write, [small] * 5000)  # modules are loaded once: not a cost of a payload
    value, headers = one
    # Each its own reference, since equal ones are downloaded once.
    path = next(path for path in Path(folder).rglob("*") if path.is_file())
    references = [f"{value[0].as_py().decode()}-{at}".encode() for at in range(COUNT)]
    for at in range(COUNT):
        (path.parent / f"{path.name}-{at}").hardlink_to(path)
    columns = pa.array(references, pa.binary()), pa.concat_arrays([headers] * COUNT)
    del values, one
    plan = ReadPlan(config, ("value", "headers"), whole_plan(config, is_key=False), None, (), "FAILFAST", "")
    pickled = pickle.dumps(plan)
    list(decode_batches(pickled, iter([few])))
    gc.collect()
    pa.default_memory_pool().release_unused()
    before = reset_peak()
    rows = largest = 0
    for array in decode_batches(pickled, iter([columns])):
        rows += len(array)
        largest = max(largest, array.nbytes)
    print(json.dumps({"rows": rows, "taken": peak_bytes() - before, "output": largest}))  # noqa: T201, what the test reads


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
