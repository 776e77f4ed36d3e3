"""NumPy arrays in the ``.npy`` format (NEP 1), by NumPy's own ``numpy.lib.format``; never pickled objects."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.arrow import BatchForm
from serde_chain.base import Buffer, PartsSerializer, PlainDeserializer
from serde_chain.errors import DecodeError, EncodeError

# Booleans, numbers, dates, and fixed-size bytes and text; objects and StringDType refer to other memory.
_KINDS: Final = frozenset("?biufcmMSUV")
_LAST_CODE: Final = 0x10FFFF
_READ: Final = "Pass an array of numbers, dates, or fixed-size text, as numpy.asarray(value) returns it"


class _UnfitError(ValueError):
    """Something that NumPy accepts is refused."""


class NpySerializer(PartsSerializer[Any]):
    r"""Writes a NumPy array as ``numpy.save`` does: all dtypes without objects, in C or Fortran order.

    Before ``large-message``, arrays of 32 MiB and more are uploaded from their own memory, so they must not be modified
    before delivery.

    Record keys are in C order and little-endian. Refuses subclasses of arrays except ``memmap``: a mask or a unit would
    be lost.

    Example:
        >>> import numpy
        >>> from serde_chain import SerializerChain
        >>> SerializerChain.from_config({"value.serializer": "npy"})(numpy.arange(3, dtype="u1"))[-3:]
        b'\x00\x01\x02'
    """

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package."""
        super().configure(config, is_key)
        numpy = require("numpy", "numpy")
        layout = require("numpy.lib.format", "numpy")

        def parts(data: Any) -> list[Buffer]:
            if type(data) not in {numpy.ndarray, numpy.memmap}:
                raise EncodeError(f"npy takes numpy.ndarray, not {type(data).__name__}", hint=_READ)
            try:
                _check_dtype(data.dtype)
                if is_key:
                    data = numpy.asarray(data, data.dtype.newbyteorder("<"), order="C")
                # Copies only arrays with gaps. A Fortran-ordered array has the bytes of its transpose in C order.
                if not (data.flags.c_contiguous or data.flags.f_contiguous):
                    data = numpy.ascontiguousarray(data)
                head = io.BytesIO()
                layout.write_array_header_1_0(head, layout.header_data_from_array_1_0(data))
            except Exception as error:
                message = str(error)
                drop_data(error)
                raise EncodeError(f"the array does not fit the npy format: {message[:300]}", hint=_READ) from error
            in_order = data if data.flags.c_contiguous else data.T
            return [head.getvalue(), memoryview(in_order.reshape(-1).view(numpy.uint8))]

        self.give_parts(parts)


class NpyDeserializer(PlainDeserializer[Any]):
    """Reads ``.npy`` bytes into an array over the same memory, so it is read-only and costs no copy.

    Refuses pickled objects, sizes that differ from the header's, and version 3 (field names beyond Latin-1).
    """

    plain: Callable[[Any], Any]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package."""
        super().configure(config, is_key)
        numpy = require("numpy", "numpy")
        layout = require("numpy.lib.format", "numpy")
        readers = {(1, 0): layout.read_array_header_1_0, (2, 0): layout.read_array_header_2_0}
        most = layout.MAGIC_LEN + 4 + 65536  # NumPy refuses headers of more than 10,000 characters

        def read(data: Buffer) -> Any:
            view = memoryview(data).cast("B")
            try:
                if view[: len(layout.MAGIC_PREFIX)] != layout.MAGIC_PREFIX:
                    raise _UnfitError("they do not begin with 93 4E 55 4D 50 59 (\\x93NUMPY)")
                head = io.BytesIO(view[:most])
                shape, is_fortran, dtype = readers[layout.read_magic(head)](head)
                _check_dtype(dtype)
                count = math.prod(shape)
                body = view[head.tell() :]
                if min(shape, default=0) < 0 or bool in map(type, shape) or count * dtype.itemsize != len(body):
                    raise _UnfitError(f"{len(body)} bytes for {count} items of {dtype.itemsize}")
                array = numpy.frombuffer(body, dtype, count) if count else numpy.empty(0, dtype)
                _check_text(array, numpy)
                return array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
            except _UnfitError as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001  replaced: its message may quote the bytes
                problem = type(error).__name__
            raise DecodeError(f"the bytes are not an npy array: {problem}")

        self.plain = read

    def batch_form(self) -> BatchForm:
        """A column of the checked bytes: arrays of different shapes have no common Arrow type."""
        from serde_chain.arrow.encoded import EncodedBatch

        return EncodedBatch(self)


def _check_dtype(dtype: Any) -> None:
    if dtype.hasobject or dtype.kind not in _KINDS or (dtype.kind == "b" and dtype.itemsize != 1):
        raise _UnfitError(f"items of the dtype {str(dtype)[:100]} are objects, which would be pickled")
    if dtype.itemsize == 0:
        # A header of some bytes could claim any number of them.
        raise _UnfitError("items of no bytes")


def _check_text(array: Any, numpy: Any) -> None:
    """Refuse text beyond Unicode: NumPy finds it only when an item is used."""
    dtype = array.dtype
    for name in dtype.names or ():
        _check_text(array[name], numpy)
    if dtype.names is None and dtype.kind == "U" and array.size:
        codes = numpy.ascontiguousarray(array).reshape(-1).view(numpy.dtype("u4").newbyteorder(dtype.byteorder))
        if codes.max() > _LAST_CODE:
            raise _UnfitError("text beyond Unicode")
