"""The batch form of ``protobuf``: a column of structs, typed by the message's descriptor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.errors import ConfigError, DecodeError, SerializationError
from serde_chain.schemas.parts import MOST_FIELDS
from serde_chain.stages.protobuf.schema import is_map, is_repeated

__all__ = ["ProtobufBatch", "arrow_type"]

# Indexed by the descriptors' cpp_type; bytes are strings there.
_TYPES: Final = {
    1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "float64", 6: "float32", 7: "bool_", 8: "string", 9: "string",
}  # fmt: skip
_BYTES: Final = 12
_MESSAGE: Final = 10


def arrow_type(descriptor: Any) -> Any:
    """The Arrow type of a message, for the result of :func:`~serde_chain.stages.protobuf.schema.to_dict`.

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

    Args:
        descriptor: The configured message's descriptor; None if each record names its own.
        read: Reads a record's bytes into a message.
        to_dict: Converts a message of a number of bytes; ``nameless`` as for :func:`.schema.to_dict`.
    """

    def __init__(self, descriptor: Any, read: Callable[..., Any], to_dict: Callable[..., dict[str, Any]]) -> None:
        self._descriptor = descriptor
        self._read = read
        self._to_dict = to_dict

    @property
    def arrow_type(self) -> Any:
        """The type of all columns; None if it depends on the records."""
        return None if self._descriptor is None else arrow_type(self._descriptor)

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        descriptor: Any = self._descriptor
        kind: Any = None
        values: list[Any] = []
        for row, data in enumerate(batch.objects):
            value = None
            if data is not None:
                try:
                    message = self._read(data, batch.context(row))
                    if kind is None:
                        kind = self._type_of(descriptor or message.DESCRIPTOR)
                        descriptor = descriptor or message.DESCRIPTOR
                    value = self._checked(message, len(data), descriptor.full_name)
                except SerializationError as error:
                    batch.fail(row, error)
            values.append(value)
        if kind is None:
            return batch.arrow.nulls(len(values), self.arrow_type)
        return batch.collect(values, lambda messages: batch.arrow.array(messages, kind))

    def _type_of(self, descriptor: Any) -> Any:
        """The type of the column; a missing type is the fault of a record that names its own message."""
        try:
            return arrow_type(descriptor)
        except ConfigError as error:
            if self._descriptor is not None:
                raise
            raise DecodeError(error.message, hint=error.hint) from error

    def _checked(self, message: Any, size: int, expected: str) -> dict[str, Any]:
        if message.DESCRIPTOR.full_name != expected:
            raise DecodeError(
                f"the record is a {message.DESCRIPTOR.full_name}, other records of the batch are a {expected}",
                hint="A column has one type: set protobuf.message.class",
            )
        # A text column also has room for numbers: a writer with a newer schema costs no record.
        return self._to_dict(message, size, nameless=str)
