"""Whether Spark's own functions can write what a chain writes, and why not: ``to_avro`` where both mean the same."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, DataType, StringType

from serde_chain.chain import SerializerChain
from serde_chain.errors import ConfigError
from serde_chain.record import VALUE, RecordContext
from serde_chain.spark.plan.arguments import ARROW, FAILFAST, NATIVE
from serde_chain.spark.plan.spark_avro import type_of_from_avro
from serde_chain.spark.plan.types import as_nullable
from serde_chain.stages.avro.stage import AvroSerializer
from serde_chain.stages.primitives import BytesSerializer, StringSerializer

__all__ = ["NativeWriter", "native_writer"]


@dataclass(frozen=True)
class NativeWriter:
    """How Spark writes keys or values by itself.

    Attributes:
        kind: ``avro``, ``string`` or ``bytes``.
        schema: The schema, as JSON, for ``avro``.
        prefix: What stands in front of each record.
    """

    kind: str
    schema: str = ""
    prefix: bytes = b""


def native_writer(  # noqa: PLR0911, each has its reason
    chain: SerializerChain | None,
    count: int,
    column: DataType,
    *,
    is_key: bool,
    topic: str | None,
    session: SparkSession | None,
) -> NativeWriter | str:
    """How Spark writes what the first stages of a chain write, if it can.

    Args:
        chain: The chain; None where there is none, so that the column is the record's as it is.
        count: How many of its stages are meant; the others follow in Python.
        column: The column's type.
        is_key: Whether these are keys.
        topic: The topic, where it is one for all records.
        session: Where to try whether Spark has its Avro functions.

    Returns:
        The way, or the reason why there is none.

    Raises:
        SchemaRegistryError: The registry has to be asked for the schema's id, and does not answer.
    """
    if chain is None or (not count and isinstance(column, BinaryType)):
        return NativeWriter("bytes")
    if count != 1:
        return f"{chain.labels[max(count - 2, 0)]} and what follows it run in Python"
    stage, label = chain.stages[0], chain.labels[0]
    if _is(stage, BytesSerializer) and isinstance(column, BinaryType):
        return NativeWriter("bytes")
    if _is(stage, StringSerializer) and isinstance(column, StringType):
        return NativeWriter("string")
    avro = stage if isinstance(stage, AvroSerializer) and _is(stage, AvroSerializer) else None
    if avro is None or is_key:
        return f"Spark has no function of its own for {label}" + (" in keys" if is_key else "")
    if avro.depends_on_topic and topic is None:
        return "the schema's id depends on the topic: pass topic="
    way = avro.way_of(RecordContext(topic or "", VALUE, []))
    if way is None:
        return f"Spark does not check or frame records as {label} does"
    try:
        expected = type_of_from_avro(_session(session), [way.schema.text], None, FAILFAST)
    except Exception as error:  # noqa: BLE001, whatever Spark raises, the other engine does not need it
        first = str(error).strip().partition("\n")[0]
        return f"Spark does not accept this schema; is the jar spark-avro installed? ({first})"
    if as_nullable(expected) != as_nullable(column):
        return f"the column is {column.simpleString()}, and Spark reads the schema as {expected.simpleString()}"
    return NativeWriter("avro", way.schema.text, way.prefix)


def _is(stage: object, kind: type) -> bool:
    """Whether a stage is of a class, and not of one that is made of it and may do something else."""
    return type(stage) is kind


def _session(session: SparkSession | None) -> SparkSession:
    found = session or SparkSession.getActiveSession()
    if found is None:
        raise ConfigError("there is no Spark session yet in which to_avro could be tried")
    return found


def chosen(reasons: list[str], engine: str) -> str:
    """The engine, by the reasons against the native one.

    Raises:
        ConfigError: It is asked for, and there are some.
    """
    if reasons and engine == NATIVE:
        raise ConfigError(f"engine='native' cannot write: {reasons[0]}", hint="Use engine='auto'", key="engine")
    return ARROW if reasons or engine == ARROW else NATIVE
