"""Writing in Spark's Python workers: Arrow columns become keys, values and headers of records."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import methodcaller
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.arrow.columns import views
from serde_chain.arrow.writing import objects_for
from serde_chain.base import untouched
from serde_chain.base.kinds import typed_at
from serde_chain.chain import SerializerChain
from serde_chain.clients.limits import SHORT_KEY
from serde_chain.codec import Encoded, Encoder, Record
from serde_chain.errors import ConfigError, EncodeError, SerializationError
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.udfs.memory import give_back_at_once
from serde_chain.spark.udfs.retries import RETRIES, Retries
from serde_chain.spark.writing.plan import WritePlan, open_setup
from serde_chain.stages.avro.arrow.native_writer import NativeWriter
from serde_chain.stages.avro.stage import AvroSerializer
from serde_chain.transfer import Prefetch, Transfer

# Bytes of a batch that become objects at once.
_PART_BYTES: Final = 8 << 20
# Values with a larger average are passed on as views of the batch.
_LARGE_BYTES: Final = 1 << 16

_UNKNOWN: Final = Encoded(None, None, [])


def encode_batches(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Encode rows.

    Args:
        pickled: A :class:`~serde_chain.spark.writing.plan.WritePlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns; the array itself if
            there is only one.

    Yields:
        ``pyarrow.StructArray`` of the plan's fields, of all rows in order.

    Raises:
        SerializationError: A row is unwritable.
    """
    give_back_at_once()
    with chains.use(pickled, _open) as encoder:
        for batch in batches:
            yield from encoder.encode(batch if isinstance(batch, tuple) else (batch,))


def _open(pickled: bytes) -> _Encoder:
    plan: WritePlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    return _Encoder(plan)


class _Written(NamedTuple):
    """Written records, by column.

    Long-lived objects, one per record, would make Python's garbage collector traverse all values repeatedly, which cost
    as much time as the writing itself.

    Attributes:
        keys: Encoded keys.
        values: Encoded values.
        headers: Headers, to which stages add; None if there are none.
        transfers: Pending records by row: transfers that lead to key and value.
    """

    keys: list[Any]
    values: list[Any]
    headers: list[list[tuple[str, Any]] | None]
    transfers: list[tuple[int, Transfer[Any]]]

    def add(self, step: Any) -> None:
        """Add a record: ``Encoded``, or a transfer that leads to it."""
        if isinstance(step, Transfer):
            self.transfers.append((len(self.keys), step))
            step = _UNKNOWN
        key, value, headers = step
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers or None)

    def add_plain(self, key: Any, value: Any) -> None:
        """Add a record without headers."""
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(None)

    def put(self, at: int, encoded: Encoded) -> None:
        """Insert a record whose transfers are done."""
        self.keys[at], self.values[at], self.headers[at] = encoded


class _Way:
    """The way to encode records.

    Args:
        key: The chain of keys, if there is one.
        value: The chain of values, likewise.

    Attributes:
        encoder: Encodes all records.
        plain: The value of a record without headers, and with no more than a short key, where nothing else matters; it
            may raise any exception, and the encoder decides. None if stages need more.
        begun: What is left to the encoder of a value for which ``plain`` does not return bytes.
    """

    def __init__(self, key: SerializerChain | None, value: SerializerChain | None) -> None:
        self.encoder = Encoder(key, value)
        plain = value.plain if value is not None and value.stages else untouched
        self.plain = plain if key is None else None
        self.begun = value.begun if value is not None and value.stages else untouched


class _OfObjects(SerializerChain):
    """The first stages of a chain, which give objects; Spark runs those that make bytes of them."""

    _ending = ()


