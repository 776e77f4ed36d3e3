"""Shared parts of the Spark benchmarks: queries in interleaved rounds, their table, records, hand-written peers."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import fastavro
import pandas as pd
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession, functions

from benchmarks.harness import Row, Table, sums
from serde_chain import SerializerChain
from serde_chain.testing.services import KafkaBroker

ROUNDS: Final = 3
SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "ra", "type": "double"},
            {"name": "dec", "type": "double"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "flux", "type": {"type": "array", "items": "double"}},
        ],
    }
)
SQL_TYPE: Final = "id long, ra double, dec double, name string, flux array<double>"
READING: Final[dict[str, object]] = {"value.deserializer": "avro", "avro.schema": SCHEMA}
WRITING: Final[dict[str, object]] = {"value.serializer": "avro", "avro.schema": SCHEMA}

_TICK: Final = os.sysconf("SC_CLK_TCK")
_wall, _cpu = attrgetter("wall"), attrgetter("cpu")


@dataclass(frozen=True)
class Seconds:
    """The cost of a query, per round.

    Attributes:
        wall: Wall time.
        cpu: CPU time of this process, Spark's JVM and its workers together; less disturbed by other programs.
    """

    wall: list[float]
    cpu: list[float]

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(sums(self.wall, other.wall), sums(self.cpu, other.cpu))


@dataclass(frozen=True)
class Line:
    """Two ways to do the same with as many records.

    Attributes:
        name: The comparison's name.
        ours: The cost of our way.
        theirs: The cost of the floor, or the peer.
        against: Its name.
    """

    name: str
    ours: Seconds
    theirs: Seconds
    against: str


def scaled(count: int, *, quick: bool) -> int:
    """How many records, or a hundredth of them."""
    return max(count // 100, 10) if quick else count


def measure(
    ways: Mapping[str, Callable[[], object]], *, quick: bool, rounds: int = ROUNDS, before: int = 2
) -> dict[str, Seconds]:
    """Time queries; all take a turn in every round, after uncounted ones in which Java compiles."""
    taken = {name: Seconds([], []) for name in ways}
    for turn in range(-1 if quick else -before, 1 if quick else rounds):
        for name, way in ways.items():
            cpu, wall = cpu_seconds(), time.perf_counter()
            way()
            if turn >= 0:
                taken[name].wall.append(time.perf_counter() - wall)
                taken[name].cpu.append(cpu_seconds() - cpu)
    return taken


def tables(name: str, title: str, count: int, lines: Sequence[Line]) -> Iterator[Table]:
    """Tables of queries of ``count`` records: in wall time, and in CPU time."""
    for suffix, of, unit in (("", _wall, "µs a record"), ("-cpu", _cpu, "µs of CPU a record")):
        rows = [
            Row(
                line.name,
                [1e6 * seconds / count for seconds in of(line.ours)],
                line.against,
                [1e6 * seconds / count for seconds in of(line.theirs)],
            )
            for line in lines
        ]
        yield Table(f"{name}{suffix}", title, unit, rows)


def cpu_seconds(processes: Iterable[int] = ()) -> float:
    """CPU time of processes, in seconds, with that of their finished descendants.

    Args:
        processes: Their numbers; by default this process and its descendants.
    """
    ticks = 0
    for process in processes or family(os.getpid()):
        # utime, stime and those of children that were waited for: proc_pid_stat(5).
        ticks += sum(int(number) for number in _stat(process)[11:15])
    return ticks / _TICK


class FamilyClock:
    """CPU time of a process and its descendants, with that of ended ones, in seconds.

    Spark ends workers after an idle minute without waiting for them; their time counts as of the last call.

    Args:
        root: The process.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._ticks: dict[int, int] = {}

    def __call__(self) -> float:
        """The time until now."""
        for process in family(self._root):
            # utime and stime: proc_pid_stat(5).
            self._ticks[process] = sum(map(int, _stat(process)[11:13])) or self._ticks.get(process, 0)
        return sum(self._ticks.values()) / _TICK


def family(root: int) -> list[int]:
    """A process and its descendants."""
    parents = {int(path.name): _stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdecimal()}
    members = [root]
    for member in members:
        members += [process for process, stat in parents.items() if stat and int(stat[1]) == member]
    return members


