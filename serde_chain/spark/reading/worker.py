"""Reading in Spark's Python workers: Kafka's columns pass through the chains as Arrow arrays, part by part.

Chains are opened once per process and configuration (:mod:`serde_chain.spark.chains.worker`), since opening one may
connect to a store or a registry.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch
from serde_chain.arrow.columns import cast, replaced
from serde_chain.base import Deserializer
from serde_chain.chain import DeserializerChain
from serde_chain.clients.window_reader import marker_headers
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.record import KEY, VALUE, Context
from serde_chain.spark.arguments import FAILFAST
from serde_chain.spark.chains import worker as chains
from serde_chain.spark.chains.plan import FieldPlan, ReadPlan
from serde_chain.spark.reading.python_values import converter
from serde_chain.spark.udfs.growing_steps import Steps
from serde_chain.spark.udfs.memory import give_back_at_once
from serde_chain.spark.udfs.retries import RETRIES, Retries
from serde_chain.stages.protobuf.stage import ProtobufDeserializer

# Bytes passed from stage to stage at once, and thereby the approximate size of an output batch: ten thousand small
# references may stand for gigabytes. Spark accepts several output batches per input batch.
_PART_BYTES: Final = 8 << 20

# Spark's timestamps are 64-bit microseconds.
_MOST_MS: Final = ((1 << 63) - 1) // 1000

_POSITIONS: Final = ("partition", "offset", "timestamp")


def decode_batches(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Decode Kafka columns.

    Args:
        pickled: A :class:`~serde_chain.spark.chains.plan.ReadPlan`.
        batches: For each batch a tuple of ``pyarrow.Array``, in the order of the plan's columns; the array itself if
            there is only one.

    Yields:
        ``pyarrow.Array`` of all rows in order; the number of rows per array may differ from the input's.

    Raises:
        SerializationError: A record is unreadable, in the mode FAILFAST; in all modes if the record is not at fault
            (``about_record``), for example if a store or registry is down or refuses.
    """
    give_back_at_once()
    with chains.use(pickled, _open) as decoder:
        steps = decoder.steps()
        for batch in batches:
            yield from decoder.decode(batch if isinstance(batch, tuple) else (batch,), steps)


def _open(pickled: bytes) -> _Decoder:
    plan: ReadPlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    return _Decoder(plan)


class _Typed(Deserializer[Any]):
    """A chain's last stage with its values in a user's type.

    Args:
        stage: The stage.
        arrow_type: The ``pyarrow.DataType``.
    """

    def __init__(self, stage: Callable[..., Any], arrow_type: Any) -> None:
        # Messages are not mappings.
        self._stage = stage.read_dict if isinstance(stage, ProtobufDeserializer) else stage
        # Requirements for the preceding stage.
        self.message_format = stage.message_format if isinstance(stage, Deserializer) else None
        self.takes = stage.takes if isinstance(stage, Deserializer) else None
        self._convert = converter(arrow_type)
        self._type = arrow_type

    def arrow_type(self) -> Any:
        """The user's type."""
        return self._type

    def __call__(self, data: Any, ctx: Context | None = None, /) -> Any:
        """Read a record, and convert the result."""
        value = self._stage(data, ctx)
        try:
            return self._convert(value)
        except ValueError as error:
            raise DecodeError(f"the record does not match the schema: {error}") from error


class _Field:
    """Reads keys or values."""

    def __init__(self, plan: FieldPlan, config: Mapping[str, object]) -> None:
        self.name = KEY if plan.is_key else VALUE
        self._kind = plan.arrow_type
        self._chain = chains.chain(config, is_key=plan.is_key)
        stages = list(self._chain.stages[: plan.stages])
        if plan.given:
            stages[-1] = _Typed(stages[-1], plan.arrow_type)
        labels = [label.partition(" (")[0] for label in self._chain.labels]
        self._run = DeserializerChain(stages, labels=labels)
        self.markers = marker_headers(self._run)

    @property
    def retries(self) -> int:
        """Number of repeated requests."""
        return self._chain.retries

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """A batch in parts, with values of the column's type."""
        for part in self._run.read_parts(batch, _PART_BYTES):
            if part.column.type != self._kind:
                part.take(cast(part.column, self._kind))
            yield part

    def close(self) -> None:
        """Release the chain."""
        chains.let_go(self._chain)


