"""Chooses the engine that writes: Spark's own ``to_avro`` if it writes the same bytes, otherwise Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, DataType, StringType

from serde_chain.base.kinds import typed_stage
from serde_chain.chain import SerializerChain
from serde_chain.clients.client_chains import ClientChains
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.arguments import ARROW, FAILFAST, NATIVE
from serde_chain.spark.columns.types import as_nullable
from serde_chain.spark.prerequisites import has_arrow_udfs
from serde_chain.spark.spark_avro import changes_dates, type_of_from_avro, unwritable
from serde_chain.spark.writing.fitting import misfit
from serde_chain.spark.writing.large_fields import MovePlan, plan_moves
from serde_chain.spark.writing.plan import plan_offload
from serde_chain.stages.avro.stage import AvroSerializer, AvroWay
from serde_chain.stages.primitives import BytesSerializer, StringSerializer
from serde_chain.wire.large_fields import join


@dataclass(frozen=True)
class SparkWriter:
    """The way for Spark to write keys or values itself.

    Attributes:
        kind: ``avro``, ``string`` or ``bytes``.
        schema: The schema, as JSON, for ``avro``.
        prefix: The bytes in front of each record.
    """

    kind: str
    schema: str = ""
    prefix: bytes = b""

    @property
    def does(self) -> str:
        """Spark's action, in words."""
        return "Spark's to_avro writes it" if self.kind == "avro" else f"Spark writes {self.kind} itself"


class _Refused(NamedTuple):
    """The reason why Spark cannot write.

    Attributes:
        reason: In words.
        avoidable: Whether it could with another column type.
    """

    reason: str
    avoidable: bool = False


@dataclass(frozen=True)
class WritingChoice:
    """An engine for writing a DataFrame.

    Attributes:
        engine: ``native`` or ``arrow``.
        reasons: For each existing column of ``value`` and ``key``, the reason for the engine that would write it
            alone.
        writers: The writers for the columns that Spark can write.
        avoidable: The columns that Spark cannot write only because of their type.
        offloads: The position where the value chain begins to offload, and the size from which it does, for
            ``native``; None if it does not.
        moves: The columns that Python moves to the store before Spark writes, for ``native``; None if it moves none.
    """

    engine: str
    reasons: Mapping[str, str]
    writers: Mapping[str, SparkWriter]
    avoidable: tuple[str, ...]
    offloads: tuple[int, int] | None
    moves: MovePlan | None


def choose_writing(
    setup: ClientChains[SerializerChain],
    types: Mapping[str, DataType] | None,
    *,
    topic: str | None,
    engine: str,
    session: SparkSession | None = None,
) -> WritingChoice:
    """Choose the engine for writing a DataFrame.

    Args:
        setup: The chains.
        types: The types of the DataFrame's columns; None if Spark does not tell them.
        topic: The topic, if all records have the same.
        engine: ``auto``, ``arrow`` or ``native``.
        session: The session in which to try ``to_avro``; the active one by default.

    Raises:
        ConfigError: A column can never be written, or the engine is ``native`` but cannot write.
        SchemaRegistryError: The registry must be queried for the schema's id, and does not answer.
    """
    offloads = plan_offload(setup)
    if types is None:
        unknown = "the columns' types are unknown in a query function of a pipeline"
        if engine == NATIVE:
            raise ConfigError(f"engine='native' cannot write: {unknown}", hint="Use engine='auto'", key="engine")
        return WritingChoice(ARROW, {VALUE: unknown}, {}, (), offloads, None)
    moves = plan_moves(setup, types.get(VALUE))
    planned = moves if isinstance(moves, MovePlan) else None
    writers: dict[str, SparkWriter] = {}
    refused: dict[str, _Refused] = {}
    for name, chain in ((VALUE, setup.value), (KEY, setup.key)):
        if name not in types:
            continue
        _check_fits(chain, types[name], name)
        if engine == ARROW:
            refused[name] = _Refused("as requested")
            continue
        moved, offloaded = (moves, offloads) if name == VALUE else (None, None)
        writer: SparkWriter | _Refused = (
            _Refused(moved)
            if isinstance(moved, str)
            else _native_writer(
                chain,
                _stages_between(chain, moved, offloaded),
                types[name],
                is_key=name == KEY,
                topic=topic,
                session=session,
            )
        )
        if isinstance(writer, SparkWriter):
            writers[name] = writer
        elif engine == NATIVE:
            raise ConfigError(
                f"engine='native' cannot write: {name}: {writer.reason}",
                hint="Change that, or use engine='auto', which passes such rows through Python",
                key="engine",
            )
        else:
            refused[name] = writer
    reasons = {name: writer.does for name, writer in writers.items()}
    reasons |= {name: refusal.reason for name, refusal in refused.items()}
    avoidable = tuple(name for name, refusal in refused.items() if refusal.avoidable)
    if planned is not None and VALUE in writers:
        reasons[VALUE] = f"{reasons[VALUE]}, Python moves {', '.join(map(join, planned.paths))}"
    return WritingChoice(ARROW if refused else NATIVE, reasons, writers, avoidable, offloads, planned)


