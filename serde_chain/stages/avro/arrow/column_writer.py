"""Writes Arrow columns as Avro records with kernels of pyarrow, where the compiled part does not.

The bytes are those that fastavro writes for the same values. Decimals, unions whose columns are not structs of members,
values out of Python's range, and all that needs a conversion are not taken: fastavro writes these, and reports errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from serde_chain.arrow.kernels import Kernels
from serde_chain.stages.avro.arrow.native_writer import NativeWriter
from serde_chain.stages.avro.resolution import members
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import bare, kind

__all__ = ["KernelWriter"]

# Python's dates are of the years 1 to 9999.
_DAYS: Final = (-719_162, 2_932_896)
_MICROSECONDS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# Logical types: the unit of timestamps, and its microseconds.
_MOMENTS: Final[Mapping[str, tuple[str, int]]] = {
    "timestamp-millis": ("ms", 1000),
    "timestamp-micros": ("us", 1),
    "local-timestamp-millis": ("ms", 1000),
    "local-timestamp-micros": ("us", 1),
}


class KernelWriter:
    r"""Writes arrays by one schema.

    Args:
        schema: The schema of the records.
        prefix: The bytes in front of each record.
        ordered: Whether maps must be sorted; columns with maps are not taken then.
        native: The compiled part's writer, which is faster, and takes other columns.

    Example:
        >>> import pyarrow as pa
        >>> writer = KernelWriter(AvroSchema.parse('["null", "string"]'))
        >>> writer.write(pa.array(["M 51", None]))[0].to_pylist()
        [b'\x02\x08M 51', b'\x00']
    """

    def __init__(
        self, schema: AvroSchema, prefix: bytes = b"", *, ordered: bool = False, native: NativeWriter | None = None
    ) -> None:
        self._native = native
        self._schema = schema
        self._prefix = prefix
        self._ordered = ordered
        self._kernels = Kernels()

    def write(self, values: Any, /) -> tuple[Any, list[int]]:
        """Write rows.

        Args:
            values: A ``pyarrow.Array``; nulls stay null, unless the schema is a union.

        Returns:
            A ``pyarrow.BinaryArray``, and the rows that are not taken; none if the kernels wrote it.

        Raises:
            ValueError: The column, or a value, is not taken.
        """
        if self._native is not None:
            with suppress(ValueError):
                return self._native.write(values)
        kernels, schema = self._kernels, self._schema
        is_union = isinstance(schema.parsed, list)
        try:
            records = self._one(schema.parsed, values, None if is_union else values.is_valid())
        except kernels.arrow.ArrowException as error:
            raise ValueError(str(error)) from error
        if self._prefix:
            records = kernels.join(kernels.scalar(self._prefix), records)
        if values.null_count and not is_union:
            records = kernels.choose(values.is_valid(), records, None)
        return records, []

    def _one(self, schema: Any, column: Any, alive: Any | None) -> Any:
        """The values of a column; anything in rows that are not ``alive``.

        Raises:
            ValueError: They are not taken.
        """
        schema = bare(schema, self._schema.named)
        which = kind(schema)
        if which == "union":
            return self._union(schema, column, alive)
        if which == "null":
            if column.null_count < len(column):
                raise ValueError("a column of nulls has values")
            return self._kernels.constant(b"", len(column))
        self._check_nulls(column, alive)
        write = {
            "record": self._record,
            "array": self._array,
            "map": self._map,
            "enum": self._enum,
            "fixed": self._data,
            "bytes": self._data,
            "string": self._data,
            "boolean": self._boolean,
            "int": self._integer,
            "long": self._integer,
            "float": self._real,
            "double": self._real,
        }.get(which)
        if write is None:
            raise ValueError(f"{which} is not taken")
        return write(schema, column, alive)

    def _check_nulls(self, column: Any, alive: Any | None) -> None:
        if not column.null_count:
            return
        nulls = column.is_null()
        missing = nulls if alive is None else self._kernels.compute.and_(nulls, alive)
        if self._kernels.compute.any(missing).as_py():
            raise ValueError("a value is null")

    def _and(self, alive: Any | None, valid: Any) -> Any:
        return valid if alive is None else self._kernels.compute.and_(alive, valid)

    def _union(self, union: list[Any], column: Any, alive: Any | None) -> Any:
        types, named = self._kernels.arrow.types, self._schema.named
        others = [(at, branch) for at, branch in enumerate(union) if kind(bare(branch, named)) != "null"]
        null = next((at for at, branch in enumerate(union) if kind(bare(branch, named)) == "null"), None)
        if null is None:
            self._check_nulls(column, alive)
        columns = [column] if others else []
        if len(others) > 1:
            fields = list(column.type) if types.is_struct(column.type) else []
            if members(union, named, [field.name for field in fields]) is None:
                raise ValueError("a union is not a struct of members")
            columns = column.flatten()
        # Later branches first, so that the first one with a value is written.
        result = None if null is None else self._kernels.constant(self._index(null), len(column))
        for (at, branch), child in reversed(list(zip(others, columns, strict=True))):
            valid = child.is_valid()
            tagged = self._kernels.join(
                self._kernels.scalar(self._index(at)), self._one(branch, child, self._and(alive, valid))
            )
            if result is None and len(others) > 1:
                result = self._kernels.constant(b"", len(column))
            result = tagged if result is None else self._kernels.choose(valid, tagged, result)
        if null is None and len(others) > 1:
            seen = columns[0].is_valid() if alive is None else self._kernels.compute.invert(alive)
            for child in columns:
                seen = self._kernels.compute.or_(seen, child.is_valid())
            if not self._kernels.compute.all(seen).as_py():
                raise ValueError("a union without null has no value")
        return result

    def _index(self, at: int) -> bytes:
        if at >= 64:
            raise ValueError("a union has more than 64 branches")
        return bytes([2 * at])

    def _record(self, schema: Any, column: Any, alive: Any | None) -> Any:
        if not self._kernels.arrow.types.is_struct(column.type):
            raise ValueError(f"a record is {column.type} in the table")
        names = [field.name for field in column.type]
        children = dict(zip(names, column.flatten(), strict=True))
        fields = schema["fields"]
        if len(children) < len(names) or any(field["name"] not in children for field in fields):
            raise ValueError("the table lacks a column, or has one twice")
        parts = [self._one(field["type"], children[field["name"]], alive) for field in fields]
        return self._kernels.join(*parts) if parts else self._kernels.constant(b"", len(column))

    def _array(self, schema: Any, column: Any, _alive: Any | None) -> Any:
        if not self._kernels.arrow.types.is_list(column.type):
            raise ValueError(f"an array is {column.type} in the table")
        return self._blocks(self._one(schema["items"], column.flatten(), None), self._kernels.counts(column))

    def _map(self, schema: Any, column: Any, _alive: Any | None) -> Any:
        if self._ordered or not self._kernels.arrow.types.is_map(column.type):
            raise ValueError(f"a map is {column.type} in the table, or must be sorted")
        counts = self._kernels.compute.fill_null(self._lengths_of_maps(column), 0)
        start, end = (column.offsets[at].as_py() for at in (0, -1)) if len(column) else (0, 0)
        if self._kernels.compute.sum(counts).as_py() not in {end - start, None}:
            raise ValueError("a map that is null has entries")
        keys, values = (each.slice(start, end - start) for each in (column.keys, column.items))
        entries = self._kernels.join(self._one("string", keys, None), self._one(schema["values"], values, None))
        return self._blocks(entries, counts)

    def _lengths_of_maps(self, column: Any) -> Any:
        ends = column.offsets
        return self._kernels.compute.subtract(ends.slice(1), ends.slice(0, len(column)))

    def _blocks(self, items: Any, counts: Any) -> Any:
        """Items as one block per row, and its end."""
        kernels = self._kernels
        number = kernels.varint(kernels.zigzag(counts.cast(kernels.arrow.int64())))
        head = kernels.choose(kernels.compute.greater(counts, 0), number, b"")
        return kernels.join(head, kernels.together(items, counts), kernels.scalar(b"\0"))

    def _enum(self, schema: Any, column: Any, _alive: Any | None) -> Any:
        kernels = self._kernels
        if not kernels.arrow.types.is_string(column.type):
            raise ValueError(f"an enum is {column.type} in the table")
        symbols = kernels.arrow.array(schema["symbols"], kernels.arrow.string())
        at = kernels.compute.index_in(column, value_set=symbols)
        if at.null_count != column.null_count:
            raise ValueError("a value is not one of the symbols")
        return kernels.varint(kernels.zigzag(kernels.filled(at).cast(kernels.arrow.int64())))

    def _data(self, schema: Any, column: Any, alive: Any | None) -> Any:
        kernels, which = self._kernels, kind(schema)
        types, compute = kernels.arrow.types, kernels.compute
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            raise ValueError("decimals are left to fastavro")
        if which == "fixed" and types.is_fixed_size_binary(column.type):
            column = column.cast(kernels.arrow.binary())
        is_right = types.is_string(column.type) if which == "string" else types.is_binary(column.type)
        if not is_right:
            raise ValueError(f"{which} is {column.type} in the table")
        data = compute.fill_null(column.cast(kernels.arrow.binary()), b"")
        if which != "fixed":
            return kernels.join(kernels.varint(compute.shift_left(kernels.lengths(data), 1)), data)
        wrong = compute.not_equal(compute.binary_length(column), schema["size"])
        if compute.any(wrong if alive is None else compute.and_(wrong, alive)).as_py():
            raise ValueError("a fixed is of another size")
        return data

    def _boolean(self, _schema: Any, column: Any, _alive: Any | None) -> Any:
        kernels = self._kernels
        if not kernels.arrow.types.is_boolean(column.type):
            raise ValueError(f"a boolean is {column.type} in the table")
        return kernels.byte(kernels.filled(column).cast(kernels.arrow.uint8()))

    def _integer(self, schema: Any, column: Any, _alive: Any | None) -> Any:
        kernels, arrow = self._kernels, self._kernels.arrow
        which = kind(schema)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        numbers = self._moments(logical, column) if logical is not None else column
        if not arrow.types.is_integer(numbers.type):
            raise ValueError(f"{logical or which} is {column.type} in the table")
        narrow = numbers.cast(arrow.int32() if which == "int" else arrow.int64())  # out of range: an error
        return kernels.varint(kernels.zigzag(kernels.filled(narrow).cast(arrow.int64())))

    def _moments(self, logical: str, column: Any) -> Any:
        """Dates and times as numbers; numbers as they are.

        Raises:
            ValueError: The column is of another type, or a value out of Python's range.
        """
        arrow, types = self._kernels.arrow, self._kernels.arrow.types
        if types.is_integer(column.type):
            return column
        if logical == "date" and types.is_date32(column.type):
            return self._within(column.view(arrow.int32()), *_DAYS)
        if logical == "time-millis" and column.type == arrow.time32("ms"):
            return column.view(arrow.int32())
        if logical == "time-micros" and column.type == arrow.time64("us"):
            return column.view(arrow.int64())
        if logical in _MOMENTS and types.is_timestamp(column.type):
            unit, divisor = _MOMENTS[logical]
            # fastavro takes naive times for local ones, and writes local times without their zone.
            if (column.type.tz is None) is logical.startswith("local-"):
                numbers = column.cast(arrow.timestamp(unit, column.type.tz)).view(arrow.int64())
                return self._within(numbers, *(bound // divisor for bound in _MICROSECONDS))
        raise ValueError(f"{logical} is {column.type} in the table")

    def _within(self, numbers: Any, least: int, most: int) -> Any:
        found = self._kernels.compute.min_max(numbers).as_py()
        if found["min"] is not None and not (least <= found["min"] and found["max"] <= most):
            raise ValueError("a time is out of Python's range")
        return numbers

    def _real(self, schema: Any, column: Any, _alive: Any | None) -> Any:
        kernels, arrow = self._kernels, self._kernels.arrow
        if not (arrow.types.is_float32(column.type) or arrow.types.is_float64(column.type)):
            raise ValueError(f"{kind(schema)} is {column.type} in the table")
        numbers = kernels.filled(
            column.cast(arrow.float32() if kind(schema) == "float" else arrow.float64(), safe=False)
        )
        infinite = [kernels.compute.sum(kernels.compute.is_inf(each)).as_py() or 0 for each in (column, numbers)]
        if infinite[0] != infinite[1]:
            raise ValueError("a number is beyond 32 bits")
        return kernels.fixed(numbers)
