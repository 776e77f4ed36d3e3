"""What runs in Spark's Python workers: Arrow arrays in, Arrow arrays out, record by record through the chains.

Chains are opened once per process and plan, since opening one may mean to connect to a store or a registry.
"""

from __future__ import annotations

import atexit
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.base import Buffer
from serde_chain.batch import header_lists
from serde_chain.chain import DeserializerChain
from serde_chain.errors import ConfigError, DecodeError, MissingDependencyError, SerializationError
from serde_chain.record import KEY, VALUE, Context, Header, RecordContext
from serde_chain.registry import DESERIALIZE
from serde_chain.serializers.avro_arrow import ArrowAvroDeserializer
from serde_chain.serializers.large_message import LargeMessageDeserializer
from serde_chain.spark.downloads import AheadStage
from serde_chain.spark.plan import FAILFAST, FieldPlan, Plan
from serde_chain.spark.values import converter

__all__ = ["decode_batches"]

# Rows whose input is turned into Python objects at once.
_SLICE_ROWS: Final = 64
# A block of rows is turned into Arrow when it has this many rows or this many bytes: until then its values are Python
# objects, which take several times the memory.
_BLOCK_ROWS: Final = 1024
_BLOCK_BYTES: Final = 8 << 20
# An output batch is handed over when it has this many bytes: ten thousand small references may stand for gigabytes,
# and Arrow's arrays of bytes end at 2 GiB. Spark takes several output batches for one of input.
_OUTPUT_BYTES: Final = 64 << 20

_OPEN: Final[dict[bytes, _Decoder]] = {}


