"""Avro, on fastavro: with or without a schema registry.

``avro.framing`` says how a record names its schema: ``confluent`` (the registry's id in front; the default where a
registry is set), ``header`` (the same in a record header), ``single-object`` (Avro's own fingerprint), ``none`` (the
default otherwise), or ``container`` (an object container file per record, with the schema in it, as hop's ``avro``
messages are). See :mod:`serde_chain.schemas.schema_id` for the bytes of the first three.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from payload_stores.errors import drop_data
from payload_stores.options import Option, boolean, choice
from payload_stores.plugins import require
from serde_chain.base import Buffer, Deserializer, Serializer
from serde_chain.errors import ConfigError, DecodeError, EncodeError, SchemaRegistryError
from serde_chain.record import Context, get_header, set_header
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.schema_registry import RegisteredSchema, SchemaRegistry, frame_of, framing_of
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.container import FileWriter, only_record, parse_schema, read_file
from serde_chain.stages.avro.schema import READER_SCHEMA, SCHEMA, SCHEMA_FILE, AvroSchema, read_schema

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

__all__ = ["AvroDeserializer", "AvroReader", "AvroSerializer"]

CONFLUENT: Final = schema_registry.CONFLUENT
HEADER: Final = schema_registry.HEADER
SINGLE_OBJECT: Final = "single-object"
CONTAINER: Final = "container"
NONE: Final = schema_registry.NONE

FRAMING: Final = Option(
    "avro.framing",
    choice(CONFLUENT, HEADER, SINGLE_OBJECT, CONTAINER, NONE),
    None,
    doc="how a record names its schema: confluent (default with a registry), header, single-object, container, none",
)

# fastavro writes some values that do not fit: 1.5 as the int 1, an int beyond 32 bits. To look at every value takes
# about as long as to write it.
VALIDATE: Final = Option(
    "avro.validate", boolean, False, doc="check every value before it is written; otherwise fastavro takes some misfits"
)


# Schemas that come with records: how many are remembered, and of how many characters. Parsed, one takes 10 to 20 times
# as much memory as its text.
_MAX_SCHEMAS: Final = 100
_LONGEST_REMEMBERED: Final = 1 << 16
_TYPE: Final = "AVRO"


class _Writer(NamedTuple):
    """How records of one topic are written.

    Attributes:
        prefix: Bytes in front of the record.
        header: Header that names the schema, if it is not in front.
        schema: What fastavro writes with.
        source: Where that comes from.
    """

    prefix: bytes
    header: tuple[str, bytes] | None
    schema: Any
    source: AvroSchema


class AvroReader(NamedTuple):
    """How records of one writer's schema are read.

    Attributes:
        writer: What the record was written with.
        target: What it is read into; None where that is the same.
        bounds: The schema whose records must be looked over first; None for all ordinary ones.
        source: The schema of the records.
        registered: The id by which the registry knows it, if it does.
    """

    writer: Any
    target: Any | None
    bounds: AvroSchema | None
    source: AvroSchema
    registered: int | None = None


class AvroSerializer(Serializer[Any]):
    """Writes objects (dictionaries, lists, primitives) as Avro. Equal keys give equal bytes, maps included.

    Without ``avro.schema``, ``use.latest.version`` takes the subject's latest schema from the registry.
    """

    options = (SCHEMA, SCHEMA_FILE, VALIDATE, FRAMING, *schema_registry.OPTIONS)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schema and the registry's settings; the registry itself is asked at a topic's first record."""
        super().configure(config, is_key)
        self._validate = VALIDATE.read(config)
        self._write = require("fastavro", "avro").schemaless_writer
        self._schema = read_schema(config)
        self._framing, self._registry = framing_of(FRAMING, config, is_key=is_key)
        self._is_key = is_key
        self._writers: dict[object, _Writer] = {}
        self._any_topic: _Writer | None = None
        if self._schema is None and not (self._registry and self._registry.use_latest):
            raise ConfigError(
                "avro has no schema to write with",
                hint="Set avro.schema or avro.schema.file, or use.latest.version = true with a schema registry",
                key=SCHEMA.name,
            )
        if self._registry is None and self._schema is not None:
            prefix = schema_id.encode_single_object(self._schema.fingerprint) if self._framing == SINGLE_OBJECT else b""
            if self._framing == CONTAINER:
                self._write = FileWriter(self._schema, self._write)
                self.message_format, prefix = "avro", self._write.header
                self.varies = f"Choose another {FRAMING.name} for keys: files have random marks"
            self._any_topic = _Writer(prefix, None, self._schema.parsed, self._schema)
        if is_key:
            write = self._write
            self._write = lambda buffer, schema, data: write(buffer, schema, _in_order(data))

    def __call__(self, data: Any, ctx: Context | None = None, /) -> bytes | None:
        """Write one object."""
        if data is None:
            return None
        writer = self._any_topic or self._writers.get(None if ctx is None else ctx.topic) or self._writer_for(ctx)
        prefix, header, schema, source = writer
        buffer = io.BytesIO()
        if prefix:
            buffer.write(prefix)
        if source.unbounded:
            _check_depth(data)
        if self._validate and (invalid := _invalid(data, source)):
            raise invalid
        try:
            self._write(buffer, schema, data)
        except Exception as error:
            raise _misfit(data, source, error) from error
        if header is not None:
            set_header(ctx, *header)
        return buffer.getvalue()

    def close(self) -> None:
        """Close the registry client."""
        if getattr(self, "_registry", None) is not None:
            self._registry.close()  # type: ignore[union-attr]

    def _writer_for(self, ctx: Context | None) -> _Writer:
        """Ask the registry, once per topic."""
        registry = cast(SchemaRegistry, self._registry)  # without one, there is a writer for any topic
        subject = registry.subject(ctx, self._schema.name if self._schema is not None else "")
        found = registry.schema_for(subject, self._schema.text if self._schema else None, _TYPE)
        own = self._schema is not None and found.text == self._schema.text
        schema = self._schema if own and self._schema is not None else _parse_registered(found)
        prefix, header = frame_of(found, self._framing, is_key=self._is_key)
        writer = _Writer(prefix, header, schema.parsed, schema)
        self._writers[None if ctx is None else ctx.topic] = writer
        return writer


