"""Writes Arrow columns as Protobuf messages, with kernels of pyarrow: no Python object per row.

Each field becomes a column of encoded bytes, empty where the field is absent, and the columns of a message are joined
(Protobuf's "Encoding"; fields in the order of their numbers, as Google's library writes them). What has no such form is
not taken: maps, whose entries must be sorted, groups, ``Struct``,
``Value`` and ``ListValue``, and values that need a conversion. The stage is then called for
each row, and reports the errors.
"""

from __future__ import annotations

from typing import Any, Final

from serde_chain.arrow.kernels import Kernels
from serde_chain.stages.protobuf.dictionaries import is_dynamic
from serde_chain.stages.protobuf.schema import is_map, is_repeated

# Wire types.
_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5

# The descriptors' types: wire type, the Arrow type of the numbers, and whether they are zigzag-encoded.
_NUMBERS: Final = {
    1: (_FIXED64, "float64", False),
    2: (_FIXED32, "float32", False),
    3: (_VARINT, "int64", False),
    4: (_VARINT, "uint64", False),
    5: (_VARINT, "int32", False),
    6: (_FIXED64, "uint64", False),
    7: (_FIXED32, "uint32", False),
    8: (_VARINT, "bool_", False),
    13: (_VARINT, "uint32", False),
    14: (_VARINT, "int32", False),
    15: (_FIXED32, "int32", False),
    16: (_FIXED64, "int64", False),
    17: (_VARINT, "int32", True),
    18: (_VARINT, "int64", True),
}
_STRING: Final = 9
_MESSAGE: Final = 11
_BYTES: Final = 12
_ENUM: Final = 14


class ProtobufWriter:
    r"""Writes arrays of structs as messages. The bytes are those that Google's library writes for the same values.

    Args:
        descriptor: The message's descriptor.
        prefix: The bytes in front of each message.

    Example:
        >>> import pyarrow as pa
        >>> from google.protobuf.timestamp_pb2 import Timestamp
        >>> column = pa.array([{"seconds": 300}, None], pa.struct([("seconds", pa.int64())]))
        >>> ProtobufWriter(Timestamp.DESCRIPTOR).write(column)[0].to_pylist()
        [b'\x08\xac\x02', None]
    """

    def __init__(self, descriptor: Any, prefix: bytes = b"") -> None:
        self._descriptor = descriptor
        self._prefix = prefix
        self._encoding = _Encoding()

    def write(self, values: Any, /) -> tuple[Any, list[int]]:
        """Write rows.

        Args:
            values: A ``pyarrow.Array`` of structs; nulls stay null.

        Returns:
            A ``pyarrow.BinaryArray``, and no rows: all are taken, or none.

        Raises:
            ValueError: A column or a value is not taken.
        """
        encoding = self._encoding
        try:
            messages = encoding.message(self._descriptor, values)
        except encoding.arrow.ArrowException as error:
            raise ValueError(str(error)) from error
        if self._prefix:
            messages = encoding.join(encoding.scalar(self._prefix), messages)
        if values.null_count:
            messages = encoding.compute.if_else(values.is_valid(), messages, encoding.scalar(None))
        return messages, []


