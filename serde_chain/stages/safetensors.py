"""Named tensors in the safetensors format (https://github.com/huggingface/safetensors), as NumPy arrays.

The package of that name copies each tensor both ways; here they are views of the value's memory, and are uploaded
from the arrays' memory. The bytes are those that the package writes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.arrow import BatchForm
from serde_chain.base import Buffer, PartsSerializer, PlainDeserializer
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.schemas.part_budget import MAX_PARTS, TOO_MANY, Budget, parts_of_json

# The format's names of dtypes, in the order of the package, whose tensors with larger items come first.
_DTYPES: Final = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "C64": "<c8",
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
}
_NAMES: Final = {layout.lstrip("<"): name for name, layout in _DTYPES.items()}
_RANKS: Final = {name: rank for rank, name in enumerate(_DTYPES)}
_METADATA: Final = "__metadata__"
_ENTRY: Final = frozenset({"dtype", "shape", "data_offsets"})
_SIZE: Final = struct.Struct("<Q")
# The package reads no more.
_MOST_HEADER: Final = 100_000_000
# NumPy's; a product of more numbers, or of larger ones than the package's, would take as long as its writer likes.
_MOST_AXES: Final = 64
_NUMBERS: Final = range(1 << 64)
_ARRAYS: Final = "Pass a mapping of names to arrays, as numpy.asarray(tensor) returns them"


class SafetensorsSerializer(PartsSerializer[Mapping[str, Any]]):
    """Writes a mapping of names to NumPy arrays, in the order of the package: by dtype, then by name.

    Before ``large-message``, values of 32 MiB and more are uploaded from the arrays' memory, so the arrays must not be
    modified before delivery.

    Example:
        >>> import numpy
        >>> from serde_chain import DeserializerChain, SerializerChain
        >>> data = SerializerChain.from_config({"value.serializer": "safetensors"})({"bias": numpy.ones(2, "f4")})
        >>> DeserializerChain.from_config({"value.deserializer": "safetensors"})(data)
        {'bias': array([1., 1.], dtype=float32)}
    """

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package."""
        super().configure(config, is_key)
        numpy = require("numpy", "numpy")

        def parts(data: Any) -> list[Buffer]:
            if not isinstance(data, Mapping):
                raise EncodeError(f"safetensors takes a mapping, not {type(data).__name__}", hint=_ARRAYS)
            tensors = sorted(
                ((_dtype_of(name, array, numpy), name, array) for name, array in data.items()),
                key=lambda tensor: (-_RANKS[tensor[0]], tensor[1]),
            )
            header, body, end = {}, [], 0
            for dtype, name, array in tensors:
                begin, end = end, end + array.nbytes
                header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
                in_order = numpy.ascontiguousarray(array, _DTYPES[dtype])
                body.append(memoryview(in_order.reshape(-1).view(numpy.uint8)))
            try:
                text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
            except UnicodeEncodeError as error:
                drop_data(error)
                raise EncodeError("a tensor's name is not Unicode") from error
            text += b" " * (-len(text) % _SIZE.size)
            return [_SIZE.pack(len(text)) + text, *body]

        self.give_parts(parts)


class SafetensorsDeserializer(PlainDeserializer[dict[str, Any]]):
    """Reads tensors into NumPy arrays over the same memory, so they are read-only and cost no copy.

    Refuses the dtypes that NumPy lacks (bfloat16, 8-bit floats), and everything that the package refuses: overlaps,
    gaps, and sizes that differ from the shape. Metadata are checked and left out.
    """

    options = (MAX_PARTS,)
    plain: Callable[[Any], dict[str, Any]]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package, and read ``serde.max.parts``."""
        super().configure(config, is_key)
        numpy = require("numpy", "numpy")
        budget = Budget.read(config)

        def read(data: Buffer) -> dict[str, Any]:
            view = memoryview(data).cast("B")
            try:
                body, header = _split(view, budget)
                return {
                    name: numpy.frombuffer(body[begin:end], dtype).reshape(shape)
                    for name, (begin, end, dtype, shape) in _entries(header, len(body)).items()
                }
            except DecodeError:
                raise
            except Exception as error:
                message = str(error)
                drop_data(error)
                raise DecodeError(
                    f"the bytes are not safetensors: {message[:300]}",
                    hint="Did another stage write it? For dtypes without NumPy, use bytes, and safetensors.torch.load",
                ) from error

        self.plain = read

    def batch_form(self) -> BatchForm:
        """A column of the checked bytes: tensors of different shapes have no common Arrow type."""
        from serde_chain.arrow.encoded import EncodedBatch

        return EncodedBatch(self)


def _dtype_of(name: object, array: Any, numpy: Any) -> str:
    """The format's name of an array's dtype."""
    if not isinstance(name, str) or name == _METADATA:
        raise EncodeError(f"a tensor's name is text other than {_METADATA}, not {type(name).__name__}", hint=_ARRAYS)
    if type(array) not in {numpy.ndarray, numpy.memmap}:
        raise EncodeError(f"a tensor is a numpy.ndarray, not {type(array).__name__}", hint=_ARRAYS)
    found = _NAMES.get("?" if array.dtype.kind == "b" else f"{array.dtype.kind}{array.dtype.itemsize}")
    if found is None:
        raise EncodeError(f"safetensors has no dtype for {str(array.dtype)[:100]}", hint=f"It has {', '.join(_DTYPES)}")
    return found


def _split(view: memoryview, budget: Budget) -> tuple[memoryview, Any]:
    """The tensors' bytes and the header."""
    size = _SIZE.unpack_from(view)[0]
    if size > min(len(view) - _SIZE.size, _MOST_HEADER):
        raise ValueError(f"a header of {size} bytes in {len(view)}")
    text = bytes(view[_SIZE.size : _SIZE.size + size])
    if parts_of_json(text) > budget.of(len(view)):
        raise DecodeError(str(budget.exceeded(len(view))), hint=TOO_MANY)
    if not text.startswith(b"{"):
        raise ValueError("the header does not begin with {")
    return view[_SIZE.size + size :], json.loads(text.decode(), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in the header")
    return found


def _entries(header: Any, size: int) -> dict[str, tuple[int, int, str, list[int]]]:
    """The place, dtype and shape of each tensor: one after the other, up to the end."""
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("the metadata are not text")
    found, expected = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry.keys() != _ENTRY:
            raise ValueError("a tensor has other members than dtype, shape and data_offsets")
        dtype, shape, (begin, end) = _DTYPES.get(str(entry["dtype"])), entry["shape"], entry["data_offsets"]
        if dtype is None:
            raise ValueError(f"a dtype is none of {', '.join(_DTYPES)}")
        numbers = (begin, end, *shape)
        if len(shape) > _MOST_AXES or not all(type(number) is int and number in _NUMBERS for number in numbers):
            raise ValueError("a tensor's place or shape is wrong")
        if begin != expected:
            raise ValueError("a tensor does not begin where the one before it ends")
        if math.prod(shape) * _item_bytes(dtype) != end - begin:
            raise ValueError(f"a tensor has {end - begin} bytes, which its shape does not explain")
        found[name] = (begin, end, dtype, shape)
        expected = end
    if expected != size:
        raise ValueError(f"the tensors have {expected} bytes of {size}")
    return found


def _item_bytes(dtype: str) -> int:
    return 1 if dtype == "?" else int(dtype[-1])
