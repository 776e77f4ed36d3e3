"""Which engine writes, and why: Spark's own ``to_avro`` where both mean the same, Python otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, DataType, StringType

from serde_chain.chain import SerializerChain
from serde_chain.clients.client_chains import ClientChains
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.plan.arguments import ARROW, FAILFAST, NATIVE
from serde_chain.spark.plan.fitting import misfit
from serde_chain.spark.plan.spark_avro import changes_dates, names_not_told_apart, type_of_from_avro
from serde_chain.spark.plan.types import as_nullable
from serde_chain.spark.plan.writing import plan_offload
from serde_chain.stages.avro.stage import AvroSerializer, AvroWay
from serde_chain.stages.primitives import BytesSerializer, StringSerializer

__all__ = ["NativeWriter", "WritingChoice", "choose_writing"]


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

    @property
    def does(self) -> str:
        """What Spark does, in words."""
        return "Spark's to_avro writes it" if self.kind == "avro" else f"Spark writes {self.kind} itself"


class _Refused(NamedTuple):
    """Why Spark cannot write.

    Attributes:
        reason: In words.
        avoidable: Whether it could if the column had another type.
    """

    reason: str
    avoidable: bool = False


@dataclass(frozen=True)
class WritingChoice:
    """An engine for a DataFrame that is written.

    Attributes:
        engine: ``native`` or ``arrow``.
        reasons: For each of the columns ``value`` and ``key`` that there are, the reason for the engine that would
            write it by itself.
        writers: How Spark writes those that it can.
        avoidable: Those that it cannot write for the column's type alone.
        offloads: Where the value chain begins to offload, and from how many bytes on, for ``native``; None if it does
            not.
    """

    engine: str
    reasons: Mapping[str, str]
    writers: Mapping[str, NativeWriter]
    avoidable: tuple[str, ...]
    offloads: tuple[int, int] | None


def choose_writing(
    setup: ClientChains[SerializerChain],
    types: Mapping[str, DataType],
    *,
    topic: str | None,
    engine: str,
    session: SparkSession | None = None,
) -> WritingChoice:
    """Choose the engine for a DataFrame that is written.

    Args:
        setup: The chains.
        types: The types of the DataFrame's columns.
        topic: The topic, where it is one for all records.
        engine: ``auto``, ``arrow`` or ``native``.
        session: Where to try whether Spark has ``to_avro``; the active one by default.

    Raises:
        ConfigError: A column can never be written, or the engine is ``native``, and cannot write.
        SchemaRegistryError: The registry has to be asked for the schema's id, and does not answer.
    """
    offloads = plan_offload(setup)
    writers: dict[str, NativeWriter] = {}
    refused: dict[str, _Refused] = {}
    for name, chain in ((VALUE, setup.value), (KEY, setup.key)):
        if name not in types:
            continue
        _check_fits(chain, types[name], name)
        if engine == ARROW:
            refused[name] = _Refused("as requested")
            continue
        count = len(chain.stages) if chain is not None else 0
        if name == VALUE and offloads is not None:
            count = offloads[0]
        writer = _native_writer(chain, count, types[name], is_key=name == KEY, topic=topic, session=session)
        if isinstance(writer, NativeWriter):
            writers[name] = writer
        elif engine == NATIVE:
            raise ConfigError(
                f"engine='native' cannot write: {name}: {writer.reason}", hint="Use engine='auto'", key="engine"
            )
        else:
            refused[name] = writer
    reasons = {name: writer.does for name, writer in writers.items()}
    reasons |= {name: refusal.reason for name, refusal in refused.items()}
    avoidable = tuple(name for name, refusal in refused.items() if refusal.avoidable)
    return WritingChoice(ARROW if refused else NATIVE, reasons, writers, avoidable, offloads)


def _check_fits(chain: SerializerChain | None, column: DataType, name: str) -> None:
    first = chain.stages[0] if chain is not None else None
    schema = first.value_schema if isinstance(first, AvroSerializer) and _is(first, AvroSerializer) else None
    problem = None if schema is None else misfit(schema, column, name)
    if problem is not None:
        raise ConfigError(
            f"the column {name} cannot be written: {problem}", hint="Cast the column, or change the schema", key=name
        )


def _native_writer(  # noqa: PLR0911, each has its reason
    chain: SerializerChain | None,
    count: int,
    column: DataType,
    *,
    is_key: bool,
    topic: str | None,
    session: SparkSession | None,
) -> NativeWriter | _Refused:
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
        return _Refused(f"{chain.labels[max(count - 2, 0)]} and what follows it run in Python")
    stage, label = chain.stages[0], chain.labels[0]
    if _is(stage, BytesSerializer) and isinstance(column, BinaryType):
        return NativeWriter("bytes")
    if _is(stage, StringSerializer) and isinstance(column, StringType):
        return NativeWriter("string")
    avro = stage if isinstance(stage, AvroSerializer) and _is(stage, AvroSerializer) else None
    if avro is None or is_key:
        return _Refused(f"Spark has no function of its own for {label}" + (" in keys" if is_key else ""))
    if avro.depends_on_topic and topic is None:
        return _Refused("the schema's id depends on the topic: pass topic=")
    way = avro.way_of(RecordContext(topic or "", VALUE, []))
    if way is None:
        return _Refused(f"Spark does not check or frame records as {label} does")
    return _avro_writer(way, column, session)


def _avro_writer(way: AvroWay, column: DataType, session: SparkSession | None) -> NativeWriter | _Refused:
    if (names := names_not_told_apart(way.schema)) is not None:
        return _Refused(f"to_avro does not tell the fields {' and '.join(names)} apart")
    if (setting := changes_dates(_session(session))) is not None:
        return _Refused(f"to_avro writes old dates in another calendar than Avro's: {setting}")
    try:
        expected = type_of_from_avro(_session(session), [way.schema.text], None, FAILFAST)
    except Exception as error:  # noqa: BLE001, whatever Spark raises, the other engine does not need it
        first = str(error).strip().partition("\n")[0]
        return _Refused(f"Spark does not accept this schema; is the jar spark-avro installed? ({first})")
    if as_nullable(expected) != as_nullable(column):
        return _Refused(
            f"the column is {column.simpleString()}, and Spark reads the schema as {expected.simpleString()}",
            avoidable=True,
        )
    return NativeWriter("avro", way.schema.text, way.prefix)


def _is(stage: object, kind: type) -> bool:
    """Whether a stage is of a class, and not of one that is made of it and may do something else."""
    return type(stage) is kind


def _session(session: SparkSession | None) -> SparkSession:
    found = session or SparkSession.getActiveSession()
    if found is None:
        raise ConfigError("there is no Spark session yet in which to_avro could be tried")
    return found
