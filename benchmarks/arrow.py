"""Registry-framed Avro into Arrow: against dictionaries from fastavro and from Confluent's class, and in threads."""

from __future__ import annotations

import io
import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any, Final, Self

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.harness import Row, Table, in_turns, measure
from benchmarks.records import BIG, BIG_SCHEMA, SMALL, SMALL_SCHEMA
from serde_chain import DeserializerChain
from serde_chain.testing.services import SchemaRegistry

_ROUNDS = 7
_THREADS: Final = 2
_BATCHES: Final = 20
_TIMES: Final = {
    "type": "record",
    "name": "Times",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "night", "type": ["null", {"type": "int", "logicalType": "date"}]},
    ],
}
_MOMENT: Final = datetime(2026, 11, 26, 18, 3, 34, tzinfo=UTC)
_SHAPES: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("20 fields", BIG_SCHEMA, BIG),
    ("3 fields", SMALL_SCHEMA, SMALL),
    ("3 fields, times", json.dumps(_TIMES), {"id": 1, "at": _MOMENT, "night": _MOMENT.date()}),
)


def run(*, quick: bool) -> Iterator[Table]:
    """Batches of 1 to 10,000 records of 20 and of 3 fields, framed by a real registry."""
    with SchemaRegistry() as registry:
        yield from _tables(registry, quick=quick)


def _tables(registry: SchemaRegistry, *, quick: bool) -> Iterator[Table]:
    url, client, conf = registry.url, registry.client(), registry.serializer_conf()
    by_hand, by_confluent = [], []
    in_threads: list[Row] = []
    for name, schema, record in _SHAPES:
        context = SerializationContext(f"arrow-{len(schema)}", MessageField.VALUE, [])
        one = AvroSerializer(client, schema, conf=conf)(record, context)
        confluent = AvroDeserializer(client, conf=conf)
        chain = DeserializerChain.from_config({"value.deserializers": "avro", "schema.registry.url": url})
        parsed = fastavro.parse_schema(json.loads(schema))
        for count in (1, 10, 100, 1_000, 10_000):
            batch = pa.array([one] * count, pa.binary())
            listed = batch.to_pylist()
            kind = chain.to_arrow(batch, topic="t").type
            ours: Any = lambda chain=chain, batch=batch: chain.to_arrow(batch, topic="t")  # noqa: E731
            hand: Any = lambda listed=listed, parsed=parsed, kind=kind: _by_hand(listed, parsed, kind)  # noqa: E731
            theirs: Any = lambda listed=listed, call=confluent, ctx=context: [call(data, ctx) for data in listed]  # noqa: E731
            if ours() != hand():
                raise AssertionError("the arrays differ")
            common: Any = {"quick": quick, "rounds": _ROUNDS, "at": f"{count:,}"}
            by_hand.append(measure(name, ours, "fastavro → dicts → Arrow", hand, **common))
            by_confluent.append(measure(name, ours, "AvroDeserializer", theirs, **common))
            if (name, count) == ("20 fields", 10_000):
                in_threads += _threads(name, ours, quick=quick)
    title, axis = "Batches of Avro with registry framing into Arrow", "records in a batch"
    yield Table("arrow", f"{title}, against fastavro", "µs a batch", by_hand, axis)
    yield Table("arrow-threads", f"{title}, 10,000 records each, wall time of one thread over several", "s", in_threads)
    yield Table("arrow-confluent", f"{title}, against Confluent's, record by record", "µs a batch", by_confluent, axis)


def _threads(name: str, batch: Callable[[], Any], *, quick: bool) -> Iterator[Row]:
    """Batches at once against one after the other, and against processes, which share nothing: what the machine gives.

    Each batch is dropped before the next: of those that are kept, memory is filled instead of decoded into.
    """

    def repeat(batches: int) -> None:
        for _ in range(batches):
            batch()

    # Forked, with the opened chain; they wait for work before the clock starts.
    with ThreadPoolExecutor(_THREADS) as pool, _Forked(repeat) as processes:
        ways = {
            "one": lambda: repeat(_THREADS * _BATCHES),
            "threads": lambda: list(pool.map(repeat, [_BATCHES] * _THREADS)),
            "processes": lambda: processes.run(_BATCHES),
        }
        seconds = in_turns(ways, 2 if quick else 3 * _ROUNDS)
    title = f"{name}, {_THREADS} threads"
    yield Row(title, seconds["one"], "one thread", seconds["threads"])
    yield Row(title, seconds["processes"], f"{_THREADS} processes", seconds["threads"])


class _Forked:
    """Processes that run a function when they are asked to."""

    def __init__(self, function: Callable[[int], None]) -> None:
        fork = multiprocessing.get_context("fork")
        pipes = [fork.Pipe() for _ in range(_THREADS)]
        self._ends = [here for here, _ in pipes]
        self._processes = [fork.Process(target=_serve, args=(there, function), daemon=True) for _, there in pipes]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process, end in zip(self._processes, self._ends, strict=True):
            end.send(0)
            process.join(10)

    def run(self, batches: int) -> None:
        """Let each process run the function once."""
        for end in self._ends:
            end.send(batches)
        for end in self._ends:
            end.recv()


def _serve(end: Connection, function: Callable[[int], None]) -> None:
    while batches := end.recv():
        function(batches)
        end.send(batches)


def _by_hand(listed: list[bytes], parsed: Any, kind: Any) -> Any:
    records = []
    for data in listed:
        buffer = io.BytesIO(data)
        buffer.seek(5)
        records.append(fastavro.schemaless_reader(buffer, parsed, None))
    return pa.array(records, kind)
