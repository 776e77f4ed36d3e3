"""Records as Spark's Kafka source has them, without a broker."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from serde_chain import RecordContext, SerializerChain
from serde_chain.spark.chains.opened import open_chain
from serde_chain.spark.chains.plan import FieldPlan

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


def encoded(config: Mapping[str, Any], value: Any, headers: list[Any], topic: str = "alerts") -> Any:
    """A value as a producer sends it; headers are added to those given."""
    with SerializerChain.from_config(config) as chain:
        return chain(value, RecordContext(topic, "value", headers))


def row(value: Any, headers: list[Any], at: int, key: bytes | None = None) -> tuple[Any, ...]:
    """A record of the topic ``alerts`` with an offset."""
    return key, value, "alerts", 0, at, None, headers or None


def kafka(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    """The records, in one partition."""
    return spark.createDataFrame(rows, KAFKA).coalesce(1)


def whole_plan(config: Mapping[str, object], *, is_key: bool = False, given: Any = None) -> FieldPlan | None:
    """The plan for all stages of a chain."""
    chain = open_chain(config, is_key=is_key, given=given)
    return None if chain is None else chain.whole
