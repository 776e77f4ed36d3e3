"""Compiles schemas for the fast reader, and converts its arrays into those of the avro stage.

The schema is rewritten once more, after :mod:`serde_chain.stages.avro.resolution`, into a form that the reader reads
strictly and completely. Named types are expanded. A map becomes the array of its entries and an enum its number, which
have the same bytes. Types that take no bytes are omitted. A union is padded to three branches, since the reader does
not check the branch of a nullable type. Records of schemas refused by :class:`FastSchema` are read one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from payload_stores.plugins import require
from serde_chain.stages.avro.arrow import fast_reader, leaves
from serde_chain.stages.avro.arrow.leaves import PRIMITIVES, PROMOTIONS, Convert, Part, UnreadableSchemaError, named
from serde_chain.stages.avro.resolution import Definitions
from serde_chain.stages.avro.types import NAMED, decimal_of, kind

__all__ = ["FastSchema", "UnreadableSchemaError"]


class FastSchema:
    """Reads records of a schema pair with the fast reader.

    Args:
        writer: The writer's schema, as returned by ``rewritten``.
        reader: The reader's schema, likewise; None without resolution.
        type_: The ``pyarrow.DataType`` to read into, with timestamps in the written unit.

    Raises:
        UnreadableSchemaError: The fast reader cannot read the schema.
    """

    def __init__(self, writer: Any, reader: Any, type_: Any) -> None:
        self._arrow: Any = require("pyarrow", "arrow")
        part = _Compiler().part(writer, writer if reader is None else reader, type_)
        if part.schema is None:
            raise UnreadableSchemaError("the records take no bytes")
        self._part = part
        self._field = part.field(fast_reader.VALUE)

    def read(self, values: Any, start: int) -> Any:
        """Read records.

        Args:
            values: ``pyarrow`` array of records with their framing, without nulls.
            start: Length of the framing in bytes.

        Returns:
            ``pyarrow.Array`` of the type, for all records in order.

        Raises:
            NotReadError: A record is unreadable, at least for this reader.
        """
        try:
            return self._part.convert(fast_reader.read(self._part.schema, self._field, values, start))
        except (self._arrow.ArrowException, OverflowError) as error:
            raise fast_reader.NotReadError(str(error)) from error


class _Compiler:
    def __init__(self) -> None:
        self._arrow: Any = require("pyarrow", "arrow")
        self._compute: Any = require("pyarrow.compute", "arrow")
        # Of the writer and of the reader.
        self._named = [Definitions(), Definitions()]
        self._names = 0

    def part(self, writer: Any, reader: Any, type_: Any) -> Part:
        """Compile one type; both schemas are the same object without resolution."""
        writer, reader = self._named[0].of(writer), self._named[1].of(reader)
        which, other = kind(writer), kind(reader)
        if which == "union":
            return self._union(writer, reader if isinstance(reader, list) else [reader], type_)
        if which != other and (which, other) not in PROMOTIONS:
            raise UnreadableSchemaError(f"{which} is resolved into {other}")
        if which in NAMED and writer["name"] != reader["name"]:
            raise UnreadableSchemaError("two types of different names do not match")
        make: dict[str, Callable[[], Part]] = {
            "record": lambda: self._record(writer, reader, type_),
            "error": lambda: self._record(writer, reader, type_),
            "array": lambda: self._list(self.part(writer["items"], reader["items"], type_.value_type), type_),
            "map": lambda: self._map(writer["values"], reader["values"], type_),
            "enum": lambda: leaves.enum(writer, reader),
            "fixed": lambda: leaves.fixed(self._fresh(), writer, type_),
            "null": lambda: Part(None, None, lambda count: self._arrow.nulls(count, type_)),
        }
        return make[which]() if which in make else leaves.primitive(writer, which, other, type_)

    def _fresh(self) -> str:
        """A name unused by the schema's other types."""
        self._names += 1
        return f"t{self._names}"

    def _record(self, writer: Any, reader: Any, type_: Any) -> Part:
        targets = {field["name"]: field["type"] for field in reader["fields"]}
        places = {type_.field(at).name: at for at in range(type_.num_fields)}
        written: list[tuple[str, Part]] = []
        # For each field of the result: its index in the reader's struct (None: absent), and its conversion.
        plan: list[tuple[int | None, Convert]] = [
            (None, self._nothing(type_.field(at).type)) for at in range(type_.num_fields)
        ]
        for field in writer["fields"]:
            name = field["name"]
            part = (
                self.part(field["type"], targets[name], type_.field(places[name]).type)
                if name in targets
                else self._skipped(field["type"])
            )
            at = None
            if part.schema is not None:
                at = len(written)
                written.append((f"f{at}", part))
            if name in targets:
                plan[places[name]] = at, part.convert
        names = {field["name"] for field in writer["fields"]}
        for field in reader["fields"]:
            if field["name"] not in names:
                if "default" not in field:
                    raise UnreadableSchemaError(f"{field['name']} is missing and has no default")
                place = places[field["name"]]
                plan[place] = None, self._constant(field["default"], type_.field(place).type)
        final = leaves.final(type_)
        fields = [final.field(at) for at in range(final.num_fields)]

        def convert(array: Any) -> Any:
            count = array if isinstance(array, int) else len(array)
            children = [make(count if at is None else array.field(at)) for at, make in plan]
            if not children:
                return self._arrow.array([{}] * count, final)
            return self._arrow.StructArray.from_arrays(children, fields=fields)

        if not written:
            return Part(None, None, convert)
        name = self._fresh()
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": label, "type": part.schema} for label, part in written],
        }
        own = self._arrow.struct([part.field(label) for label, part in written])
        return Part(schema, own, convert, metadata=named(name))

    def _nothing(self, type_: Any) -> Convert:
        final = leaves.final(type_)
        return lambda count: self._arrow.nulls(count, final)

    def _constant(self, value: Any, type_: Any) -> Convert:
        one = self._arrow.array(self._arrow.array([value], type_).to_pylist(), leaves.final(type_))
        return lambda count: one.take(self._arrow.array([0] * count, self._arrow.int32()))

    def _skipped(self, schema: Any) -> Part:
        """A type that is read and discarded."""
        own, self._named[1] = self._named[1], self._named[0]
        part = self.part(schema, schema, self._any_type(schema))
        self._named[1] = own
        return part

    def _any_type(self, schema: Any) -> Any:
        """A type for reading a value only to skip it."""
        schema = self._named[0].of(schema)
        which = kind(schema)
        if which == "union":
            return self._any_of([branch for branch in schema if kind(self._named[0].of(branch)) != "null"])
        if which in {"record", "error"}:
            return self._arrow.struct([(field["name"], self._any_type(field["type"])) for field in schema["fields"]])
        if which == "array":
            return self._arrow.list_(self._any_type(schema["items"]))
        if which == "map":
            return self._arrow.map_(self._arrow.string(), self._any_type(schema["values"]))
        shape = decimal_of(schema)
        if shape is not None:
            if shape[0] > leaves.MAX_PRECISION:
                raise UnreadableSchemaError(f"a decimal of {shape[0]} digits")
            return self._arrow.decimal128(*shape)
        return {"null": self._arrow.null(), "enum": self._arrow.string(), "fixed": self._arrow.binary()}.get(
            which
        ) or getattr(self._arrow, PRIMITIVES[which])()

    def _any_of(self, union: list[Any]) -> Any:
        types = [self._any_type(branch) for branch in union]
        if not types:
            return self._arrow.null()
        if len(types) > 1 and all(map(self._arrow.types.is_struct, types)):
            # One single-field record per branch.
            return self._arrow.struct([type_.field(at) for type_ in types for at in range(type_.num_fields)])
        return next((type_ for type_ in types if str(type_) in {"int64", "double"}), types[0])

    def _list(self, item: Part, type_: Any) -> Part:
        if item.schema is None:
            raise UnreadableSchemaError("an array of items that take no bytes")
        own, final = self._arrow.list_(item.field("item")), leaves.final(type_)

        def convert(array: Any) -> Any:
            return self._of_parts(final, array, item.convert(array.values))

        return Part({"type": "array", "items": item.schema}, own, convert)

    def _of_parts(self, type_: Any, array: Any, child: Any) -> Any:
        """A list or map with an array's offsets, and other children."""
        if array.offset:
            raise fast_reader.NotReadError("a list does not begin where its values begin")
        return self._arrow.Array.from_buffers(type_, len(array), array.buffers()[:2], children=[child])

    def _map(self, writer: Any, reader: Any, type_: Any) -> Part:
        value = self.part(writer, reader, type_.item_type)
        name, parts = self._fresh(), [{"name": "f0", "type": "string"}]
        fields = [self._arrow.field("f0", self._arrow.string(), nullable=False)]
        if value.schema is not None:
            parts.append({"name": "f1", "type": value.schema})
            fields.append(value.field("f1"))
        entry = {"type": "record", "name": name, "fields": parts}
        item = Part(entry, self._arrow.struct(fields), lambda array: array, metadata=named(name))
        own = self._arrow.list_(item.field("item"))
        final = leaves.final(type_)
        targets = [final.key_field, final.item_field]

        def convert(array: Any) -> Any:
            entries = array.values
            keys = entries.field(0)
            self._check_keys(array, keys)
            items = value.convert(len(entries) if value.schema is None else entries.field(1))
            pairs = self._arrow.StructArray.from_arrays([keys, items], fields=targets)
            return self._of_parts(final, array, pairs)

        return Part({"type": "array", "items": entry}, own, convert)

    def _check_keys(self, array: Any, keys: Any) -> None:
        """Refuse a duplicate key in a map: the last value counts, which the record path handles."""
        compute = self._compute
        encoded = keys.dictionary_encode()
        rows = compute.cast(compute.list_parent_indices(array), self._arrow.int64())
        pairs = compute.add(compute.multiply(rows, len(encoded.dictionary)), encoded.indices)
        if compute.count_distinct(pairs).as_py() != len(keys):
            raise fast_reader.NotReadError("a map has a key twice")

    def _union(self, writer: list[Any], readers: list[Any], type_: Any) -> Part:
        branches: list[Any] = []
        fields: list[Any] = []
        converts: list[Convert | None] = []
        for branch in writer:
            definition = self._named[0].of(branch)
            if kind(definition) == "null":
                if not any(kind(self._named[1].of(reader)) == "null" for reader in readers):
                    raise UnreadableSchemaError("null is resolved into a union without it")
                branches.append("null")
                fields.append(fast_reader.null_field())
                converts.append(None)
                continue
            part = self.part(definition, self._match(definition, readers), type_)
            if part.schema is None:
                raise UnreadableSchemaError("a branch of a union that takes no bytes")
            # Wrapped, so that branches differ by name and never by type.
            name = self._fresh()
            branches.append({"type": "record", "name": name, "fields": [{"name": "f0", "type": part.schema}]})
            inner = self._arrow.struct([part.field("f0")])
            fields.append(self._arrow.field(name, inner, nullable=False, metadata=named(name)))
            converts.append(part.convert)
        used = len(branches)
        for filler in ("bytes", "boolean", "int")[: max(3 - used, 0)]:
            branches.append(filler)
            fields.append(self._arrow.field(filler, getattr(self._arrow, PRIMITIVES[filler])(), nullable=False))
        own = self._arrow.dense_union(fields)
        return Part(branches, own, self._joiner(converts, used, leaves.final(type_)), nullable=True)

    def _match(self, branch: Any, readers: list[Any]) -> Any:
        which = kind(branch)
        matching = []
        for reader in readers:
            definition = self._named[1].of(reader)
            if kind(definition) == which and (which not in NAMED or definition["name"] == branch["name"]):
                matching.append(reader)
        if not matching:
            matching = [reader for reader in readers if (which, kind(self._named[1].of(reader))) in PROMOTIONS]
        if len(matching) != 1:
            raise UnreadableSchemaError(f"a branch {which} of a union with {len(matching)} branches for it")
        return matching[0]

    def _joiner(self, converts: list[Convert | None], used: int, type_: Any) -> Convert:
        """From a union to an array of one type."""
        compute = self._compute

        def convert(array: Any) -> Any:
            codes, offsets = array.type_codes, array.offsets
            if len(array) and compute.max(codes).as_py() >= used:
                raise fast_reader.NotReadError("a union does not have the branch")
            parts: list[Any] = []
            bases: list[int | None] = []
            size = 0
            for at, make in enumerate(converts):
                if make is None:
                    bases.append(None)
                    continue
                bases.append(size)
                parts.append(make(array.field(at).field(0)))
                size += len(parts[-1])
            if not size:
                return self._arrow.nulls(len(array), type_)
            whole = parts[0] if len(parts) == 1 else self._arrow.concat_arrays(parts)
            if size == len(array) and len(parts) == 1:
                return whole
            base = self._arrow.array(bases, self._arrow.int32()).take(codes)
            return whole.take(compute.add(base, offsets))

        return convert
