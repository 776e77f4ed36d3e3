"""The work of Spark's Python workers when they write: Arrow columns become keys, values and headers of records."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain.chain import SerializerChain
from serde_chain.errors import ConfigError
from serde_chain.prefetch import Ahead, Prefetch
from serde_chain.record import KEY, VALUE, RecordContext
from serde_chain.spark.plan.writing import WritePlan, open_setup
from serde_chain.spark.worker import chains
from serde_chain.spark.worker.memory import give_back_at_once
from serde_chain.spark.worker.values import maps_as_dicts
from serde_chain.transfer import Transfer, then

__all__ = ["encode_batches"]

# How many bytes of a batch are turned into objects at once.
_PART_BYTES: Final = 8 << 20
# Values that are larger on average are passed on as they lie in the batch.
_LARGE_BYTES: Final = 1 << 16
_TICK: Final = 1.0


def encode_batches(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Encode rows.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.writing.WritePlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns; the array itself where
            there is only one.

    Yields:
        ``pyarrow.StructArray`` of the plan's fields, of all rows in order.

    Raises:
        SerializationError: A row cannot be written.
    """
    give_back_at_once()
    with chains.use(pickled, _open) as encoder:
        for batch in batches:
            yield from encoder.encode(batch if isinstance(batch, tuple) else (batch,))


def _open(pickled: bytes) -> _Encoder:
    plan: WritePlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    return _Encoder(plan)


class _Written(NamedTuple):
    """A record on its way, or done.

    Attributes:
        headers: Its headers, to which stages add.
        step: Its encoded key and value, or a transfer that leads to them.
    """

    headers: list[tuple[str, Any]]
    step: Any


class _Encoder:
    """A plan at work."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._arrow = require("pyarrow", "spark")
        self._setup = setup = open_setup(plan.config)
        self._key = setup.key if KEY in plan.gives else None
        self._value = setup.value
        if plan.first and setup.value is not None:
            names = [label.partition(" (")[0] for label in setup.value.labels[plan.first :]]
            self._value = SerializerChain(setup.value.stages[plan.first :], labels=names)
        in_flight, most_bytes = setup.upload_bounds
        # The same that fetches payloads ahead of readers: transfers in their order, within bounds.
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
            yield self._output([], [])

    def _part(self, columns: Mapping[str, Any]) -> Any:
        count = len(columns[VALUE])
        nothing = [None] * count
        values, keys = (_objects(columns[name]) if name in columns else nothing for name in (VALUE, KEY))
        topics, partitions = (
            columns[name].to_pylist() if name in columns else nothing for name in ("topic", "partition")
        )
        headers = _headers(columns.get("headers"), count)
        written = [
            _Written(own, self._begin(value, key, topic, partition, own))
            for value, key, topic, partition, own in zip(values, keys, topics, partitions, headers, strict=True)
        ]
        return self._output([record.headers for record in written], self._finished(written))

    def _begin(self, value: Any, key: Any, topic: Any, partition: Any, headers: list[tuple[str, Any]]) -> Any:
        """Encode a record up to its first upload; as ``Producer`` does, the key comes first."""

        def with_key(encoded_key: Any) -> Any:
            ctx = RecordContext(topic, VALUE, headers, encoded_key, partition)
            step = value if self._value is None else self._value.begin(value, ctx)
            return then(step, lambda encoded: (encoded_key, encoded))

        if self._key is None:
            return with_key(key)
        return then(self._key.begin(key, RecordContext(topic, KEY, headers, None, partition)), with_key)

    def _finished(self, written: Sequence[_Written]) -> list[tuple[Any, Any]]:
        """Run the uploads, in parallel; returns keys and values."""
        transfers = [(at, record.step) for at, record in enumerate(written) if isinstance(record.step, Transfer)]
        done = [record.step for record in written]
        aheads = zip(transfers, self._uploads.add(step for _, step in transfers), strict=True)
        for (at, _), ahead in list(aheads):
            done[at] = self._end(ahead)
        return done

    def _end(self, ahead: Ahead) -> Any:
        while True:
            # The store's call has a deadline of its own.
            while not self._uploads.wait(ahead, _TICK):
                pass
            step = ahead.transfer.resume(ahead.take())
            if not isinstance(step, Transfer):
                return step
            [ahead] = self._uploads.add([step])

    def _output(self, headers: list[list[tuple[str, Any]]], encoded: list[tuple[Any, Any]]) -> Any:
        arrow = self._arrow
        pair = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
        ways: dict[str, Callable[[], Any]] = {
            KEY: lambda: arrow.array([_bytes(key) for key, _ in encoded], arrow.binary()),
            VALUE: lambda: arrow.array([_bytes(value) for _, value in encoded], arrow.binary()),
            # Null where there are none, as in Spark's source.
            "headers": lambda: arrow.array([list(map(_pair, own)) or None for own in headers], arrow.list_(pair)),
        }
        arrays = [ways[name]() for name in self._plan.gives]
        return arrow.StructArray.from_arrays(arrays, names=list(self._plan.gives))


def _objects(column: Any) -> list[Any]:
    """The values of a column as stages take them: bytes, or Python's objects."""
    types = require("pyarrow.types", "spark")
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        if column.nbytes < _LARGE_BYTES * len(column):
            return column.to_pylist()  # type: ignore[no-any-return]
        # Without a copy of what is large.
        return [memoryview(item.as_buffer()) if item.is_valid else None for item in column]
    convert = maps_as_dicts(column.type, types)
    items: list[Any] = column.to_pylist()
    return items if convert is None else [None if item is None else convert(item) for item in items]


def _headers(column: Any, count: int) -> list[list[tuple[str, Any]]]:
    if column is None:
        return [[] for _ in range(count)]
    return [[(header["key"], header["value"]) for header in row or ()] for row in column.to_pylist()]


def _pair(header: tuple[str, Any]) -> dict[str, Any]:
    name, value = header
    return {"key": name, "value": value.encode() if isinstance(value, str) else value}


def _bytes(data: Any) -> Any:
    """What a binary column takes.

    Raises:
        ConfigError: It is something else, where no chain has made bytes of it.
    """
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        return data.encode()
    raise ConfigError(
        f"a column of {type(data).__name__} has no chain that makes bytes of it",
        hint="Name the stages in value.serializers and key.serializers",
    )
