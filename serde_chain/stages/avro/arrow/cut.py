"""Large ``bytes`` fields bypass the readers: they are cut out of the records, and copied once, into the result.

Avro readers copy such a field several times, which takes longer than decoding all other fields. Here, one pass over
each record locates its ``bytes`` fields by lengths and branches, without decoding. The readers get the records with
these fields empty, which the same schema describes; the fields go from the input directly into their columns. Fields
missing from the reader's schema are not copied at all.

The pass validates nothing else: the readers do, on the same bytes. If a record does not fit, the batch is read
uncut.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain.stages.avro.resolution import Definitions
from serde_chain.stages.avro.types import kind
from serde_chain.wire import varint

__all__ = ["Cut", "Cutter"]

# Mean sizes in bytes from which on copies of a field cost more than this pass: of fields in the result, and of others.
_LARGE: Final = 8192
_LARGE_UNREAD: Final = 4096
# The first records show whether cutting pays: if at least this share of their bytes is in large fields.
_SAMPLE: Final = 16
_SHARE: Final = 0.5
_FIXED: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS: Final = frozenset({"int", "long", "enum"})
_MOST_BINARY_BYTES: Final = (1 << 31) - 1
# Replaces a field: the length zero.
_EMPTY: Final = b"\0"

# Skips a value: gets the data, the value's position and the notes, and returns the position after it.
_Skip = Callable[[memoryview, int, "_Notes"], int]
# A value of always the same size, or the way to skip it.
_Step = int | _Skip
# The result's parts that contain cut fields: the field's number, or the parts by name; of a list, its items by "".
_Parts = int | dict[str, "_Parts"]


class _MisfitError(ValueError):
    """The bytes, or the array of the cut records, do not match the schema, or cutting does not pay."""


class _Notes:
    """The places of the fields.

    Attributes:
        holes: Begin, end and number of adjacent cut fields, lengths included, in order.
        fields: By field: begin and end of each value, None for null.
        most: Most holes of a record: with more, cutting does not pay.
    """

    def __init__(self, fields: int, most: int) -> None:
        self.most = most
        self.holes: list[tuple[int, int, int]] = []
        self.fields: list[list[tuple[int, int] | None]] = [[] for _ in range(fields)]


class Cut(NamedTuple):
    """Records without their large fields, and these.

    Attributes:
        records: ``pyarrow`` array of the records, unframed, each field empty.
        fields: ``pyarrow`` arrays of the fields, one after the other.
        parts: Where they belong in the result; None without fields in it.
    """

    records: Any
    fields: Sequence[Any]
    parts: _Parts | None

    def restored(self, array: Any) -> Any | None:
        """The decoded records with their fields; None if the numbers of rows differ."""
        if self.parts is None:
            return array
        try:
            return self._restored(array, self.parts)
        except _MisfitError:
            return None

    def _restored(self, array: Any, parts: _Parts) -> Any:
        arrow: Any = require("pyarrow", "arrow")
        if isinstance(parts, int):
            field = self.fields[parts]
            if len(field) != len(array):
                raise _MisfitError
            return field
        if arrow.types.is_list(array.type):
            if array.offset:
                raise _MisfitError
            items = self._restored(array.values, parts[""])
            return arrow.Array.from_buffers(array.type, len(array), array.buffers()[:2], children=[items])
        fields = list(array.type)
        children = [array.field(at) for at in range(len(fields))]
        for at, field in enumerate(fields):
            if field.name in parts:
                children[at] = self._restored(children[at], parts[field.name])
        mask = array.is_null() if array.null_count else None
        return arrow.StructArray.from_arrays(children, fields=fields, mask=mask)


class Cutter:
    """Cuts the ``bytes`` fields out of records of a schema.

    Args:
        writer: The writer's schema, as returned by ``rewritten``.
        reader: The reader's schema, likewise; None without resolution.
    """

    def __init__(self, writer: Any, reader: Any) -> None:
        compiler = _Compiler()
        step, parts = compiler.step(writer, writer if reader is None else reader)
        self._skip: _Skip | None = None if isinstance(step, int) or not compiler.holes else step
        self._fields = compiler.fields
        self._parts = parts

    def cut(self, values: Any, start: int) -> Cut | None:
        """Cut the fields out of records.

        Args:
            values: ``pyarrow`` array of the records with their framing, without nulls.
            start: Length of the framing in bytes.

        Returns:
            The parts; None if it does not pay, or if a record does not fit the schema.
        """
        if self._skip is None or values.nbytes < _LARGE_UNREAD * len(values):
            return None
        data, ends = _memory(values)
        notes = _Notes(self._fields, (ends[-1] - ends[0]) // max(_LARGE_UNREAD, 1))
        try:
            found = self._pieces(data, ends, start, notes)
            if found is None:
                return None
            fields = [_column(data, places) for places in notes.fields]
            return Cut(_binary(*found), fields, self._parts)
        except (IndexError, KeyError, ValueError):
            return None

    def _pieces(
        self, data: memoryview, ends: Sequence[int], start: int, notes: _Notes
    ) -> tuple[list[memoryview | bytes], list[int]] | None:
        """The records without their fields, in pieces, and the sizes of the records; None if it does not pay."""
        skip, holes = self._skip, notes.holes
        assert skip is not None  # noqa: S101, as ``cut`` has seen
        pieces: list[memoryview | bytes] = []
        sizes: list[int] = []
        removed = cut = 0

        def pays(end: int) -> bool:
            read = sum(map(len, notes.fields))
            return removed >= max(read * _LARGE + (cut - read) * _LARGE_UNREAD, _SHARE * (end - ends[0]))

        for row, (begin, end) in enumerate(pairwise(ends)):
            at = begin + start
            # Not beyond the record: a wrong count would lead through all records after it.
            if skip(data[:end], at, notes) != end:
                raise _MisfitError
            notes.most -= len(holes)
            size = end - at
            for hole, after, count in holes:
                pieces += data[at:hole], _EMPTY * count
                at = after
                size += count - (after - hole)
                cut += count
            pieces.append(data[at:end])
            sizes.append(size)
            holes.clear()
            removed += end - begin - size
            if row == _SAMPLE and not pays(end):
                return None
        return (pieces, sizes) if pays(ends[-1]) else None


class _Compiler:
    """Compiles schemas into ways to skip their values.

    Attributes:
        fields: Number of fields that are in the result.
        holes: Whether any field is cut.
    """

    def __init__(self) -> None:
        self.fields = 0
        self.holes = False
        # Of the writer and of the reader.
        self._named = [Definitions(), Definitions()]

    def step(self, writer: Any, reader: Any, *, keep: bool = False) -> tuple[_Step, _Parts | None]:
        """Compile one type.

        Args:
            writer: The writer's type.
            reader: The reader's; None if it is not in the result.
            keep: Whether fields stay in the records: within maps and unions of several branches.

        Returns:
            The way to skip a value, and the parts of the result that contain cut fields.
        """
        writer, reader = self._named[0].of(writer), self._named[1].of(reader)
        which = kind(writer)
        if which == "union":
            return self._union(writer, reader, keep=keep)
        if isinstance(reader, list):
            reader = self._match(writer, reader)
        keep = keep or (reader is not None and kind(reader) != which)
        if which in {"record", "error"}:
            return self._record(writer, reader, keep=keep)
        if which == "array":
            item, parts = self.step(writer["items"], None if reader is None or keep else reader["items"], keep=keep)
            return _blocks(item), None if parts is None else {"": parts}
        if which == "map":
            item, _ = self.step(writer["values"], None, keep=True)
            return _blocks(_sequence([_skip_sized, item])), None
        return self._leaf(which, writer, reader, keep=keep)

    def _leaf(self, which: str, writer: Any, reader: Any, *, keep: bool) -> tuple[_Step, _Parts | None]:
        if which == "bytes" and not keep and _is_plain(writer) and (reader is None or _is_plain(reader)):
            return self._field(reader is not None)
        if which == "fixed":
            return int(writer["size"]), None
        return _skip_varint if which in _VARINTS else _FIXED.get(which, _skip_sized), None

    def _match(self, writer: Any, union: list[Any]) -> Any:
        """The branch of the reader's union for a writer's type; the type itself if there is none."""
        branches = [branch for branch in (self._named[1].of(branch) for branch in union) if kind(branch) != "null"]
        return branches[0] if len(branches) == 1 and kind(branches[0]) == kind(writer) else union

    def _record(self, writer: Any, reader: Any, *, keep: bool) -> tuple[_Step, _Parts | None]:
        targets = {} if reader is None or keep else {field["name"]: field["type"] for field in reader["fields"]}
        steps: list[_Step] = []
        parts: dict[str, _Parts] = {}
        for field in writer["fields"]:
            step, inner = self.step(field["type"], targets.get(field["name"]), keep=keep)
            steps.append(step)
            if inner is not None:
                parts[field["name"]] = inner
        return _sequence(steps), parts or None

    def _union(self, writer: list[Any], reader: Any, *, keep: bool) -> tuple[_Step, _Parts | None]:
        kinds = [kind(self._named[0].of(branch)) for branch in writer]
        is_nullable = len(writer) == 2 and "null" in kinds
        # A null is a row of the result's column, but an absent list has no items.
        before = self.fields
        steps: list[_Step] = []
        parts: _Parts | None = None
        for branch in writer:
            target = reader if is_nullable else None
            step, inner = self.step(branch, target, keep=keep or not is_nullable)
            steps.append(step)
            parts = parts if inner is None else inner
        own = _own(parts) if parts is not None else []
        if own and self.fields > before:
            steps[kinds.index("null")] = _absent(own)
        if all(isinstance(step, int) for step in steps):
            return _Branches([{2 * at: 1 + step for at, step in enumerate(steps[:64]) if isinstance(step, int)}]), parts
        ways = {2 * at: step for at, step in enumerate(steps[:64])}

        def skip(data: memoryview, at: int, notes: _Notes) -> int:
            way = ways[data[at]]
            return at + 1 + way if isinstance(way, int) else way(data, at + 1, notes)

        return skip, parts

    def _field(self, is_wanted: bool) -> tuple[_Step, _Parts | None]:
        self.holes = True
        if not is_wanted:
            return _Fields([None]), None
        self.fields += 1
        return _Fields([self.fields - 1]), self.fields - 1


class _Fields:
    """Fields that are cut, one after the other: their numbers, None for those that are not in the result."""

    def __init__(self, numbers: list[int | None]) -> None:
        self.numbers = numbers

    def __call__(self, data: memoryview, at: int, notes: _Notes) -> int:
        holes, fields, end = notes.holes, notes.fields, at
        for number in self.numbers:
            begin, end = _sized(data, end)
            if number is not None:
                fields[number].append((begin, end))
        holes.append((at, end, len(self.numbers)))
        if len(holes) > notes.most:
            raise _MisfitError
        return end


class _Branches:
    """Unions of branches of fixed sizes, one after the other: the sizes by the branch's byte, that byte included."""

    def __init__(self, sizes: list[dict[int, int]]) -> None:
        self.sizes = sizes

    def __call__(self, data: memoryview, at: int, _notes: _Notes) -> int:
        for sizes in self.sizes:
            at += sizes[data[at]]
        return at