class _Result(NamedTuple):
    """Rows that have been read.

    Attributes:
        start: Their start in the input batch.
        fields: The fields of the plan by name, without errors.
        errors: The errors of unreadable rows, by their position in these rows.
    """

    start: int
    fields: dict[str, Any]
    errors: dict[int, list[SerializationError]]

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))


class _Decoder:
    """Executes a plan."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._arrow = require("pyarrow", "spark")
        self._fail_fast = plan.mode == FAILFAST
        self._key, self._value = (
            None if field is None else _Field(field, plan.config) for field in (plan.key, plan.value)
        )
        self._kind = self._type_of_result()
        fields = [field for field in (self._key, self._value) if field is not None]
        self._retries = Retries(lambda: sum(field.retries for field in fields))

    def close(self) -> None:
        """Release the chains."""
        for field in (self._key, self._value):
            if field is not None:
                field.close()

    def _type_of_result(self) -> Any:
        arrow, plan = self._arrow, self._plan
        header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
        types = {
            KEY: arrow.binary() if plan.key is None else plan.key.arrow_type,
            VALUE: arrow.binary() if plan.value is None else plan.value.arrow_type,
            "headers": arrow.list_(header),
            "timestamp": arrow.timestamp("us", "UTC"),
            "error": arrow.string(),
            RETRIES: arrow.int64(),
        }
        return arrow.struct([(name, types[name]) for name in plan.gives]) if plan.gives else types[plan.alone]

    def steps(self) -> Steps:
        """The steps of a task."""
        return Steps(frozenset() if self._value is None else self._value.markers)

    def decode(self, arrays: tuple[Any, ...], steps: Steps) -> Iterator[Any]:
        """Decode one batch of input into one or several of output."""
        columns = dict(zip(self._plan.columns, arrays, strict=False))
        _check(columns)
        if self._plan.skips and RETRIES not in self._plan.gives and _is_empty(columns):
            yield self._arrow.nulls(len(arrays[0]), self._kind)
            return
        for result in self._results(columns, steps):
            for row in sorted(result.errors):
                for error in result.errors[row]:
                    # A fault other than the record's own ends the query: no record may be lost to it.
                    if self._fail_fast or not error.about_record:
                        raise error
            yield self._output(result, columns)

    def _results(self, columns: Mapping[str, Any], steps: Steps) -> Iterator[_Result]:
        topic = columns.get("topic")  # None if the column was not given, which stages check
        headers, keys = columns.get("headers"), columns.get("key")
        positions = {name: columns[name] for name in _POSITIONS if name in columns}
        if self._key is not None and VALUE not in columns:
            for key in self._key.parts(Batch(keys, headers, topic=topic, field=KEY, positions=positions)):
                yield _Result(key.first, {KEY: key.column}, {row: [error] for row, error in key.errors.items()})
            return
        whole = Batch(columns["value"], headers, topic=topic, keys=keys, positions=positions)
        for value in self._values(whole, steps):
            self._check_moments(value)
            if self._key is None:
                yield self._result(value, None)
                continue
            # A stored record includes its key, so values come first.
            for key in self._key.parts(value.keys_batch()):
                yield self._result(value, key)

    def _values(self, whole: Batch, steps: Steps) -> Iterator[Batch]:
        """The records in parts, with their values."""
        if self._value is None:
            yield whole
        else:
            for step in steps.cut(whole):
                yield from self._value.parts(step)

    def _result(self, value: Batch, key: Batch | None) -> _Result:
        """Values, or as many of them as keys."""
        start, stop = (0, len(value)) if key is None else (key.first, key.first + len(key))
        errors = {} if key is None else {row: [error] for row, error in key.errors.items()}
        for row, error in value.errors.items():
            if start <= row < stop:
                errors.setdefault(row - start, []).append(error)
        ways: dict[str, Callable[[], Any]] = {
            VALUE: lambda: value.column.slice(start, stop - start),
            KEY: lambda: value.keys_after() if key is None else key.column,
            "headers": (key or value).headers_after,
            "timestamp": lambda: self._moments(value.timestamps_after()).slice(start, stop - start),
        }
        fields = {name: ways[name]() for name in self._plan.gives or (self._plan.alone,) if name in ways}
        return _Result(value.first + start, fields, errors)

    def _check_moments(self, value: Batch) -> None:
        """Fail stored records with a time out of Spark's range: another server may return what Kafka would refuse."""
        plan = self._plan
        if plan.value is None or not plan.value.restores or "timestamp" not in plan.gives:
            return
        given = value.timestamps_after()
        moments = given if isinstance(given, list) else given.to_pylist()
        beyond = [row for row, moment in enumerate(moments) if moment is not None and abs(moment) > _MOST_MS]
        for row in beyond:
            value.fail(row, DecodeError(f"the stored record's timestamp is {moments[row]} ms, out of Spark's range"))
        value.take(replaced(value.column, dict.fromkeys(beyond)))

    def _moments(self, milliseconds: Any) -> Any:
        if isinstance(milliseconds, list):
            milliseconds = self._arrow.array(milliseconds, self._arrow.int64())
        return milliseconds.cast(self._arrow.timestamp("ms", "UTC")).cast(self._arrow.timestamp("us", "UTC"))

    def _output(self, result: _Result, columns: Mapping[str, Any]) -> Any:
        gives, given, count = self._plan.gives, dict(result.fields), len(result)
        if not gives:
            return given[self._plan.alone]
        came = {name: column.slice(result.start, count) for name, column in columns.items()}
        if "headers" in given:
            # An unreadable record keeps the headers that may help to read it.
            kept = {row: came["headers"].slice(row, 1) for row in sorted(result.errors)}
            given["headers"] = _null_where_empty(replaced(given["headers"], kept))
        if "error" in gives:
            texts = ["; ".join(map(str, result.errors[row])) if row in result.errors else None for row in range(count)]
            given["error"] = self._arrow.array(texts, type=self._arrow.string())
        if RETRIES in gives:
            given[RETRIES] = self._retries.column(_came(came))
        fields = [self._arrow.field(name, given[name].type) for name in gives]
        arrays = [given[name] for name in gives]
        return self._arrow.StructArray.from_arrays(arrays, fields=fields, mask=self._mask(came))

    def _mask(self, came: Mapping[str, Any]) -> Any:
        """The rows to leave null: if the plan says so, those in which neither value nor key is present."""
        if not self._plan.leaves_empty:
            return None
        return require("pyarrow.compute", "spark").invert(_came(came))


