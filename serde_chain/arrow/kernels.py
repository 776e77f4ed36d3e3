"""Kernels of pyarrow that make bytes of columns, as Avro and Protobuf have them: no Python object per row."""

from __future__ import annotations

from typing import Any

from payload_stores.plugins import require


class Kernels:
    r"""Encodings of columns; each result is a ``pyarrow.BinaryArray`` with the bytes of each row.

    Example:
        >>> import pyarrow as pa
        >>> Kernels().varint(pa.array([1, 300], pa.uint64())).to_pylist()
        [b'\x01', b'\xac\x02']
    """

    def __init__(self) -> None:
        self.arrow: Any = require("pyarrow", "arrow")
        self.compute: Any = require("pyarrow.compute", "arrow")
        # The last one stands for no byte.
        self._bytes = self.arrow.array([*(bytes([byte]) for byte in range(256)), b""], self.arrow.binary())

    def scalar(self, data: bytes | None) -> Any:
        """Bytes as a scalar."""
        return self.arrow.scalar(data, self.arrow.binary())

    def constant(self, data: bytes, count: int) -> Any:
        """The same bytes in each row."""
        return self.arrow.repeat(self.scalar(data), count)

    def join(self, *parts: Any) -> Any:
        """The concatenation of columns and scalars."""
        return self.compute.binary_join_element_wise(*parts, self.scalar(b""))

    def choose(self, condition: Any, column: Any, other: Any) -> Any:
        """A column where a condition holds, and another column, or bytes, elsewhere."""
        other = self.scalar(other) if isinstance(other, bytes) or other is None else other
        return self.compute.if_else(condition, column, other)

    def together(self, items: Any, counts: Any) -> Any:
        """Items, joined by the lists that they are in."""
        ends = self.compute.cumulative_sum(counts).cast(self.arrow.int32())
        offsets = self.arrow.concat_arrays([self.arrow.array([0], self.arrow.int32()), ends])
        return self.compute.binary_join(self.arrow.ListArray.from_arrays(offsets, items), self.scalar(b""))

    def counts(self, lists: Any) -> Any:
        """The lengths of lists; 0 where they are null."""
        return self.compute.fill_null(self.compute.list_value_length(lists), 0)

    def zero(self, kind: Any) -> Any:
        """The zero of a type."""
        return self.arrow.scalar(False if self.arrow.types.is_boolean(kind) else 0, kind)

    def filled(self, numbers: Any) -> Any:
        """Numbers, with zero where they are null."""
        return self.compute.fill_null(numbers, self.zero(numbers.type))

    def fixed(self, numbers: Any) -> Any:
        """Numbers as they are in memory, which is little-endian; none of them null."""
        arrow, width = self.arrow, numbers.type.bit_width // 8
        data = numbers.buffers()[1]
        made = arrow.Array.from_buffers(arrow.binary(width), len(numbers), [None, data], offset=numbers.offset)
        return made.cast(arrow.binary())

    def byte(self, numbers: Any) -> Any:
        """Numbers below 256 as a byte."""
        return self._bytes.take(numbers)

    def zigzag(self, numbers: Any) -> Any:
        """Signed numbers of 64 bits as unsigned ones."""
        sign = self.compute.if_else(self.compute.less(numbers, 0), -1, 0)
        return self.compute.bit_wise_xor(self.compute.shift_left(numbers, 1), sign).view(self.arrow.uint64())

    def varint(self, numbers: Any) -> Any:
        """Unsigned numbers of 64 bits as varints: a column for each byte, with no byte where the number has ended."""
        compute, zero, size, going_on = self.compute, *map(self._unsigned, (0, 7)), None
        seven_bits, more_bit, no_byte = map(self._unsigned, (0x7F, 0x80, 0x100))
        digits: list[Any] = []
        while True:
            low = compute.bit_wise_and(numbers, seven_bits)
            numbers = compute.shift_right(numbers, size)
            more = compute.greater(numbers, zero)
            digit = compute.if_else(more, compute.bit_wise_or(low, more_bit), low)
            if going_on is not None:
                digit = compute.if_else(going_on, digit, no_byte)
            digits.append(self._bytes.take(digit))
            if not compute.any(more).as_py():
                return self.join(*digits) if len(digits) > 1 else digits[0]
            going_on = more

    def lengths(self, data: Any) -> Any:
        """The lengths of bytes, as unsigned numbers of 64 bits."""
        return self.compute.binary_length(data).cast(self.arrow.uint64())

    def _unsigned(self, number: int) -> Any:
        # Other scalars are signed, and would make columns so.
        return self.arrow.scalar(number, self.arrow.uint64())