def _is_plain(schema: Any) -> bool:
    return kind(schema) == "bytes" and not (isinstance(schema, dict) and "logicalType" in schema)


def _own(parts: _Parts) -> list[int]:
    """The fields that have a row for each row of the parts."""
    if isinstance(parts, int):
        return [parts]
    return [number for name, inner in parts.items() if name for number in _own(inner)]


def _absent(fields: Sequence[int]) -> _Skip:
    """A null in place of parts with fields."""

    def skip(_data: memoryview, at: int, notes: _Notes) -> int:
        for number in fields:
            notes.fields[number].append(None)
        return at

    return skip


def _sequence(steps: Sequence[_Step]) -> _Step:
    """One value after the other; neighbours of the same kind are one step."""
    ways: list[_Step] = []
    for step in steps:
        last = ways[-1] if ways else None
        if isinstance(step, int) and isinstance(last, int):
            ways[-1] = last + step
        elif isinstance(step, _Branches) and isinstance(last, _Branches):
            ways[-1] = _Branches([*last.sizes, *step.sizes])
        elif isinstance(step, _Fields) and isinstance(last, _Fields):
            ways[-1] = _Fields([*last.numbers, *step.numbers])
        else:
            ways.append(step)
    if len(ways) < 2:
        return ways[0] if ways else 0

    def skip(data: memoryview, at: int, notes: _Notes) -> int:
        for way in ways:
            at = at + way if isinstance(way, int) else way(data, at, notes)
        return at

    return skip


