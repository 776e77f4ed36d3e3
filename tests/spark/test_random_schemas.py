"""Random schemas and records: every engine gives what Spark's own from_avro gives, type for type, value for value."""

import io
import json
import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro

from serde_chain.spark import decode, deserialize, encode

pytestmark = pytest.mark.full

RECORDS = 400
# Floats that a conversion might lose.
SPECIAL = (math.nan, -0.0, math.inf, -math.inf)
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
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
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
            "float": draw.choice([0.0, -1.5, 2.0 ** draw.randint(-20, 20), *SPECIAL]),
            "double": draw.choice([draw.gauss(0, 1e6), *SPECIAL]),
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
        made = {
            "date": moment.date(),
            "time-millis": moment.time(),
            "local-timestamp-micros": moment.replace(tzinfo=None),
        }
        return made.get(name, moment)


def drawn(seed: int) -> tuple[dict[str, Any], list[bytes]]:
    """A schema, and records of it."""
    source = Source(seed)
    fields = [{"name": f"field{at}", "type": source.schema(3)} for at in range(12)]
    schema = {"type": "record", "name": "Whole", "fields": [{"name": "at", "type": "int"}, *fields]}
    parsed = fastavro.parse_schema(schema)
    records = []
    for at in range(RECORDS):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, {**source.value(schema), "at": at})
        records.append(buffer.getvalue())
    return schema, records


def frame_of(spark: SparkSession, records: list[bytes]) -> DataFrame:
    rows = [(None, data, at) for at, data in enumerate(records)]
    return spark.createDataFrame(rows, "key binary, value binary, offset bigint").coalesce(1)


@pytest.mark.parametrize("engine", ["arrow", "native"])
@pytest.mark.parametrize("seed", range(6))
def test_equal_to_from_avro(spark: SparkSession, seed: int, engine: str) -> None:
    schema, records = drawn(seed)
    frame = frame_of(spark, records)
    theirs = frame.select("offset", from_avro("value", json.dumps(schema)).alias("v")).orderBy("offset")
    expected = repr(theirs.collect())
    config = {"value.deserializer": "avro", "avro.schema": json.dumps(schema)}
    column = deserialize("value", functions.lit(None), config, engine=engine, offset="offset")
    ours = frame.select("offset", column.alias("v")).orderBy("offset")
    assert ours.schema == theirs.schema
    assert repr(ours.collect()) == expected


@pytest.mark.parametrize("seed", range(6, 10))
def test_both_engines_write_the_same(spark: SparkSession, seed: int) -> None:
    """Byte for byte, and what is read from it is what was there, unions of several branches included."""
    schema, records = drawn(seed)
    config = {"value.serializer": "avro", "value.deserializer": "avro", "avro.schema": json.dumps(schema)}
    typed = frame_of(spark, records).transform(decode(config, engine="native"))
    written = [
        [bytes(row["value"]) for row in typed.transform(encode(config, topic="t", engine=engine)).collect()]
        for engine in ("arrow", "native")
    ]
    assert written[0] == written[1]
    again = frame_of(spark, written[0]).transform(decode(config, engine="arrow"))
    assert repr(again.collect()) == repr(typed.collect())


@pytest.mark.parametrize("seed", range(10, 13))
def test_both_engines_refuse_the_same(spark: SparkSession, seed: int) -> None:
    """Records that are cut off anywhere, among good ones: the same rows are null, dropped, or end the query."""
    schema, records = drawn(seed)
    cut = random.Random(seed)
    for at in range(0, RECORDS, 3):
        records[at] = records[at][: cut.randrange(len(records[at]))]
    frame = frame_of(spark, records)
    config = {"value.deserializer": "avro", "avro.schema": json.dumps(schema)}
    found = {}
    for engine in ("arrow", "native"):
        permissive = frame.transform(decode(config, mode="PERMISSIVE", engine=engine)).orderBy("offset").collect()
        assert [row["offset"] for row in permissive if row["serde_error"]] == list(range(0, RECORDS, 3))
        assert [row["offset"] for row in permissive if row["value"] is None] == list(range(0, RECORDS, 3))
        dropped = frame.transform(decode(config, mode="DROPMALFORMED", engine=engine)).orderBy("offset").collect()
        assert len(dropped) == RECORDS - len(range(0, RECORDS, 3))
        with pytest.raises(PySparkException, match=r"DecodeError: .*field=value, stage=avro .*offset=3\]"):
            frame.where("offset >= 1").limit(5).transform(decode(config, engine=engine)).collect()
        found[engine] = repr([row["value"] for row in permissive] + dropped)
    assert found["arrow"] == found["native"]