class AvroDeserializer(Deserializer[Any]):
    """Reads Avro into dictionaries, lists and primitives, with the schema that each record names.

    ``avro.reader.schema``, or ``avro.schema`` where a registry knows the writers' schemas, is what records of all
    schemas are resolved into (Avro specification, "Schema Resolution").

    A container file of one record gives that record, any other a list.
    """

    options = (SCHEMA, SCHEMA_FILE, READER_SCHEMA, FRAMING, *schema_registry.OPTIONS)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schemas and the registry's settings; the registry itself is asked at a schema's first record."""
        super().configure(config, is_key)
        self._read = require("fastavro", "avro").schemaless_reader
        schema, target = read_schema(config), read_schema(config, READER_SCHEMA)
        self._framing, self._registry = framing_of(FRAMING, config, is_key=is_key)
        self.header_name = schema_id.KEY_HEADER if is_key else schema_id.VALUE_HEADER
        self._readers: dict[object, AvroReader] = {}
        self._target = target
        self._own = schema
        self._only: AvroReader | None = None
        if self._framing == CONTAINER:
            self.message_format = "avro"
            return
        if self._registry is not None:
            self._target = target or schema
            self._locate: Callable[[Buffer, Context | None], tuple[AvroReader, int]] = self._locate_registered
            return
        if schema is None:
            raise ConfigError(
                "avro has no schema to read with",
                hint="Set avro.schema or avro.schema.file, or schema.registry.url",
                key=SCHEMA.name,
            )
        reader = self._reader(schema)
        if self._framing == SINGLE_OBJECT:
            self._readers[schema.fingerprint] = reader
            self._locate = self._locate_single_object
        else:
            self._only = reader

    @property
    def schema(self) -> AvroSchema | None:
        """The schema that all records are read into; None if each is read with its own."""
        return self._target or self._own

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Read one record."""
        if data is None:
            return None
        if self._only is not None:
            return self.read(data, self._only, 0)
        if self._framing == CONTAINER:
            return self._read_file(data)
        return self.read(data, *self._locate(data, ctx))

    def read(self, data: Buffer, reader: AvroReader, start: int) -> Any:
        """Read one record with a schema that is known.

        Args:
            data: The record with its framing.
            reader: How to read it.
            start: Where it begins.

        Raises:
            DecodeError: The bytes are not one record of the schema.
        """
        writer, target, bounds, _source, _registered = reader
        buffer = io.BytesIO(data)
        if start:
            buffer.seek(start)
        try:
            if bounds is not None:
                avro_bounds.check_bounds(bounds.parsed, bounds.named, data, start)
            value = self._read(buffer, writer, target)
        except Exception as error:
            raise _unreadable(error) from error
        if buffer.tell() != len(data):
            raise DecodeError(
                f"{len(data) - buffer.tell()} bytes follow the Avro record",
                hint="Was it written with another schema, or with a framing? See avro.framing",
            )
        return value

    def locate(self, data: Buffer, ctx: Context | None) -> tuple[AvroReader, int]:
        """How to read a record by the schema that it names, and where it begins behind its framing.

        Raises:
            DecodeError: It names none, or one that is not known.
            SchemaRegistryError: The registry is down, or does not know the schema.
        """
        return (self._only, 0) if self._only is not None else self._locate(data, ctx)

    @property
    def framing(self) -> str:
        """What ``avro.framing`` is in effect: how records name their schema."""
        return self._framing

    def batch_form(self) -> BatchForm:
        """The form of whole columns."""
        from serde_chain.stages.avro.arrow.batch import AvroBatch

        return AvroBatch(self)

    def close(self) -> None:
        """Close the registry client."""
        if getattr(self, "_registry", None) is not None:
            self._registry.close()  # type: ignore[union-attr]

    def open_file(self, data: Buffer) -> tuple[AvroReader, bytes]:
        """How to read the only record of a container file, and its bytes.

        Raises:
            DecodeError: It is no such file, or has several records or none.
        """
        try:
            return only_record(data, self._reader_of)
        except Exception as error:
            raise _unreadable(error) from error

    def _read_file(self, data: Buffer) -> Any:
        try:
            records = read_file(data, self._reader_of)
        except Exception as error:
            raise _unreadable(error) from error
        return records[0] if len(records) == 1 else records

    def _reader_of(self, text: str) -> AvroReader:
        """How records of a file's own schema are read; remembered, within bounds, since schemas come with records."""
        reader = self._readers.get(text)
        if reader is None:
            reader = self._reader(parse_schema(text))
            if len(text) <= _LONGEST_REMEMBERED and len(self._readers) < _MAX_SCHEMAS:
                self._readers[text] = reader
        return reader

    def _locate_registered(self, data: Buffer, ctx: Context | None) -> tuple[AvroReader, int]:
        """The reader for the schema that the header or the prefix names, and where the record begins."""
        in_header = get_header(ctx, self.header_name)
        try:
            key, size = schema_id.split_confluent(data if in_header is None else in_header)
        except ValueError as error:
            raise DecodeError(str(error), hint="Was it written without a schema registry? See avro.framing") from error
        reader = self._readers.get(key)
        if reader is None:
            found = cast(SchemaRegistry, self._registry).get(key, _TYPE)
            reader = self._reader(_parse_registered(found, named_by_record=True))._replace(
                registered=key if isinstance(key, int) else None
            )
            self._readers[key] = reader
        return reader, 0 if in_header is not None else size

    def _locate_single_object(self, data: Buffer, _ctx: Context | None) -> tuple[AvroReader, int]:
        try:
            fingerprint, size = schema_id.split_single_object(data)
        except ValueError as error:
            raise DecodeError(str(error), hint="Was it written with another avro.framing?") from error
        reader = self._readers.get(fingerprint)
        if reader is None:
            raise DecodeError(
                f"the record was written with a schema of fingerprint {fingerprint.hex()}, which is not configured",
                hint="Set avro.schema to the writer's schema, and avro.reader.schema to yours",
            )
        return reader, size

    def _reader(self, writer: AvroSchema) -> AvroReader:
        target = self._target
        same = target is None or target.parsed == writer.parsed
        return AvroReader(
            writer.readable,
            None if same or target is None else target.parsed,
            writer if writer.unbounded else None,
            writer,
        )