def _blocks(item: _Step) -> _Skip:
    """The blocks of an array or map (Avro specification, "Arrays")."""

    def skip(data: memoryview, at: int, notes: _Notes) -> int:
        while True:
            count, at = _number(data, at)
            if count == 0:
                return at
            if count < 0:
                count, at = -count, _number(data, at)[1]
            if isinstance(item, int):
                at += count * item
                continue
            for _ in range(count):
                at = item(data, at, notes)

    return skip


def _skip_varint(data: memoryview, at: int, _notes: _Notes) -> int:
    while data[at] > 0x7F:
        at += 1
    return at + 1


def _skip_sized(data: memoryview, at: int, _notes: _Notes) -> int:
    return _sized(data, at)[1]


def _sized(data: memoryview, at: int) -> tuple[int, int]:
    """Begin and end of a value with a length in front."""
    size = data[at]
    if size < 0x80:
        at += 1
    elif (high := data[at + 1]) < 0x80:  # the same in the time of one step, up to 1 MB
        size, at = size & 0x7F | high << 7, at + 2
    elif (highest := data[at + 2]) < 0x80:
        size, at = size & 0x7F | (high & 0x7F) << 7 | highest << 14, at + 3
    else:
        size, at = varint.read(data, at)
    if size & 1:
        raise _MisfitError  # a negative length
    return at, at + (size >> 1)


