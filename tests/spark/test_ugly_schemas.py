"""Ugly registered schemas of Avro in Spark: each engine reads what Arrow reads of the plain ones, and writes it."""

import io
import json
from collections.abc import Iterator
from functools import reduce
from pprint import pformat
from typing import Any, Final

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain import ConfigError, DeserializerChain
from serde_chain.spark import decode, encode
from tests.schemas.contexts import ContextRegistry, context_registry
from tests.spark.records import kafka, row
from tests.stages.avro.test_ugly_schemas import joined, records, text
from tests.stages.avro.ugly import Ugly

# Wrong defaults (1), an invalid decimal (61), and what only Arrow reads (17).
FEW: Final = (1, 17, 61)
OTHER: Final = {"type": "record", "name": "Other", "fields": [{"name": "text", "type": "string"}]}
# Two or three queries each: `make nightly` has all of them, which the tests of writing below have in a few queries.
OTHERS: Final = [
    pytest.param(seed, marks=pytest.mark.full if seed % 8 == 0 else pytest.mark.nightly)
    for seed in range(80)
    if seed not in FEW
]


@pytest.fixture
def registry() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


def frame_of(spark: SparkSession, data: list[bytes]) -> DataFrame:
    return kafka(spark, [row(each, [], at) for at, each in enumerate(data)])


def rows_of(frame: DataFrame) -> str:
    return text([found.asDict(recursive=True)["value"] for found in frame.orderBy("offset").collect()])


@pytest.mark.parametrize("seed", [*FEW, *OTHERS])
def test_ugly_schemas(spark: SparkSession, registry: ContextRegistry, seed: int) -> None:
    ugly = Ugly(seed)
    whole, data = joined(ugly).text, records(ugly, 20)
    config: dict[str, Any] = {"value.serializer": "avro", "value.deserializer": "avro"}
    plain = frame_of(spark, data).transform(decode({**config, "avro.schema": json.dumps(ugly.plain)}, engine="arrow"))
    expected, type_ = rows_of(plain), plain.schema["value"].dataType
    number = registry.register("alerts-value", whole)
    framed = [b"\0" + number.to_bytes(4, "big") + each for each in data]
    config |= {"schema.registry.url": registry.url, "use.latest.version": True}
    for engine in ("arrow", "native"):
        try:
            read = decode(config, engine=engine, topics=["alerts"])
            typed = frame_of(spark, framed).transform(read)
        except ConfigError:
            assert engine == "native"  # with a reason: auto reads such a schema in Arrow
            continue
        assert typed.schema["value"].dataType == type_
        assert rows_of(typed) == expected


@pytest.mark.parametrize("seeds", [range(at, at + 16) for at in range(0, 80, 16)], ids=str)
def test_ugly_schemas_are_written(spark: SparkSession, registry: ContextRegistry, seeds: range) -> None:
    """By both engines, as the latest schema of a topic: fastavro and ours read of each record what was in it."""
    assert not list(differences(spark, registry, seeds))


def differences(spark: SparkSession, registry: ContextRegistry, seeds: range) -> Iterator[str]:
    """The seeds whose records are not written as they were read; one query for each engine writes all."""
    cases = [Written(seed, registry) for seed in seeds]
    native = 0
    for engine in ("arrow", "native"):
        frames = [frame for case in cases if (frame := case.frame(spark, engine)) is not None]
        native += engine == "native" and len(frames)
        found = reduce(DataFrame.union, frames).collect()
        for case in cases:
            rows = {bytes(row.key): bytes(row.value) for row in found if row.seed == case.seed}
            if rows and [case.read(rows[at]) for at in sorted(rows)] != [case.read(each) for each in case.framed]:
                yield f"{case.seed}, {engine}"
    assert native


class Written:
    """Records of an ugly schema, which is the latest of its own topic: of every second seed, a union of two records."""

    def __init__(self, seed: int, registry: ContextRegistry) -> None:
        self.seed, ugly = seed, Ugly(seed)
        plain, whole, data = ugly.plain, json.loads(joined(ugly).text), records(ugly, 20)
        if seed % 2:
            plain, whole, data = [plain, OTHER], [whole, OTHER], [b"\0" + each for each in data]
        number = registry.register(f"t{seed}-value", json.dumps(whole))
        self.framed = [b"\0" + number.to_bytes(4, "big") + each for each in data]
        self._config: dict[str, Any] = {"schema.registry.url": registry.url, "use.latest.version": True}
        self._plain = fastavro.parse_schema(plain)
        self._ours = DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": json.dumps(plain)})

    def frame(self, spark: SparkSession, engine: str) -> DataFrame | None:
        """The records, read and written again; None if Spark cannot write them, with a reason."""
        reading, writing = ({**self._config, f"value.{side}": "avro"} for side in ("deserializer", "serializer"))
        rows = [row(each, [], at, at.to_bytes(2, "big")) for at, each in enumerate(self.framed)]
        read = kafka(spark, rows).transform(decode(reading, engine="arrow", topics=[f"t{self.seed}"]))
        try:
            written = read.drop("topic", "headers").transform(encode(writing, topic=f"t{self.seed}", engine=engine))
        except ConfigError:
            assert engine == "native"
            return None
        return written.select(functions.lit(self.seed).alias("seed"), "key", "value")

    def read(self, data: bytes) -> tuple[bytes, str, str]:
        """The prefix, what fastavro reads, with the names of branches, and what we read, with maps in one order."""
        stream = io.BytesIO(data[5:])
        value = fastavro.schemaless_reader(stream, self._plain, None, return_record_name=True, return_named_type=True)
        assert not stream.read()
        return data[:5], pformat(value), text(self._ours(data[5:]))