class _Encoder:
    """Executes a plan."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._arrow = require("pyarrow", "spark")
        self._setup = setup = open_setup(plan.config, plan.limits)
        value = setup.value
        own = slice(plan.first, plan.end)
        if value is not None and own != slice(0, None):
            names = [label.partition(" (")[0] for label in value.labels[plan.first :]]
            value = (SerializerChain if plan.end is None else _OfObjects)(value.stages[own], labels=names)
        key = setup.key if KEY in plan.gives else None
        self._way = _Way(key, value)
        self._avro = _first_avro(value)
        if value is not None and self._avro is not None:
            self._way_after_avro = _Way(key, SerializerChain(value.stages[1:], labels=value.labels[1:]))
        self._chains = {KEY: key, VALUE: value}
        used = [chain for chain in (setup.key, setup.value) if chain is not None]
        self._retries = Retries(lambda: sum(chain.retries for chain in used))
        in_flight, most_bytes = setup.upload_bounds
        # The same class that prefetches payloads for readers: transfers in order, within limits.
        self._uploads = Prefetch(methodcaller("run"), in_flight=in_flight, max_bytes=most_bytes)

    def close(self) -> None:
        """Close the chains."""
        self._setup.close()

    def encode(self, arrays: tuple[Any, ...]) -> Iterator[Any]:
        """Encode one batch of input, in parts."""
        columns = dict(zip(self._plan.columns, arrays, strict=False))
        count = len(columns[VALUE])
        size = sum(column.nbytes for column in columns.values())
        rows = max(1, count * _PART_BYTES // max(size, 1))
        for start in range(0, count, rows):
            yield self._part({name: column.slice(start, rows) for name, column in columns.items()})
        if not count:
            yield self._output(_Written([], [], [], []), columns[VALUE].type)

    def _part(self, columns: Mapping[str, Any]) -> Any:
        kind = columns[VALUE].type
        columns, way = self._by_columns(columns)
        count = len(columns[VALUE])
        nothing = [None] * count
        topics, partitions = (
            columns[name].to_pylist() if name in columns else nothing for name in ("topic", "partition")
        )
        values, keys = (
            _objects(self._chains[name], columns[name], name, topics) if name in columns else nothing
            for name in (VALUE, KEY)
        )
        headers = _headers(columns.get("headers"), count)
        written, plain = _Written([], [], [], []), way.plain
        for topic, value, key, own, partition in zip(topics, values, keys, headers, partitions, strict=True):
            step = value
            if plain is not None and value is not None and not own and _is_short(key):
                try:
                    encoded = plain(value)
                except Exception as error:  # noqa: BLE001  raised below, with its place
                    let_through(error)
                else:
                    if type(encoded) is bytes:
                        written.add_plain(key, encoded)
                        continue
                    step = way.begun(encoded)
            written.add(way.encoder.encode(Record(topic, step, key, own, partition)))
        self._finish(written)
        return self._output(written, kind)

    def _by_columns(self, columns: Mapping[str, Any]) -> tuple[Mapping[str, Any], _Way]:
        """The columns, with values written as Avro by the compiled part if it takes all, and the way to encode them."""
        writer = None if self._avro is None else self._writer(self._avro, columns)
        if writer is not None:
            try:
                records, left = writer.write(columns[VALUE])
            except ValueError:
                self._avro = None  # the column's type is the same in all batches
            else:
                if not left:
                    return {**columns, VALUE: records}, self._way_after_avro
        return columns, self._way

    def _writer(self, avro: AvroSerializer, columns: Mapping[str, Any]) -> NativeWriter | None:
        """The writer of records of one topic; None for those of several, if it matters."""
        topic = None
        if avro.depends_on_topic:
            topics = columns["topic"].unique().to_pylist() if "topic" in columns else []
            if len(topics) != 1 or topics[0] is None:
                return None
            (topic,) = topics
        try:
            return avro.column_writer(None if topic is None else RecordContext(topic, VALUE))
        except SerializationError:
            return None  # asked again for the objects, and the error has a place

    def _finish(self, written: _Written) -> None:
        """Run the uploads, in parallel."""
        aheads = zip(written.transfers, self._uploads.add(step for _, step in written.transfers), strict=True)
        for (at, _), ahead in list(aheads):
            written.put(at, self._uploads.finish(ahead))

    def _output(self, written: _Written, kind: Any) -> Any:
        arrow, is_whole = self._arrow, self._plan.end is None
        pair = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
        ways: dict[str, Callable[[], Any]] = {
            KEY: lambda: arrow.array(map(_bytes, written.keys), arrow.binary()),
            VALUE: lambda: (
                arrow.array(map(_bytes, written.values), arrow.binary())
                if is_whole
                else arrow.array(written.values, kind)
            ),
            # Null without headers, as in Spark's source.
            "headers": lambda: arrow.array(map(_pairs, written.headers), arrow.list_(pair)),
            RETRIES: lambda: self._retries.column(
                arrow.array(map(_is_there, written.keys, written.values), arrow.bool_())
            ),
        }
        arrays = [ways[name]() for name in self._plan.gives]
        return arrow.StructArray.from_arrays(arrays, names=list(self._plan.gives))


def _first_avro(chain: SerializerChain | None) -> AvroSerializer | None:
    """The first stage of a chain, if it writes Avro."""
    first = chain.stages[0] if chain is not None and chain.stages else None
    return first if type(first) is AvroSerializer else None


def _objects(chain: SerializerChain | None, column: Any, field: str, topics: Sequence[Any]) -> list[Any]:
    """The values of a column in the stages' form: bytes, or Python objects.

    Args:
        chain: The field's chain.
        column: Its column.
        field: ``key`` or ``value``.
        topics: The topic of each row.
    """
    types = require("pyarrow.types", "spark")
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        if column.nbytes < _LARGE_BYTES * len(column):
            return column.to_pylist()  # type: ignore[no-any-return]
        # Large values are not copied.
        return views(column)
    if len(set(topics)) <= 1:
        return _objects_of(chain, column, field, topics[0] if topics else None)
    rows: dict[Any, list[int]] = {}
    for row, topic in enumerate(topics):
        rows.setdefault(topic, []).append(row)
    found: list[Any] = [None] * len(column)
    for topic, own in rows.items():
        for row, item in zip(own, _objects_of(chain, column.take(own), field, topic), strict=True):
            found[row] = item
    return found


def _objects_of(chain: SerializerChain | None, column: Any, field: str, topic: str | None) -> list[Any]:
    """The objects of one topic, as the stage takes them that determines their type."""
    at = 0 if chain is None else typed_at(chain.stages)
    stage, label = (
        (chain.stages[at], chain.labels[at]) if chain is not None and at < len(chain.stages) else (None, None)
    )
    try:
        return objects_for(stage, column, RecordContext(topic, field), field)  # type: ignore[arg-type]
    except SerializationError as error:
        raise error.add_context(topic=topic, field=field, stage=label)  # noqa: B904  the same error


def _headers(column: Any, count: int) -> Iterator[list[tuple[str, Any]]]:
    if column is not None and column.flatten().null_count:
        raise EncodeError("an entry of the column headers is null", hint="Leave it out of the array")
    rows = repeat(None, count) if column is None else column.to_pylist()
    return ([(header["key"], header["value"]) for header in row or ()] for row in rows)


def _is_short(key: Any) -> bool:
    return key is None or (isinstance(key, (bytes, str)) and len(key) <= SHORT_KEY)


def _is_there(key: Any, value: Any) -> bool:
    return key is not None or value is not None


def _pairs(headers: list[tuple[str, Any]] | None) -> list[dict[str, Any]] | None:
    return [_pair(*header) for header in headers] if headers else None


def _pair(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": value.encode() if isinstance(value, str) else value}


def _bytes(data: Any) -> Any:
    """The value of a binary column.

    Raises:
        ConfigError: The value is not bytes, and no chain converts it.
    """
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        return data.encode()
    raise ConfigError(
        f"a column of {type(data).__name__} requires a chain that converts it to bytes",
        hint="Name the stages in value.serializers and key.serializers",
    )