def decode_batches(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Decode Kafka columns.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.Plan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns; the array itself where
            there is only one.

    Yields:
        ``pyarrow.Array`` of all rows in order; not necessarily as many per array as came.

    Raises:
        SerializationError: A record cannot be read, in the mode FAILFAST; in all modes where a store or the registry
            was not there, since records are not to be lost to that.
    """
    decoder = _OPEN.get(pickled)
    if decoder is None:
        decoder = _OPEN[pickled] = _open(pickled)
    for batch in batches:
        yield from decoder.decode(batch if isinstance(batch, tuple) else (batch,))


def _open(pickled: bytes) -> _Decoder:
    plan: Plan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    try:
        return _Decoder(plan)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"{error.message} in the interpreter of Spark's workers, {sys.executable}",
            hint=f"{error.hint} there, or set PYSPARK_PYTHON to an interpreter that has it; the driver's is "
            f"{plan.python}",
        ) from error


# pyspark's daemon ends its workers without this; what they hold is then released by the operating system.
@atexit.register
def _close_all() -> None:
    while _OPEN:
        _OPEN.popitem()[1].close()


class _Row(NamedTuple):
    """One record as it came."""

    value: bytes | None
    key: bytes | None
    headers: list[Header] | None
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None

    def context(self, field: str, headers: list[Header] | None) -> RecordContext:
        key = self.key if field == VALUE else None
        topic: Any = self.topic  # None where the column was not given, which stages check
        return RecordContext(topic, field, headers, key, self.partition, self.timestamp, self.offset)


_NOTHING: Final = _Row(None, None, None, None, None, None, None)


class _LastStage:
    """A chain's last stage, measured, and with its result in the form that Arrow takes."""

    def __init__(self, stage: Callable[..., Any], convert: Callable[[Any], Any] | None, *, text: bool) -> None:
        self._stage = stage
        self._convert = convert
        self._text = text
        self.read_bytes = 0

    def __call__(self, data: Buffer, ctx: Context | None) -> Any:
        self.read_bytes += len(data)
        value = self._stage(data, ctx)
        if isinstance(value, (bytes, str)):
            self.read_bytes += len(value)
        if self._text:
            # The stage has checked it; its own text keeps what parsing would lose, as digits of numbers.
            return str(data, "utf-8")
        if self._convert is None:
            return value
        try:
            return self._convert(value)
        except ValueError as error:
            raise DecodeError(f"the record does not fit the schema: {error}") from error


class _Field:
    """Reads keys or values."""

    def __init__(self, plan: FieldPlan, config: Mapping[str, object]) -> None:
        self.name = KEY if plan.is_key else VALUE
        self._kind = plan.arrow_type
        self._array = require("pyarrow", "spark").array
        self._opened = DeserializerChain.from_config(config, is_key=plan.is_key)
        labels = [item.label for item in configuration.stage_items(config, DESERIALIZE, is_key=plan.is_key)]
        stages = [self._ahead(at, stage) for at, stage in enumerate(self._opened.stages[: plan.stages])]
        self._downloads = [stage for stage in stages if isinstance(stage, AheadStage)]
        *first, last = stages
        # The seam to `DeserializerChain.to_arrow`: here the last stage is told to read into Arrow's form.
        self._avro = ArrowAvroDeserializer.like(last) if plan.reading == "avro" else None
        convert: Callable[[Any], Any] | None = converter(plan.arrow_type) if plan.reading == "values" else None
        if plan.reading == "bytes":
            convert = bytes
        self._last = _LastStage(self._avro or last, convert, text=plan.reading == "json text")
        self.read = DeserializerChain([*first, self._last], labels=labels)

    def _ahead(self, at: int, stage: Any) -> Any:
        if not isinstance(stage, LargeMessageDeserializer):
            return stage
        return AheadStage(stage, is_key=self.name == KEY, first=at == 0)

    def begin(self, columns: Mapping[str, Any]) -> None:
        """Take a new batch."""
        for stage in self._downloads:
            stage.begin(columns)

    def end(self) -> None:
        """Drop what a batch has left."""
        for stage in self._downloads:
            stage.end()

    def take_bytes(self) -> int:
        """How many bytes were read since this was asked."""
        found, self._last.read_bytes = self._last.read_bytes, 0
        return found

    def to_arrow(self, values: Sequence[Any]) -> Any:
        return self._array(values, type=self._kind) if self._avro is None else self._avro.to_arrow(values)

    def close(self) -> None:
        for stage in self._downloads:
            stage.close()
        self._opened.close()
        if self._avro is not None:
            self._avro.close()


class _Decoder:
    """A plan at work."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._arrow = require("pyarrow", "spark")
        self._fields = [_Field(found, plan.config) for found in (plan.key, plan.value) if found is not None]

    def close(self) -> None:
        for field in self._fields:
            field.close()

    def decode(self, arrays: tuple[Any, ...]) -> Iterator[Any]:
        """Decode one batch of input into one or several of output."""
        columns = dict(zip(self._plan.columns, arrays, strict=False))
        _check(columns)
        for field in self._fields:
            field.begin(columns)
        try:
            yield from self._decode(columns)
        finally:
            for field in self._fields:
                field.end()

    def _decode(self, columns: Mapping[str, Any]) -> Iterator[Any]:
        done: list[Any] = []
        size = start = read = at = 0
        block = _Block(self._fields)
        for row in self._rows(columns):
            if isinstance(row, int):
                block.skip(row)
                at += row
                continue
            self._read(row, block)
            at += 1
            read += sum(field.take_bytes() for field in self._fields)
            if read >= _BLOCK_BYTES or at - start >= _BLOCK_ROWS:
                done.append(self._convert(block, columns, start))
                size += done[-1].nbytes
                start, read, block = at, 0, _Block(self._fields)
            if size >= _OUTPUT_BYTES:
                yield self._arrow.concat_arrays(done)
                done, size = [], 0
        if block.rows or not done:
            done.append(self._convert(block, columns, start))
        yield self._arrow.concat_arrays(done)

    def _rows(self, columns: Mapping[str, Any]) -> Iterator[_Row | int]:
        """The records, and in place of those without anything to read their number."""
        compute: Any = require("pyarrow.compute", "spark")
        names = ["value", "key"] if self._plan.record else [field.name for field in self._fields]
        wanted = columns[names[0]].is_valid()
        for name in names[1:]:
            wanted = compute.or_(wanted, columns[name].is_valid())
        places = compute.indices_nonzero(wanted).to_pylist()
        if len(places) < len(wanted):
            columns = {name: column.filter(wanted) for name, column in columns.items()}
        before = -1
        for place, row in zip(places, _rows(columns), strict=True):
            if place - before > 1:
                yield place - before - 1
            yield row
            before = place
        if len(wanted) - before > 1:
            yield len(wanted) - before - 1

    def _read(self, row: _Row, block: _Block) -> None:
        headers = list(row.headers) if row.headers else None
        error = None
        for field, values in zip(self._fields, block.values, strict=True):
            value = None
            try:
                value = field.read(row.key if field.name == KEY else row.value, row.context(field.name, headers))
            except SerializationError as failure:
                error = self._bad(failure, error)
            values.append(value)
        block.rows.append(row._replace(value=None))  # the payload is not needed any more
        block.errors.append(error)
        block.headers.append(row.headers if error else headers)

    def _bad(self, failure: SerializationError, before: str | None) -> str:
        """The text for the error column; raised instead where the mode wants it, or where it may work later."""
        if self._plan.mode == FAILFAST or getattr(failure, "transient", False):
            raise failure
        return f"{before}; {failure}" if before else str(failure)

    def _convert(self, block: _Block, columns: Mapping[str, Any], start: int) -> Any:
        arrays = [self._to_arrow(at, field, block) for at, field in enumerate(self._fields)]
        if not self._plan.whole:
            return arrays[-1]
        found = {field.name: array for field, array in zip(self._fields, arrays, strict=True)}
        if "headers" in columns:
            found["headers"] = self._headers(block, columns["headers"].slice(start, len(block.rows)))
        if self._plan.record:
            return self._record(found, block, columns, start)
        if self._plan.mode != FAILFAST:
            found["error"] = self._arrow.array(block.errors, type=self._arrow.string())
        fields = [self._arrow.field(name, array.type) for name, array in found.items()]
        return self._arrow.StructArray.from_arrays(list(found.values()), fields=fields)

    def _record(self, found: Mapping[str, Any], block: _Block, columns: Mapping[str, Any], start: int) -> Any:
        """A struct of all that a stored record has, null where neither value nor key came."""
        came = {name: column.slice(start, len(block.rows)) for name, column in columns.items()}
        times = came["timestamp"].cast(self._arrow.timestamp("ms", "UTC")).cast(self._arrow.timestamp("us", "UTC"))
        arrays = [
            found.get("value", came["value"]),
            found.get("headers", came["headers"]),
            found.get("key", came["key"]),
            times,
        ]
        fields = [
            self._arrow.field(name, array.type)
            for name, array in zip(("value", "headers", "key", "timestamp"), arrays, strict=True)
        ]
        empty = self._arrow.array([row is _NOTHING for row in block.rows], type=self._arrow.bool_())
        return self._arrow.StructArray.from_arrays(arrays, fields=fields, mask=empty)

    def _to_arrow(self, at: int, field: _Field, block: _Block) -> Any:
        values = block.values[at]
        try:
            return field.to_arrow(values)
        except Exception:  # noqa: BLE001, whatever Arrow raises, the next lines find the record
            for number, value in enumerate(values):
                try:
                    field.to_arrow([value])
                except Exception as error:  # noqa: BLE001, as above
                    values[number] = None
                    failure = self._misfit(field, block.rows[number], error)
                    block.errors[number] = self._bad(failure, block.errors[number])
            return field.to_arrow(values)

    def _misfit(self, field: _Field, row: _Row, error: Exception) -> SerializationError:
        failure = DecodeError(f"the record does not fit the column's type: {error}", topic=row.topic, field=field.name)
        failure.__cause__ = error
        return failure.add_context(partition=row.partition, offset=row.offset)

    def _headers(self, block: _Block, came: Any) -> Any:
        """The headers without those that the stages have used; null if none are left, as Spark's source has it."""
        if all(
            len(after or ()) == len(row.headers or ()) for after, row in zip(block.headers, block.rows, strict=True)
        ):
            return came
        kind = came.type.value_type
        names = [kind.field(at).name for at in range(2)]
        left = [
            [dict(zip(names, header, strict=True)) for header in headers] if headers else None
            for headers in block.headers
        ]
        return self._arrow.array(left, type=came.type)


class _Block:
    """Rows that are read and not yet in Arrow."""

    def __init__(self, fields: Sequence[_Field]) -> None:
        self.rows: list[_Row] = []
        self.values: list[list[Any]] = [[] for _ in fields]
        self.errors: list[str | None] = []
        self.headers: list[list[Header] | None] = []

    def skip(self, count: int) -> None:
        """Add rows without anything to read."""
        self.rows += [_NOTHING] * count
        for values in self.values:
            values.extend([None] * count)
        self.errors += [None] * count
        self.headers += [None] * count


def _check(columns: Mapping[str, Any]) -> None:
    """Refuse arguments of wrong types, where the driver could not see them."""
    types = require("pyarrow.types", "spark")
    for name in ("value", "key"):
        if name in columns and not (types.is_binary(columns[name].type) or types.is_large_binary(columns[name].type)):
            raise ConfigError(f"the column for {name} is {columns[name].type}, expected binary", key=name)


def _rows(columns: Mapping[str, Any]) -> Iterator[_Row]:
    nothing = [None] * _SLICE_ROWS
    for start in range(0, len(columns["value"]), _SLICE_ROWS):
        part = {name: column.slice(start, _SLICE_ROWS) for name, column in columns.items()}
        rows = len(part["value"])
        lists = {name: column.to_pylist() for name, column in part.items() if name != "headers"}
        headers = header_lists(part["headers"]) if "headers" in part else nothing
        others = (lists.get(name, nothing) for name in ("topic", "partition", "offset", "timestamp"))
        yield from map(
            _Row._make,
            zip(
                lists["value"],
                lists.get("key", nothing[:rows]),
                headers[:rows],
                *(other[:rows] for other in others),
                strict=True,
            ),
        )
