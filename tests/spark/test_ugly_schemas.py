"""Ugly registered schemas of Avro in Spark: each engine reads what Arrow reads of the plain ones."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from serde_chain import ConfigError
from serde_chain.spark import decode
from tests.schemas.contexts import ContextRegistry, context_registry
from tests.spark.records import kafka, row
from tests.stages.avro.test_ugly_schemas import joined, records, text
from tests.stages.avro.ugly import Ugly

# Wrong defaults (1), an invalid decimal (61), and what only Arrow reads (17).
FEW: Final = (1, 17, 61)
OTHERS: Final = [seed for seed in range(80) if seed not in FEW]


@pytest.fixture
def registry() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


def frame_of(spark: SparkSession, data: list[bytes]) -> DataFrame:
    return kafka(spark, [row(each, [], at) for at, each in enumerate(data)])


def rows_of(frame: DataFrame) -> str:
    return text([found.asDict(recursive=True)["value"] for found in frame.orderBy("offset").collect()])


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.full) for seed in OTHERS)])
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