def _stages_between(chain: SerializerChain | None, moves: MovePlan | None, offloads: tuple[int, int] | None) -> range:
    """The positions of the stages between those that Python runs: the one that moves fields, and those that offload."""
    count = len(chain.stages) if chain is not None else 0
    return range(0 if moves is None else 1, count if offloads is None else offloads[0])


def check_fits_pandas(chain: SerializerChain) -> None:
    """Refuse a pandas UDF for values that it cannot accept. Other types than those of Avro are known only to workers.

    Raises:
        ConfigError: The chain's schema requires another type than binary and text.
    """
    problems = [_misfit(chain, kind, "such a value") for kind in (BinaryType(), StringType())]
    if None not in problems:
        raise ConfigError(
            f"a pandas UDF accepts values only as binary or text: {problems[0]}",
            hint="Use kind='arrow' (pyspark 4.1 or newer), or encode(); before pyspark 4.1, that needs to_avro",
            key="kind",
        )


def check_takes(types: Mapping[str, DataType]) -> None:
    """Refuse columns that would not reach a worker unchanged.

    Args:
        types: The types of the keys and values to write.

    Raises:
        ConfigError: Only pandas UDFs are available, and a column is neither binary nor text.
    """
    if not has_arrow_udfs():
        for name, kind in types.items():
            if not isinstance(kind, BinaryType | StringType):
                raise ConfigError(
                    f"before pyspark 4.1, Python accepts the column for {name} only as binary or text, but it is "
                    f"{kind.simpleString()}",
                    hint="Use pyspark 4.1 or newer; for Avro, engine='native' may do, or says why not",
                    key=name,
                )


def _misfit(chain: SerializerChain | None, column: DataType, name: str) -> str | None:
    first = typed_stage(chain.stages) if chain is not None else None
    schema = first.value_schema if isinstance(first, AvroSerializer) and _is(first, AvroSerializer) else None
    return None if schema is None else misfit(schema, column, name)


def _check_fits(chain: SerializerChain | None, column: DataType, name: str) -> None:
    problem = _misfit(chain, column, name)
    if problem is not None:
        raise ConfigError(
            f"the column {name} cannot be written: {problem}", hint="Cast the column, or change the schema", key=name
        )


def _native_writer(  # noqa: PLR0911, each has its reason
    chain: SerializerChain | None,
    stages: range,
    column: DataType,
    *,
    is_key: bool,
    topic: str | None,
    session: SparkSession | None,
) -> SparkWriter | _Refused:
    """The way for Spark to replace stages of a chain, if it can.

    Args:
        chain: The chain; None if the record's bytes are the column itself.
        stages: The positions of the stages to replace; the others run in Python.
        column: The column's type.
        is_key: Whether the column has keys.
        topic: The topic, if all records have the same.
        session: The session in which to try Spark's Avro functions.

    Returns:
        The way, or the reason why there is none.

    Raises:
        SchemaRegistryError: The registry must be queried for the schema's id, and does not answer.
    """
    if chain is None or (not stages and isinstance(column, BinaryType)):
        return SparkWriter("bytes")
    if len(stages) != 1:
        return _Refused(f"{chain.labels[max(stages.stop - 2, 0)]} and the stages after it run in Python")
    stage, label = chain.stages[stages.start], chain.labels[stages.start]
    if _is(stage, BytesSerializer) and isinstance(column, BinaryType):
        return SparkWriter("bytes")
    if _is(stage, StringSerializer) and isinstance(column, StringType):
        return SparkWriter("string")
    avro = stage if isinstance(stage, AvroSerializer) and _is(stage, AvroSerializer) else None
    if avro is None or is_key:
        return _Refused(f"Spark has no function for {label}" + (" in keys" if is_key else ""))
    if avro.depends_on_topic and topic is None:
        return _Refused("the schema's id depends on the topic: pass topic=")
    way = avro.way_of(RecordContext(topic or "", VALUE, []))
    if way is None:
        return _Refused(f"Spark does not check or frame records like {label}")
    return _avro_writer(way, column, session)


def _avro_writer(way: AvroWay, column: DataType, session: SparkSession | None) -> SparkWriter | _Refused:
    if (reason := unwritable(way.schema)) is not None:
        return _Refused(reason)
    if (setting := changes_dates(_session(session))) is not None:
        return _Refused(f"to_avro writes old dates in another calendar than Avro's: {setting}")
    try:
        expected = type_of_from_avro(_session(session), [way.schema.text], None, FAILFAST)
    except Exception as error:  # noqa: BLE001, any error of Spark: the other engine does not need it
        first = str(error).strip().partition("\n")[0]
        return _Refused(f"Spark does not accept this schema; is the jar spark-avro installed? ({first})")
    if as_nullable(expected) != as_nullable(column):
        return _Refused(
            f"the column is {column.simpleString()}, and Spark reads the schema as {expected.simpleString()}",
            avoidable=True,
        )
    return SparkWriter("avro", way.schema.text, way.prefix)


def _is(stage: object, kind: type) -> bool:
    """Whether a stage's class is exactly this one: a subclass may behave differently."""
    return type(stage) is kind


def _session(session: SparkSession | None) -> SparkSession:
    found = session or SparkSession.getActiveSession()
    if found is None:
        raise ConfigError("to_avro cannot be tried: there is no Spark session yet")
    return found
