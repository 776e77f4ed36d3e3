"""Random schemas and records: every engine gives what Spark's own from_avro gives, type for type, value for value."""

import io
import json
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession, functions
from pyspark.sql.avro.functions import from_avro

from serde_chain.spark import deserialize
from serde_chain.stages.avro.arrow import batch as avro_batch

RECORDS = 400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAVES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
]


class Source:
    """Draws schemas, and values of them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"T{self.names}"

    def schema(self, depth: int) -> Any:
        kinds = ["leaf", "leaf", "enum", "fixed"]
        kinds += ["record", "array", "map", "optional", "union"] if depth else []
        return getattr(self, f"_{self.random.choice(kinds)}")(depth)

    def _leaf(self, _depth: int) -> Any:
        return self.random.choice(LEAVES)

    def _enum(self, _depth: int) -> Any:
        return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}

    def _fixed(self, _depth: int) -> Any:
        return {"type": "fixed", "name": self.name(), "size": self.random.randint(1, 9)}

    def _record(self, depth: int) -> Any:
        name = self.name()
        count = self.random.randint(1, 5)
        return {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{at}", "type": self.schema(depth - 1)} for at in range(count)],
        }

    def _array(self, depth: int) -> Any:
        return {"type": "array", "items": self.schema(depth - 1)}

    def _map(self, depth: int) -> Any:
        return {"type": "map", "values": self.schema(depth - 1)}

    def _optional(self, depth: int) -> Any:
        inner = self.schema(depth - 1)
        while isinstance(inner, list):
            inner = self.schema(depth - 1)
        return self.random.choice([["null", inner], [inner, "null"]])

    def _union(self, depth: int) -> Any:
        chosen = self.random.sample(["boolean", "int", "string", "double", "bytes"], 2)
        extra = [self._record(depth - 1)] if depth > 1 else []
        return [*chosen, *extra, *(["null"] if self.random.random() < 0.5 else [])]

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            branch = self.random.choice(schema)
            several = len([one for one in schema if one != "null"]) > 1
            found = self.value(branch)
            name = branch["name"] if isinstance(branch, dict) and "name" in branch else branch
            return (name, found) if several and branch != "null" else found
        if isinstance(schema, str):
            return self._plain(schema)
        return self._logical(schema["logicalType"]) if "logicalType" in schema else self._complex(schema)

    def _plain(self, kind: str) -> Any:
        draw = self.random
        bits = 31 if kind == "int" else 63
        values = {
            "null": None,
            "boolean": draw.random() < 0.5,
            "int": draw.choice([0, -1, draw.randint(-(2**bits), 2**bits - 1)]),
            "long": draw.choice([0, -1, draw.randint(-(2**bits), 2**bits - 1)]),
            "float": draw.choice([0.0, -1.5, 2.0 ** draw.randint(-20, 20)]),
            "double": draw.gauss(0, 1e6),
            "bytes": draw.randbytes(draw.randint(0, 12)),
            "string": "".join(draw.choices("aé🐎 ", k=draw.randint(0, 8))),
        }
        return values[kind]

    def _complex(self, schema: dict[str, Any]) -> Any:
        draw, kind = self.random, schema["type"]
        if kind == "enum":
            return draw.choice(schema["symbols"])
        if kind == "fixed":
            return draw.randbytes(schema["size"])
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(draw.randint(0, 4))]
        if kind == "map":
            return {f"k{at}": self.value(schema["values"]) for at in range(draw.randint(0, 3))}
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}

    def _logical(self, name: str) -> Any:
        if name == "decimal":
            return Decimal(self.random.randint(-(10**20) + 1, 10**20 - 1)).scaleb(-4)
        moment = EPOCH + timedelta(milliseconds=self.random.randint(-(10**12), 10**13))
        return moment.date() if name == "date" else moment


@pytest.mark.parametrize("seed", range(6))
def test_equal_to_from_avro(spark: SparkSession, seed: int) -> None:
    source = Source(seed)
    fields = [{"name": f"field{at}", "type": source.schema(3)} for at in range(12)]
    schema = {"type": "record", "name": "Whole", "fields": fields}
    parsed = fastavro.parse_schema(schema)
    rows = []
    for at in range(RECORDS):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, source.value(schema))
        rows.append((buffer.getvalue(), at))
    assert avro_batch.is_worthwhile(RECORDS, sum(len(data) for data, _ in rows))
    frame = spark.createDataFrame(rows, "value binary, at int").coalesce(1)
    theirs = frame.select("at", from_avro("value", json.dumps(schema)).alias("v")).orderBy("at")
    expected = repr(theirs.collect())
    config = {"value.deserializer": "avro", "avro.schema": json.dumps(schema)}
    for engine in ("arrow", "native"):
        column = deserialize("value", functions.lit(None), config, engine=engine, offset="at")
        ours = frame.select("at", column.alias("v")).orderBy("at")
        assert ours.schema == theirs.schema, engine
        assert repr(ours.collect()) == expected, engine