def _number(data: memoryview, at: int) -> tuple[int, int]:
    number, at = varint.read(data, at)
    return varint.from_zigzag(number), at


def _memory(values: Any) -> tuple[memoryview, Sequence[int]]:
    """The memory of an array of bytes without nulls, and where its rows begin and end."""
    arrow: Any = require("pyarrow", "arrow")
    _, offsets, data = values.buffers()
    numbers = memoryview(offsets).cast("B").cast("q" if arrow.types.is_large_binary(values.type) else "i")
    return memoryview(data).cast("B"), numbers[values.offset : values.offset + len(values) + 1]


def _column(data: memoryview, places: Sequence[tuple[int, int] | None]) -> Any:
    """An array of the bytes at some places, null for None."""
    pieces = [data[place[0] : place[1]] for place in places if place is not None]
    sizes = [0 if place is None else place[1] - place[0] for place in places]
    return _binary(pieces, sizes, [place is not None for place in places] if len(pieces) < len(places) else None)


def _binary(pieces: Sequence[memoryview | bytes], sizes: Sequence[int], valid: Sequence[bool] | None = None) -> Any:
    """An array of bytes from its memory in pieces; its rows have these sizes."""
    arrow: Any = require("pyarrow", "arrow")
    data = b"".join(pieces)
    if len(data) > _MOST_BINARY_BYTES:
        raise _MisfitError
    offsets = struct.pack(f"<{len(sizes) + 1}i", 0, *accumulate(sizes))
    present = None if valid is None else arrow.array(valid).buffers()[1]
    buffers = [present, arrow.py_buffer(offsets), arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.binary(), len(sizes), buffers)