def _stat(process: int) -> list[str]:
    """Fields from the third on; the second may contain blanks. None for a process that no longer exists."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def record(at: int) -> dict[str, Any]:
    """A record of :data:`SCHEMA`: 5 fields, one of them 20 doubles."""
    return {"id": at, "ra": 1.5, "dec": -2.5, "name": f"alert {at}", "flux": [at * 0.5 + n for n in range(20)]}


def encoded(config: Mapping[str, object], values: Iterator[dict[str, Any]]) -> list[bytes]:
    """Values as a chain without ``large-message`` writes them."""
    with SerializerChain.from_config(config) as chain:
        return [chain(value, None) or b"" for value in values]


def cached(frame: DataFrame, partitions: int = 2) -> DataFrame:
    """Rows in memory, in as many partitions as there are threads."""
    kept = frame.repartition(partitions).cache()
    kept.count()
    return kept


def in_kafka(spark: SparkSession, broker: KafkaBroker, topic: str, records: list[tuple[bytes, Any]]) -> DataFrame:
    """Send values and headers to a new topic of two partitions; returns the topic as a DataFrame."""
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1_000_000})
    for at, (value, headers) in enumerate(records):
        producer.produce(topic, value, headers=headers, partition=at % 2)
    if producer.flush(60):
        raise AssertionError("not all records were sent")
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return source.option("subscribe", topic).option("includeHeaders", "true").load()


def length(frame: DataFrame, column: Column | str) -> None:
    """Run a query that requires a whole column of bytes."""
    frame.select(functions.col(column) if isinstance(column, str) else column).toDF("v").agg(
        functions.sum(functions.length("v"))
    ).collect()


def arrow_udf(function: Callable[[Iterator[Any]], Iterator[Any]], kind: str, column: Column) -> Column:
    """A function of iterators of ``pyarrow.Array``, called with a column."""
    function.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    spark: Any = functions  # its arrow_udf has no types
    called: Column = spark.arrow_udf(function, kind).asNondeterministic()(column)
    return called


def read_by_pandas(schema: str, kind: str, column: str) -> Column:
    """Decode Avro in a pandas UDF with fastavro, as users write it."""

    def read(values: Any) -> Any:
        parsed = fastavro.parse_schema(json.loads(schema))
        return pd.DataFrame([fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values])

    read.__annotations__ = {"values": pd.Series, "return": pd.DataFrame}
    spark: Any = functions  # its pandas_udf has no types
    called: Column = spark.pandas_udf(read, kind)(column)
    return called


def caught_by_pandas(schema: str, kind: str, column: str) -> Column:
    """Decode Avro as :func:`read_by_pandas`, with the text of the error where a record cannot be read, as ``name``."""

    def read(values: Any) -> Any:
        parsed = fastavro.parse_schema(json.loads(schema))
        return pd.DataFrame([_caught(parsed, value, none) for value in values])

    none = dict.fromkeys(part.split()[0] for part in kind.split(", "))
    read.__annotations__ = {"values": pd.Series, "return": pd.DataFrame}
    spark: Any = functions  # its pandas_udf has no types
    called: Column = spark.pandas_udf(read, kind)(column)
    return called


def read_by_arrow(schema: str, kind: str, column: str, frame: DataFrame) -> DataFrame:
    """Decode Avro in ``mapInArrow`` with fastavro, as users write it."""

    def read(batches: Iterable[Any]) -> Iterable[Any]:
        parsed = fastavro.parse_schema(json.loads(schema))
        for batch in batches:
            values = batch.column(0).to_pylist()
            yield pa.RecordBatch.from_pylist(
                [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values]
            )

    return frame.select(column).mapInArrow(read, kind)


def _caught(parsed: Any, value: bytes, none: dict[str, Any]) -> Any:
    try:
        return fastavro.schemaless_reader(io.BytesIO(value), parsed, None)
    except Exception as error:  # noqa: BLE001  whatever is wrong with a record
        return none | {"name": str(error)}


def written_by_pandas(schema: str, column: str) -> Column:
    """Encode Avro in a pandas UDF with fastavro, as users write it."""

    def write(values: Any) -> Any:
        parsed = fastavro.parse_schema(json.loads(schema))
        return pd.Series([_written(parsed, value) for value in values.to_dict("records")])

    write.__annotations__ = {"values": pd.DataFrame, "return": pd.Series}
    spark: Any = functions  # its pandas_udf has no types
    called: Column = spark.pandas_udf(write, "binary")(column)
    return called


def written_by_arrow(schema: str, column: str, frame: DataFrame) -> DataFrame:
    """Encode Avro in ``mapInArrow`` with fastavro, as users write it."""

    def write(batches: Iterable[Any]) -> Iterable[Any]:
        parsed = fastavro.parse_schema(json.loads(schema))
        for batch in batches:
            values = [_written(parsed, value) for value in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])

    return frame.select(column).mapInArrow(write, "value binary")


def _written(parsed: Any, value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    return out.getvalue()