def _came(columns: Mapping[str, Any]) -> Any:
    """The rows in which value or key is present."""
    compute: Any = require("pyarrow.compute", "spark")
    return reduce(compute.or_, (columns[name].is_valid() for name in (VALUE, KEY) if name in columns))


def _is_empty(columns: Mapping[str, Any]) -> bool:
    """Whether no row of a batch has a value, or headers."""
    return all(
        column.null_count == len(column) or (name == "headers" and not len(column.flatten()))
        for name, column in columns.items()
    )


def _null_where_empty(headers: Any) -> Any:
    """Null instead of an empty list of headers, as in Spark's source."""
    compute: Any = require("pyarrow.compute", "spark")
    arrow: Any = require("pyarrow", "spark")
    some = compute.greater(headers.value_lengths(), 0)
    if not len(headers.flatten()):
        return arrow.nulls(len(headers), headers.type)
    return headers if some.false_count == 0 else compute.if_else(some, headers, arrow.scalar(None, headers.type))


def _check(columns: Mapping[str, Any]) -> None:
    """Refuse arguments of wrong types that the driver could not see."""
    types = require("pyarrow.types", "spark")
    for name in ("value", "key"):
        if name in columns and not (types.is_binary(columns[name].type) or types.is_large_binary(columns[name].type)):
            raise ConfigError(f"the column for {name} is {columns[name].type}, expected binary", key=name)
