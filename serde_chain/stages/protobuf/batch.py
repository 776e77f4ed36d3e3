"""The batch form of ``protobuf``: a column of structs, typed by the message's descriptor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from operator import itemgetter
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.schemas.part_budget import MOST_FIELDS
from serde_chain.stages.protobuf.schema import is_map, is_repeated

# Indexed by the descriptors' cpp_type; bytes are strings there.
_TYPES: Final = {
    1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "float64", 6: "float32", 7: "bool_", 8: "string", 9: "string",
}  # fmt: skip
_BYTES: Final = 12
_MESSAGE: Final = 10


def arrow_type(descriptor: Any) -> Any:
    """The Arrow type of a message, for the result of :func:`~serde_chain.stages.protobuf.dictionaries.to_dict`.

    Enums are their names, or their numbers as text if the schema has no name; protobuf's well-known messages, such as
    timestamps, are structs of their fields.

    Args:
        descriptor: The message's descriptor.

    Returns:
        A ``pyarrow`` struct type.

    Raises:
        ConfigError: The message is recursive, for which Arrow has no type.
        MissingDependencyError: pyarrow is not installed.
    """
    return _struct(require("pyarrow", "arrow"), descriptor, (), count())


def _struct(arrow: Any, descriptor: Any, around: tuple[str, ...], fields: Iterator[int]) -> Any:
    name = descriptor.full_name
    if name in around:
        raise ConfigError(
            f"{name} is recursive, for which Arrow has no type",
            hint="Read it record by record; in Spark, by deserialize(…, schema=…)",
        )
    inside = (*around, name)
    return arrow.struct([(field.name, _column(arrow, field, inside, fields)) for field in descriptor.fields])


def _column(arrow: Any, field: Any, around: tuple[str, ...], fields: Iterator[int]) -> Any:
    if next(fields) >= MOST_FIELDS:
        raise ConfigError(
            f"a column of {around[0]} would have more than {MOST_FIELDS} fields",
            hint="Read it record by record; in Spark, by deserialize(…, schema=…)",
        )
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return arrow.map_(_one(arrow, key, around, fields), _one(arrow, value, around, fields))
    one = _one(arrow, field, around, fields)
    return arrow.list_(one) if is_repeated(field) else one


def _one(arrow: Any, field: Any, around: tuple[str, ...], fields: Iterator[int]) -> Any:
    if field.cpp_type == _MESSAGE:
        return _struct(arrow, field.message_type, around, fields)
    return arrow.binary() if field.type == _BYTES else getattr(arrow, _TYPES[field.cpp_type])()


class ProtobufBatch(BatchForm):
    """Reads a batch; without a configured message, all records must contain the same message.

    If the records name several schemas of that message, all are read with the one that was registered last, whose
    fields determine the column.

    Args:
        descriptor: The configured message's descriptor; None if each record names its own.
        locate: Finds how to read a record, as :meth:`.stage.ProtobufDeserializer.located`.
        parse: Reads a message of a class.
        to_dict: Converts a message of a number of bytes; ``nameless`` as for :func:`.dictionaries.to_dict`.
    """

    def __init__(
        self,
        descriptor: Any,
        locate: Callable[..., tuple[int, Any, Any, int]],
        parse: Callable[[Any, Any, int], Any],
        to_dict: Callable[..., dict[str, Any]],
    ) -> None:
        self._descriptor = descriptor
        self._locate = locate
        self._parse = parse
        self._to_dict = to_dict

    @property
    def arrow_type(self) -> Any:
        """The type of all columns; None if it depends on the records."""
        return None if self._descriptor is None else arrow_type(self._descriptor)

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        places = self._located(batch)
        found = [place for place in places if place is not None]
        if not found:
            return batch.arrow.nulls(len(places), self.arrow_type)
        name = Counter(kind.DESCRIPTOR.full_name for _, kind, _, _ in found).most_common(1)[0][0]
        written = max((place[:2] for place in found if place[1].DESCRIPTOR.full_name == name), key=itemgetter(0))[1]
        kind, values = None, []
        for row, place in enumerate(places):
            value = None
            if place is not None:
                _, own, data, start = place
                try:
                    kind = kind or self._type_of(self._descriptor or written.DESCRIPTOR)
                    value = self._value(own, written, data, start)
                except SerializationError as error:
                    batch.fail(row, error)
            values.append(value)
        if kind is None:
            return batch.arrow.nulls(len(values), self.arrow_type)
        return batch.collect(values, lambda messages: batch.arrow.array(messages, kind))

    def _located(self, batch: Batch) -> list[tuple[int, Any, Any, int] | None]:
        places: list[tuple[int, Any, Any, int] | None] = [None] * len(batch)
        for row, data in enumerate(batch.objects):
            if data is not None:
                try:
                    places[row] = self._locate(data, batch.context(row))
                except SerializationError as error:
                    batch.fail(row, error)
        return places

    def _type_of(self, descriptor: Any) -> Any:
        """The type of the column; a missing type is the fault of a record that names its own message."""
        try:
            return arrow_type(descriptor)
        except ConfigError as error:
            if self._descriptor is not None:
                raise
            raise DecodeError(error.message, hint=error.hint) from error

    def _value(self, own: Any, written: Any, data: Any, start: int) -> dict[str, Any]:
        """A record of its own class, as the column's."""
        name, expected = own.DESCRIPTOR.full_name, written.DESCRIPTOR.full_name
        if name != expected:
            raise DecodeError(
                f"the record is a {name}, other records of the batch are a {expected}",
                hint="A column has one type: set protobuf.message.class",
            )
        # A text column also has room for numbers: a writer with a newer schema costs no record.
        return self._to_dict(self._parse(written, data, start), len(data), nameless=str)