def _parse_registered(found: RegisteredSchema, *, named_by_record: bool = False) -> AvroSchema:
    try:
        return AvroSchema.parse(found.text, found.references)
    except ValueError as error:
        failure = SchemaRegistryError(f"schema {found.key} of the registry is {error}")
        failure.about_record = named_by_record  # the registry has answered, and other records name other schemas
        raise failure from error


def _check_depth(data: Any) -> None:
    try:
        avro_bounds.check_depth(data)
    except ValueError as error:
        raise EncodeError(f"the value does not fit in an Avro record: {error}") from error


def _misfit(data: Any, schema: AvroSchema, error: Exception) -> EncodeError:
    """Say which field does not fit. fastavro's validation is slow, but this record has failed already."""
    try:
        found = _invalid(data, schema)
    except Exception as stumble:  # noqa: BLE001, validation may stumble over what cannot be written
        error.add_note(f"validation failed too: {stumble!r}")
        found = None
    return found or EncodeError(f"the value does not fit the schema {schema.name}: {error}")


def _invalid(data: Any, schema: AvroSchema) -> EncodeError | None:
    """What fastavro's validation finds, by the path of the field; None for a value that fits."""
    validation: Any = require("fastavro.validation", "avro")
    try:
        validation.validate(data, schema.parsed, raise_errors=True)
    except validation.ValidationError as invalid:
        fields = list(dict.fromkeys(detail.field or schema.name for detail in invalid.errors))
        value, expected = invalid.errors[0].datum, [_type_name(detail.schema) for detail in invalid.errors]
        return EncodeError(
            f"the value does not fit the schema: {', '.join(fields)} is {_shown(value)}, "
            f"expected {' or '.join(dict.fromkeys(expected))}"
        )
    return None


def _type_name(schema: Any) -> str:
    if isinstance(schema, dict):
        name, kind = schema.get("name"), schema["type"]
        return f"{kind} {name}" if name else str(schema.get("logicalType", kind))
    return str(schema)


def _shown(value: Any) -> str:
    text = repr(value)
    return f"missing or {text}" if value is None else f"{text[:80]} ({type(value).__name__})"


def _unreadable(error: Exception) -> DecodeError:
    told = str(error)
    drop_data(error)
    if isinstance(error, EOFError):
        return DecodeError(f"the Avro record is truncated: {told or 'no bytes left'}")
    return DecodeError(
        f"the bytes are not a record of the schema: {type(error).__name__}: {told}",
        hint="Was it written with another schema?",
    )


def _in_order(data: Any) -> Any:
    """A key with its maps in one order, so that equal keys give equal bytes."""
    if isinstance(data, dict):
        return {name: _in_order(data[name]) for name in sorted(data)}
    return type(data)(map(_in_order, data)) if type(data) in {list, tuple} else data