class _Encoding(Kernels):
    """Columns as fields."""

    def message(self, descriptor: Any, column: Any) -> Any:
        """The messages in a column of structs, without frame; empty ones where it is null."""
        if is_dynamic(descriptor):
            raise ValueError(f"{descriptor.full_name} stands for values of any type")
        if not self.arrow.types.is_struct(column.type):
            raise ValueError(f"{descriptor.full_name} is {column.type} in the table")
        names = [field.name for field in column.type]
        children = dict(zip(names, column.flatten(), strict=True))
        known = descriptor.fields_by_name
        if len(children) < len(names) or not children.keys() <= set(known):
            raise ValueError(f"the columns are not the fields of {descriptor.full_name}")
        self._check_oneofs(descriptor, children)
        fields = sorted((known[name] for name in children), key=lambda field: field.number)
        if any(field.is_required for field in descriptor.fields):
            raise ValueError("required fields are checked by the message")
        parts = [self._field(field, children[field.name]) for field in fields]
        return self.join(*parts) if parts else self.constant(b"", len(column))

    def _check_oneofs(self, descriptor: Any, children: dict[str, Any]) -> None:
        """Refuse rows with two fields of a oneof, of which a message keeps the last."""
        for oneof in descriptor.oneofs:
            columns = [children[field.name].is_valid() for field in oneof.fields if field.name in children]
            seen = columns[0] if columns else None
            for column in columns[1:]:
                if self.compute.any(self.compute.and_(seen, column)).as_py():
                    raise ValueError(f"several fields of {oneof.name} are set")
                seen = self.compute.or_(seen, column)

    def _field(self, field: Any, column: Any) -> Any:
        """A field with its tag; empty where it is absent."""
        if self.arrow.types.is_null(column.type):
            return self.constant(b"", len(column))
        if is_map(field):
            raise ValueError(f"{field.name} is a map")
        if is_repeated(field):
            return self._repeated(field, column)
        wire_type, encode, is_default = self._coder(field, column)
        there = column.is_valid()
        if not field.has_presence:
            there = self.compute.and_not(there, is_default)
        tagged = self.join(self._tag(field.number, wire_type), encode)
        return self.compute.if_else(there, tagged, self.scalar(b""))

    def _repeated(self, field: Any, column: Any) -> Any:
        types = self.arrow.types
        if not types.is_list(column.type):
            raise ValueError(f"{field.name} is {column.type} in the table")
        items = column.flatten()
        if items.null_count:
            raise ValueError(f"an item of {field.name} is null")
        wire_type, encoded, _ = self._coder(field, items)
        counts = self.counts(column)
        if field.is_packed:
            together = self.together(encoded, counts)
            tagged = self.join(self._tag(field.number, _LENGTH), self._sized(together))
            there = self.compute.greater(counts, 0)
            return self.compute.if_else(there, tagged, self.scalar(b""))
        return self.together(self.join(self._tag(field.number, wire_type), encoded), counts)

    def _coder(self, field: Any, column: Any) -> tuple[int, Any, Any]:
        """The wire type of a field's values, their bytes without tag, and which are the default."""
        kind = field.type
        if kind in _NUMBERS:
            return self._numbers(field, column)
        if kind == _MESSAGE:
            messages = self.message(field.message_type, column)
            return _LENGTH, self._sized(messages), column.is_null()
        if kind in {_STRING, _BYTES}:
            data = self._data(field, column)
            return _LENGTH, self._sized(data), self.compute.equal(self.compute.binary_length(data), 0)
        raise ValueError(f"{field.name} is a group")

    def _data(self, field: Any, column: Any) -> Any:
        types = self.arrow.types
        is_right = types.is_string(column.type) if field.type == _STRING else types.is_binary(column.type)
        if not is_right:
            raise ValueError(f"{field.name} is {column.type} in the table")
        return self.compute.fill_null(column.cast(self.arrow.binary()), b"")

    def _numbers(self, field: Any, column: Any) -> tuple[int, Any, Any]:
        wire_type, name, zigzag = _NUMBERS[field.type]
        numbers = self._cast(field, column, getattr(self.arrow, name)())
        if wire_type != _VARINT:
            bits = self.arrow.int64() if wire_type == _FIXED64 else self.arrow.int32()
            # By their bits: minus zero is not the default.
            return wire_type, self.fixed(numbers), self.compute.equal(numbers.view(bits), 0)
        is_default = self.compute.equal(numbers, self.zero(numbers.type))
        if zigzag:
            return wire_type, self.varint(self.zigzag(numbers.cast(self.arrow.int64()))), is_default
        if name in {"int32", "int64"}:
            numbers = numbers.cast(self.arrow.int64()).view(self.arrow.uint64())
        return wire_type, self.varint(numbers.cast(self.arrow.uint64())), is_default

    def _cast(self, field: Any, column: Any, kind: Any) -> Any:
        """Numbers of a type; zero where there are none.

        Raises:
            ValueError: They do not fit.
        """
        types = self.arrow.types
        if field.type == _ENUM and types.is_string(column.type):
            column = self._enum(field, column)
        is_real, is_truth = types.is_floating(kind), types.is_boolean(kind)
        from_real, from_truth = types.is_floating(column.type), types.is_boolean(column.type)
        if not (types.is_integer(column.type) or from_real or from_truth) or is_truth != from_truth:
            raise ValueError(f"{field.name} is {column.type} in the table")
        if from_real and not is_real:
            raise ValueError(f"{field.name} is {column.type} in the table")
        # A float beyond 32 bits is infinite, as in the library; an integer out of range is refused.
        return self.filled(column.cast(kind, safe=not (is_real and from_real)))

    def _enum(self, field: Any, column: Any) -> Any:
        values = field.enum_type.values
        names = self.arrow.array([value.name for value in values], self.arrow.string())
        numbers = self.arrow.array([value.number for value in values], self.arrow.int32())
        at = self.compute.index_in(column, value_set=names)
        if at.null_count != column.null_count:
            raise ValueError(f"a value of {field.name} is not in the schema")
        return numbers.take(at)

    def _sized(self, data: Any) -> Any:
        """Bytes behind their length."""
        return self.join(self.varint(self.lengths(data)), data)

    def _tag(self, number: int, wire_type: int) -> Any:
        value = number << 3 | wire_type
        data = bytearray()
        while value > 0x7F:
            data.append(value & 0x7F | 0x80)
            value >>= 7
        return self.scalar(bytes([*data, value]))
