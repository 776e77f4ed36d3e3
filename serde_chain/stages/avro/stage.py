"""Avro, on fastavro: with or without a schema registry.

``avro.framing`` says how a record names its schema: ``confluent``, ``glue`` or ``apicurio`` (the registry's id in
front; the default where a registry of the type is set), ``header`` (the same in a record header), ``single-object``
(Avro's own fingerprint), ``none`` (the default otherwise), ``container`` (an object container file per record, with the
schema in it, as hop's ``avro`` messages are), or ``record-key`` (the record's key is the schema as JSON text, as in
Fink's topics). See :mod:`serde_chain.schemas.schema_id` for the bytes of the first five.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from payload_stores.errors import MissingDependencyError, drop_data
from payload_stores.options import Option, boolean, choice
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.base import Buffer, Deserializer, FieldType, MovesFields, Serializer
from serde_chain.codecs import MAX_OUTPUT
from serde_chain.errors import (
    BytesExpectedError,
    ConfigError,
    DecodeError,
    EncodeError,
    SchemaRegistryError,
    shape_of,
    without_data,
)
from serde_chain.models import check_neighbours, read_model
from serde_chain.record import KEY, VALUE, Context, key_of
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.framing import NONE, Framing, SchemaFrame
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.part_budget import MAX_PARTS, Budget
from serde_chain.schemas.registry import RegisteredSchema, SchemaRegistry
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_references import REFERENCES
from serde_chain.schemas.schema_registry import (
    FRAMINGS,
    PerSchema,
    PerTopic,
    StageSchema,
    UsesRegistry,
    framing_of,
    schema_to_write,
)
from serde_chain.stages.avro.container import FileWriter, Write, framing_advice, only_record, parse_schema, read_file
from serde_chain.stages.avro.decimal import PRIVATE, readable
from serde_chain.stages.avro.decimal import misfit as misfit_of_decimal
from serde_chain.stages.avro.fields import field_type
from serde_chain.stages.avro.hints import as_pairs
from serde_chain.stages.avro.models import TYPE, AvroModel
from serde_chain.stages.avro.native import NATIVE, Native, native
from serde_chain.stages.avro.parsing import Role
from serde_chain.stages.avro.reader import (
    CONTAINER,
    RECORD_KEY,
    SINGLE_OBJECT,
    AvroReader,
    is_raw,
    unreadable,
)
from serde_chain.stages.avro.resolution import SAME_SCALE, resolved
from serde_chain.stages.avro.schema import (
    READER_SCHEMA,
    SCHEMA,
    SCHEMA_FILE,
    AvroSchema,
    check_own,
    read_schema,
    unparsed_schema,
)
from serde_chain.transfer import Transfer, finish
from serde_chain.wire import varint

if TYPE_CHECKING:
    from serde_chain.stages.avro.arrow.batch import AvroBatch
    from serde_chain.stages.avro.arrow.native_writer import NativeWriter

FRAMING: Final = Option(
    "avro.framing",
    choice(*FRAMINGS, SINGLE_OBJECT, CONTAINER, RECORD_KEY, NONE),
    None,
    doc="how a record names its schema: confluent, glue, apicurio (default with such a registry), header, "
    "single-object, container, record-key, none",
)

_STRICT: Final = "strict"
_STRICT_BUT_DEFAULTS: Final = "strict-allow-default"


def _validation(value: object) -> str:
    strict = str(value).strip().lower()
    if strict in {_STRICT, _STRICT_BUT_DEFAULTS}:
        return strict
    try:
        return str(boolean(value)).lower()
    except ValueError:
        raise ValueError(f"expected true, false, {_STRICT} or {_STRICT_BUT_DEFAULTS}") from None


# fastavro writes some values that do not match the schema: 1.5 as the int 1, an int beyond 32 bits. Checking every
# value costs about as much as writing it.
VALIDATE: Final = Option(
    "avro.validate",
    _validation,
    "false",
    doc="check every value before writing it; otherwise fastavro accepts some that do not match the schema: true, "
    "strict (with all fields of the schema and no others), strict-allow-default (fields with a default may be "
    "missing), or false",
)


ARROW_READER: Final = Option(
    "avro.arrow.reader",
    choice("auto", "record"),
    "auto",
    doc="how batches are read into Arrow: auto (by the compiled part, if it is used), or record (all record by record)",
)

# Cache of schemas that come with records: number of schemas and of characters. A parsed schema takes 10 to 20 times
# the memory of its text. Of larger ones, such as those of surveys, the latest is kept.
_MAX_SCHEMAS: Final = 100
_LONGEST_REMEMBERED: Final = 1 << 16
_LONGEST_KEPT: Final = 1 << 20
_TYPE: Final = "AVRO"
_MAX_DECODERS: Final = 10_000
_MAX_COLUMN_WRITERS: Final = 1000
_MAX_SHOWN: Final = 5  # fields that do not match
_OTHER_SCHEMA: Final = "Set avro.schema to the writer's schema, and avro.reader.schema to yours"
_OLDER_CLASS: Final = (
    "Was it written by an older version of the class? A registry, or avro.framing = container, keeps schemas"
)


class _Writer(NamedTuple):
    """The way to write records of one topic.

    Attributes:
        encode: Writes a record, including its prefix if that is the whole frame.
        schema: The schema.
        frame: The bytes and headers that name the schema.
        is_prefixed: Whether the prefix is the whole frame.
        is_raw: Whether a record is its bytes, without Avro's length in front.
    """

    encode: Callable[[Any], bytes]
    schema: AvroSchema
    frame: SchemaFrame
    is_prefixed: bool
    is_raw: bool

    @property
    def way(self) -> AvroWay | None:
        """The way for others; None if a record is more than a prefix and Avro's binary encoding."""
        return AvroWay(self.schema, self.frame.prefix) if self.is_prefixed and not self.is_raw else None


class AvroWay(NamedTuple):
    """The way for others to write a record: a prefix, and the record in Avro's binary encoding.

    Attributes:
        schema: The schema.
        prefix: The bytes in front of a record.
    """

    schema: AvroSchema
    prefix: bytes


class AvroSerializer(UsesRegistry, Serializer[Any]):
    """Writes objects (dictionaries, lists, primitives) as Avro. Equal keys give equal bytes, maps included.

    Without ``avro.schema``, ``use.latest.version`` uses the subject's latest schema in the registry.
    """

    options = (SCHEMA, SCHEMA_FILE, TYPE, VALIDATE, FRAMING, NATIVE, *schema_registry.OPTIONS)
    plain: Callable[[Any], bytes] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schema and the registry's settings; the first record of a topic queries the registry."""
        super().configure(config, is_key)
        self._validate = VALIDATE.read(config)
        self._write = _writing(self._validate)
        self._native = native(config)
        self._model = _model(config, SCHEMA, SCHEMA_FILE)
        self._framing, self._frames, self._registry = framing_of(FRAMING, config, is_key=is_key)
        self._references = REFERENCES.read(config) if self._registry is not None else ()
        self._key = SCHEMA.name if SCHEMA_FILE.read(config) is None else SCHEMA_FILE.name
        self._schema: AvroSchema | None = None
        # With references, the registry defines names that the text only uses.
        self._text = unparsed_schema(config) if self._references and self._model is None else None
        if self._text is None:
            self._schema = read_schema(config) if self._model is None else _schema_of(self._model)
            self._text = None if self._schema is None else self._schema.text
        self._record_name = _record_name(self._text)
        if self._registry is not None and self._text is not None:
            self._registry.check_name(self._record_name)
        self._is_key = is_key
        _refuse_keys(self._framing, is_key=is_key)
        # A record independent of the topic needs no context.
        self.plain = None
        latest_s = None if self._registry is None else self._registry.latest_s
        self._writers = PerTopic(self._ask_for_writer, latest_s=latest_s)
        self._known = self._writers.known
        # By topic, for as long as its records are written in the same way.
        self._column_writers: dict[str | None, tuple[AvroWay, NativeWriter | None]] = {}
        if self._text is None and not (self._registry and self._registry.writes_registered):
            raise ConfigError(
                "avro has no schema for writing",
                hint="Set avro.schema, avro.schema.file or avro.type; or use.latest.version = true, with a registry",
                key=SCHEMA.name,
            )
        if self._registry is None and self._schema is not None:
            encode = self._encoder_without_registry(self._schema)
            if self._framing == RECORD_KEY:
                # The key decides on the partition, so the writer of the record sets it; the value must match it.
                self._keyed = encode
                self._known_keys = {self._schema.text.encode()}
            else:
                self.plain = encode

    def __call__(self, data: Any, ctx: Context | None = None, /) -> bytes | None:
        """Write one object."""
        return None if data is None else cast("bytes", finish(self.begin(data, ctx)))

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Write one object; a transfer queries the registry at a topic's first record."""
        if self.plain is not None:
            return self.plain(data)
        if self._framing == RECORD_KEY:
            return self._write_keyed(data, ctx)
        writer = self._known.get(None if ctx is None else ctx.topic)
        if writer is None:
            return self._writers.transfer(ctx, lambda writer: self._write_by(writer, data, ctx))
        return writer.encode(data) if writer.is_prefixed else self._write_by(writer, data, ctx)

    def _write_keyed(self, data: Any, ctx: Context | None) -> bytes:
        key = key_of(ctx)
        if key not in self._known_keys:
            self._check_record_key(key)
        return self._keyed(data)

    def _check_record_key(self, key: bytes | None) -> None:
        schema = cast(AvroSchema, self._schema)
        try:
            same = parse_schema(str(key or b"", "utf-8")).parsed == schema.parsed
        except ValueError:
            same = False
        if not same:
            raise EncodeError(
                f"the record's key is not the schema {schema.name}",
                hint=f"With {FRAMING.name} = {RECORD_KEY}, produce records with the text of {SCHEMA.name} as key, and "
                "key.serializer = string",
            )
        if key is not None and len(self._known_keys) < _MAX_SCHEMAS:
            self._known_keys.add(key)

    def _write_by(self, writer: _Writer, data: Any, ctx: Context | None) -> bytes:
        encoded = writer.encode(data)
        return encoded if writer.is_prefixed else writer.frame.put(encoded, ctx)

    def _encoder_without_registry(self, schema: AvroSchema) -> Callable[[Any], bytes]:
        if self._framing == CONTAINER:
            write = FileWriter(schema, self._write)
            self.message_format = "avro"
            self.varies = f"Choose another {FRAMING.name} for keys: files contain random sync markers"
            return self._encoder(schema, write.header, write)
        prefix = schema_id.encode_single_object(schema.fingerprint) if self._framing == SINGLE_OBJECT else b""
        return self._encoder(schema, prefix, self._write)

    def _encoder(self, schema: AvroSchema, prefix: bytes, write: Write) -> Callable[[Any], bytes]:
        encode = self._encoder_of_dictionaries(schema, prefix, write)
        if self._model is None:
            return encode
        convert = self._model.write
        return lambda data: encode(convert(data))

    def _encoder_of_dictionaries(self, schema: AvroSchema, prefix: bytes, write: Write) -> Callable[[Any], bytes]:
        new_buffer, parsed, is_file = io.BytesIO, schema.writable, isinstance(write, FileWriter)
        checks: list[Callable[[Any], None]] = [_check_depth] if schema.unbounded else []
        if self._validate != "false":
            checks.append(partial(_validate, schema))
        if self._is_key:
            unordered = write

            def write(buffer: io.BytesIO, schema: Any, data: Any) -> None:
                unordered(buffer, schema, _in_order(data))

        def encode_once(data: Any) -> bytes:
            if checks:
                for check in checks:
                    check(data)
            buffer = new_buffer()
            if prefix:
                buffer.write(prefix)
            try:
                write(buffer, parsed, data)
            except Exception as error:  # noqa: BLE001  replaced: its message may quote the value
                let_through(error)
                raise _misfit(data, schema, error) from None
            return buffer.getvalue()

        encode = _with_hints(encode_once, schema)
        is_strict = self._validate in {_STRICT, _STRICT_BUT_DEFAULTS}
        if self._native is None or is_file or schema.unbounded or is_strict:
            return encode
        # What is taken passes the other checks too.
        return self._native.encoder(schema.writable, encode, prefix, ordered=self._is_key)

    def _ask_for_writer(self, ctx: Context | None) -> _Writer:
        registry = cast(SchemaRegistry, self._registry)  # always set if records depend on the topic
        subject = registry.subject(ctx, self._record_name)
        check = partial(check_own, self._key)
        registered = schema_to_write(registry, subject, self._text, _TYPE, self._references, check=check)
        own = self._schema is not None and registered.text == self._schema.text
        schema = self._schema if own and self._schema is not None else parse_registered(registered)
        frame = cast(Framing, self._frames).frame(registered)
        whole, raw = frame.is_prefix, is_raw(schema, self._frames)
        prefix = frame.prefix if whole else b""
        encode = _as_raw(self._encoder(schema, b"", self._write), prefix) if raw else None
        return _Writer(encode or self._encoder(schema, prefix, self._write), schema, frame, whole, raw)

    def bind(self, before: object | None, after: object | None) -> Self:
        """Check that a neighbour that moves fields finds them in the dictionaries of ``avro.type``."""
        _check_fields(self._model, before, after)
        return self

    def model(self) -> AvroModel | None:
        """See :class:`~serde_chain.base.SupportsModels`; what it writes may be dictionaries."""
        return self._model

    holds_objects = True

    def field_type(self) -> FieldType | None:
        """The type of values; None if the registry determines it. See :class:`~serde_chain.base.DescribesFields`."""
        return None if self.value_schema is None else field_type(self.value_schema.parsed, self.value_schema.named)

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        if self._schema is None or (self._registry is not None and self._registry.writes_registered):
            return StageSchema(_TYPE, None, None, self._registry)
        return StageSchema(_TYPE, self._schema.name, self._schema.text, self._registry)

    @property
    def value_schema(self) -> AvroSchema | None:
        """The schema of each value; None if the registry determines it."""
        return None if self._registry is not None and self._registry.writes_registered else self._schema

    @property
    def depends_on_topic(self) -> bool:
        """Whether records of different topics may be written differently."""
        return self._registry is not None

    def column_writer(self, ctx: Context | None) -> NativeWriter | None:
        """Writes columns without Python objects, by the compiled part. See :class:`serde_chain.arrow.SupportsColumns`.

        Args:
            ctx: The record around each value; only its topic counts.

        Returns:
            The writer; None without the compiled part, if it does not take the schema, or if a record is more than a
            prefix and Avro's binary encoding.

        Raises:
            SchemaRegistryError: The registry must be queried, and does not answer.
            MissingDependencyError: pyarrow is not installed.
        """
        way = None if self._native is None else self.way_of(ctx)
        if self._native is None or way is None or way.schema.unbounded:
            return None
        topic = None if ctx is None or self._registry is None else ctx.topic
        of, writer = self._column_writers.get(topic, (None, None))
        if of is None or of.schema is not way.schema or of.prefix != way.prefix:
            if len(self._column_writers) >= _MAX_COLUMN_WRITERS:
                self._column_writers.clear()
            self._column_writers[topic] = way, (writer := self._compiled(self._native, way))
        return writer

    def _compiled(self, native_: Native, way: AvroWay) -> NativeWriter | None:
        from serde_chain.stages.avro.arrow.native_writer import NativeWriter

        try:
            return NativeWriter(native_, way.schema, way.prefix, ordered=self._is_key)
        except ValueError:
            return None

    def row_converter(self, column: Any, ctx: Context | None) -> Callable[[Any], Any] | None:
        """Names the branches of unions, which are structs of members. See :class:`serde_chain.arrow.SupportsColumns`.

        Raises:
            EncodeError: A number does not fit the schema's type; fastavro would cut it.
            SchemaRegistryError: The registry must be queried, and does not answer.
        """
        from serde_chain.stages.avro.arrow.rows import branch_namer, check_numbers

        schema = self._schema if self._registry is None else self._writers.of(ctx).schema
        if schema is None:
            return None
        check_numbers(schema, column, KEY if self._is_key else VALUE)
        return branch_namer(schema, column.type)

    def way_of(self, ctx: Context | None) -> AvroWay | None:
        """The way to write records for other writers, such as Spark's ``to_avro``.

        Args:
            ctx: The record around it; only its topic counts.

        Returns:
            The way; None if a record is more than a prefix and Avro's binary encoding, or if values are checked first.

        Raises:
            SchemaRegistryError: The registry must be queried, and does not answer.
        """
        if self._validate != "false" or self._framing in {CONTAINER, RECORD_KEY}:
            return None
        if self._registry is None and self._schema is not None:
            single = self._framing == SINGLE_OBJECT
            prefix = schema_id.encode_single_object(self._schema.fingerprint) if single else b""
            return AvroWay(self._schema, prefix)
        return self._writers.of(ctx).way


class AvroDeserializer(UsesRegistry, Deserializer[Any]):
    """Reads Avro into dictionaries, lists and primitives, with the schema named by each record.

    Records of all schemas are resolved (Avro specification, "Schema Resolution") into ``avro.reader.schema``; if a
    registry knows the writers' schemas, ``avro.schema`` has the same effect.

    A container file of one record becomes that record, any other file a list.
    """

    options = (
        *(SCHEMA, SCHEMA_FILE, TYPE, READER_SCHEMA, FRAMING, NATIVE, ARROW_READER, MAX_PARTS, MAX_OUTPUT),
        *schema_registry.OPTIONS,
    )
    removed_headers = ()
    plain: Callable[[Any], Any] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schemas and the registry's settings; the first record of a schema queries the registry."""
        super().configure(config, is_key)
        self._model = _model(config, SCHEMA, SCHEMA_FILE, READER_SCHEMA)
        if self._model is None:
            schema, target = read_schema(config), read_schema(config, READER_SCHEMA)
        else:
            schema = target = _schema_of(self._model)
        self._makes = self._model  # the class of the results; None for dictionaries
        self._framing, self._frames, self._registry = framing_of(FRAMING, config, is_key=is_key)
        self._arrow_reader = ARROW_READER.read(config)
        self._budget = Budget.read(config)
        self._native = native(config)
        self._target = target
        self._own = schema
        # A schema to read into takes precedence over the registry's latest, which takes it over the writer's.
        self._is_own_target = target is not None
        _refuse_keys(self._framing, is_key=is_key)
        self._arrange()

    def _arrange(self) -> None:
        """Choose the way to read; readers are made for it."""
        self._readers: dict[object, AvroReader] = {}
        self._registered: PerSchema[SchemaKey, AvroReader] = PerSchema(self._registry, self._ask_for_reader)
        self._latest: dict[str, AvroSchema] = {}  # parsed once, since batches compare schemas by identity
        self._decoders: dict[Any, Callable[..., Any]] = {}  # by the records' prefixes
        self._large: tuple[str, AvroReader] | None = None
        self._locate: Callable[[Buffer, Context | None], tuple[AvroReader, int]]
        schema, target = self._own, self._target
        if self._framing == CONTAINER:
            self.message_format = "avro"
            self.plain = self._read_file
            return
        if self._framing == RECORD_KEY:
            self._target = target or schema
            self._locate = self._locate_by_key
            self.plain = None
            return
        if self._registry is not None:
            self._target = target if self._registry.reads_latest else target or schema
            self._locate = self._locate_registered
            decoders, size = self._decoders, cast(Framing, self._frames).first_bytes
            # Raises KeyError for unseen ids; views and arrays, which are not hashable, take the slower path too.
            self.plain = None if self.is_scoped else lambda data: decoders[data[:size]](data, size)
            return
        if schema is None:
            raise ConfigError(
                "avro has no schema for reading",
                hint="Set avro.schema, avro.schema.file or avro.type, or schema.registry.url; or, for container files, "
                f"which have their own, {FRAMING.name} = {CONTAINER}",
                key=SCHEMA.name,
            )
        self._check_scales(schema)
        reader = self._reader(schema)
        if self._framing == SINGLE_OBJECT:
            self._readers[schema.fingerprint] = reader
            self._locate = self._locate_single_object
            self.plain = self._read_single_object
        else:
            self._locate = lambda _data, _ctx: (reader, 0)
            self.plain = reader.decode

    def _check_scales(self, schema: AvroSchema) -> None:
        """Refuse two schemas of one's own that would move a decimal's point."""
        target = self._target
        problem = None if target is None or self._model is not None else resolved(schema, target).rescaled
        if problem is not None:
            raise ConfigError(
                f"{SCHEMA.name} does not resolve into {READER_SCHEMA.name}: {problem}",
                hint=SAME_SCALE,
                key=READER_SCHEMA.name,
            )

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        return StageSchema(_TYPE, None if self.schema is None else self.schema.name, None, self._registry)

    @property
    def schema(self) -> AvroSchema | None:
        """The schema to read all records into; None if each is read with its own, or with the registry's latest."""
        if self._registry is not None and self._registry.reads_latest:
            return self._target
        return self._target or self._own

    def bind(self, before: object | None, after: object | None) -> Self:
        """Return dictionaries to a stage that moves fields, with ``avro.type``; that stage makes the objects."""
        _check_fields(self._model, before, after)
        if self._model is None or not isinstance(after, MovesFields):
            return self
        changed = self._with(_makes=None)
        changed._arrange()  # noqa: SLF001, of this class
        return changed

    def model(self) -> AvroModel | None:
        """See :class:`~serde_chain.base.SupportsModels`."""
        return self._model

    holds_objects = True

    def field_type(self) -> FieldType | None:
        """The type of values; None if each record names its own. See :class:`~serde_chain.base.DescribesFields`."""
        schema = None if self._framing == CONTAINER and self._target is None else self.schema
        return None if schema is None else field_type(schema.parsed, schema.named)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Read one record."""
        return None if data is None else finish(self.begin(data, ctx))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Read one record; a transfer queries the registry for a schema that is not known yet."""
        if self._registry is None:
            if self.plain is not None:
                return self.plain(data)
            keyed, start = self._locate(data, ctx)
            return keyed.decode(data, start)
        data = self.unpacked(data)
        key, start = self._named(data, ctx)
        reader = self._registered.known(key, ctx)
        if reader is None:
            return self._registered.transfer(key, ctx, lambda reader: reader.decode(data, start))
        return reader.decode(data, start)

    def question(self, data: Buffer, ctx: Context | None) -> Transfer[AvroReader] | None:
        """The query required before a record can be read; None if its schema is known, or its name malformed.

        Args:
            data: The record; its prefix suffices.
            ctx: The record around it.
        """
        if self._registry is None:
            return None
        try:
            key, _ = self._named(data, ctx)
        except DecodeError:
            return None
        if self._registered.known(key, ctx) is not None:
            return None
        return self._registered.transfer(key, ctx, lambda reader: reader)

    @property
    def is_scoped(self) -> bool:
        """Whether records with one schema id may be read differently in different topics."""
        return self._registered.is_scoped

    def locate(self, data: Buffer, ctx: Context | None) -> tuple[AvroReader, int]:
        """The way to read a record by the schema that it names, and the start of its body.

        Raises:
            DecodeError: The record names no schema, or an unknown one.
            SchemaRegistryError: The registry is down, or does not know the schema.
        """
        return self._locate(data, ctx)

    @property
    def framing(self) -> str:
        """The effective framing: how records name their schema."""
        return self._framing

    @property
    def registry_framing(self) -> Framing | None:
        """The registry's framing; None for others."""
        return self._frames

    def unpacked(self, data: Buffer) -> Buffer:
        """The record without compression that belongs to its framing.

        Raises:
            DecodeError: The compressed data is corrupt, or too large.
        """
        return data if self._frames is None else self._frames.unpacked(data)

    def batch_form(self) -> AvroBatch:
        """The form for whole columns."""
        from serde_chain.stages.avro.arrow.batch import AvroBatch

        return AvroBatch(self, native=self._native if self._arrow_reader == "auto" else None)

    def open_file(self, data: Buffer) -> tuple[AvroReader, bytes]:
        """The way to read the only record of a container file, and its bytes.

        Raises:
            DecodeError: The data is not a container file, or does not contain exactly one record.
        """
        try:
            return only_record(data, self._reader_of)
        except MissingDependencyError:
            raise  # of a codec
        except Exception as error:
            raise unreadable(error, data, is_file=True) from error

    def _read_file(self, data: Buffer) -> Any:
        try:
            records = read_file(data, self._reader_of)
        except (DecodeError, MissingDependencyError):
            raise
        except Exception as error:
            raise unreadable(error, data, is_file=True) from error
        if self._makes is not None:
            records = list(map(self._makes.read, records))
        return records[0] if len(records) == 1 else records

    def _reader_of(self, text: str) -> AvroReader:
        """The reader for a record's own schema; cached within bounds, since schemas come with records."""
        large = self._large  # once: other threads replace it
        if large is not None and large[0] == text:
            return large[1]
        reader = self._readers.get(text)
        if reader is None:
            reader = self._reader(parse_schema(text))
            if _LONGEST_REMEMBERED < len(text) <= _LONGEST_KEPT:
                self._large = (text, reader)
            elif len(text) <= _LONGEST_REMEMBERED and len(self._readers) < _MAX_SCHEMAS:
                self._readers[text] = reader
        return reader

    def _locate_by_key(self, _data: Buffer, ctx: Context | None) -> tuple[AvroReader, int]:
        """The reader for the schema in the record's key."""
        key = key_of(ctx)
        if key is None:
            raise DecodeError(
                "the record has no key, which would be its schema",
                hint=f"Pass the record's key; or set another {FRAMING.name}",
            )
        try:
            return self._reader_of(str(key, "utf-8")), 0
        except ValueError as error:
            message = str(error)
            drop_data(error)
            raise DecodeError(
                f"the record's key is not its schema: {message[:300]}",
                hint=f"Set {FRAMING.name} as the topic's writer does",
            ) from error

    def _locate_registered(self, data: Buffer, ctx: Context | None) -> tuple[AvroReader, int]:
        """The reader for the schema in the header or prefix, and the start of the record."""
        key, start = self._named(data, ctx)
        return self._registered.get(key, ctx), start

    def _named(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, int]:
        """The schema in the header or prefix, and the start of the record."""
        framing = cast(Framing, self._frames)
        try:
            return framing.split(data, ctx)
        except ValueError as error:
            hint = framing_advice(data) or framing.advice(data, FRAMING.name)
            raise DecodeError(str(error), hint=hint) from error

    def _ask_for_reader(self, key: SchemaKey, ctx: Context | None) -> AvroReader:
        registry = cast(SchemaRegistry, self._registry)
        registered = registry.get(key, _TYPE, registry.reading_subject(ctx))
        schema = parse_registered(registered, named_by_record=True)
        reader = self._reader(schema, registered=registered.order, latest=self._latest_for(ctx, schema))
        if is_raw(schema, self._frames):
            reader = replace(reader, is_raw=True)
        prefix = cast(Framing, self._frames).prefix_of(key)
        if prefix is not None and not self.is_scoped:
            if len(self._decoders) >= _MAX_DECODERS:
                self._decoders.clear()  # readers recreate them
            self._decoders[prefix] = reader.decode
        return reader

    def _latest_for(self, ctx: Context | None, written: AvroSchema) -> AvroSchema | None:
        """The registered schema to read into; None if readers do not use it, or have one of their own."""
        registry = cast(SchemaRegistry, self._registry)
        if not registry.reads_latest or self._is_own_target:
            return None
        registered = registry.latest_for(ctx, record_name(written), _TYPE)
        if registered is None:
            return None
        text = "\n".join((*registered.references, registered.text))
        schema = self._latest.get(text)
        if schema is None:
            if len(self._latest) >= _MAX_SCHEMAS:
                self._latest.clear()
            schema = self._latest[text] = parse_registered(registered)
        return schema

    def _read_single_object(self, data: Buffer) -> Any:
        reader, start = self._locate_single_object(data, None)
        return reader.decode(data, start)

    def _locate_single_object(self, data: Buffer, _ctx: Context | None) -> tuple[AvroReader, int]:
        try:
            fingerprint, size = schema_id.split_single_object(data)
        except ValueError as error:
            hint = framing_advice(data) or "Was it written with another avro.framing?"
            raise DecodeError(str(error), hint=hint) from error
        reader = self._readers.get(fingerprint)
        if reader is None:
            raise DecodeError(
                f"the record's schema has the fingerprint {fingerprint.hex()}, which is not configured",
                hint=_OTHER_SCHEMA if self._model is None else _OLDER_CLASS,
            )
        return reader, size

    def _reader(
        self, source: AvroSchema, *, registered: int | None = None, latest: AvroSchema | None = None
    ) -> AvroReader:
        target = latest or self._target
        budget, native_, model = self._budget, self._native, self._makes
        numbered = model is not None and model.numbered
        if target is None or (target.parsed == source.parsed and not numbered):
            return AvroReader(
                source, source.readable, None, registered, budget=budget, native=native_, model=model, latest=latest
            )
        way = resolved(source, target, numbered=numbered)
        source = source.with_filled(way.filled) if way.filled else source
        return AvroReader(
            source,
            readable(way.writer),
            way.target,
            registered,
            way.problems,
            budget,
            native_,
            way.skips_blindly,
            model,
            into=target,
            latest=latest,
            remedy=way.remedy,
        )


def _model(config: Mapping[str, object], *excluded: Option[Any]) -> AvroModel | None:
    cls = read_model(config, TYPE, *excluded)
    return None if cls is None else AvroModel(cls)


def _check_fields(model: AvroModel | None, *neighbours: object | None) -> None:
    if model is not None and model.numbered:
        check_neighbours(TYPE, "a field of the class is a union of several classes", *neighbours)


def _schema_of(model: AvroModel) -> AvroSchema:
    require("fastavro", "avro")
    try:
        return AvroSchema.parse(model.schema, role=Role.OWN)
    except ValueError as error:
        raise ConfigError(f"the schema of {model.cls.__qualname__} is {error}", key=TYPE.name) from error


def _as_raw(encode: Callable[[Any], bytes], prefix: bytes) -> Callable[[Any], bytes]:
    """A function that writes bytes without Avro's length in front of them."""

    def raw(data: Any) -> bytes:
        record = encode(data)
        _, start = varint.read(memoryview(record), 0)
        return prefix + record[start:]

    return raw


def _refuse_keys(framing: str, *, is_key: bool) -> None:
    if is_key and framing == RECORD_KEY:
        raise ConfigError(
            f"{FRAMING.name} = {RECORD_KEY} is for values: the key is the schema",
            hint=f"Set value.{FRAMING.name}, and key.deserializer = string",
            key=FRAMING.name,
        )


def parse_registered(registered: RegisteredSchema, *, named_by_record: bool = False) -> AvroSchema:
    """A registered schema.

    Args:
        registered: The schema, and those that it refers to.
        named_by_record: Whether a record has named it.

    Raises:
        SchemaRegistryError: It is not an Avro schema.
    """
    try:
        return AvroSchema.parse(registered.text, registered.references)
    except ValueError as error:
        raise SchemaRegistryError(
            f"schema {registered.key} of the registry is {error}",
            # the registry has answered, and other records name other schemas
        ).marked(about_record=named_by_record) from error


def _writing(validation: str) -> Write:
    """The function of fastavro, with its own strict forms."""
    write: Write = require("fastavro", "avro").schemaless_writer
    if validation in {_STRICT, _STRICT_BUT_DEFAULTS}:
        return partial(write, **{validation.replace("-", "_"): True})
    return write


def record_name(schema: AvroSchema | None) -> str:
    """The full name of a schema's record, which names its subject; empty for other schemas."""
    return "" if schema is None else _record_name(schema.text)


def _record_name(text: str | None) -> str:
    schema = None if text is None else json.loads(text) if text.lstrip()[:1] == "{" else None
    if not isinstance(schema, dict) or schema.get("type") not in {"record", "error"}:
        return ""
    name = str(schema.get("name", ""))
    return f"{schema['namespace']}.{name}" if schema.get("namespace") and "." not in name else name


def _validate(schema: AvroSchema, data: Any) -> None:
    try:
        invalid = _invalid(data, schema)
    except Exception as error:  # noqa: BLE001  replaced: its message may quote the value
        let_through(error)
        raise _unwritable(data, schema, error) from None
    if invalid is not None:
        raise invalid


def _with_hints(encode: Callable[[Any], bytes], schema: AvroSchema) -> Callable[[Any], bytes]:
    """A function that also writes what fastavro refuses for its own hints alone."""

    def encode_hinted(data: Any) -> bytes:
        try:
            return encode(data)
        except EncodeError:
            if schema.unbounded:
                _check_depth(data)
            paired = as_pairs(schema.parsed, data, schema.named)
            if paired is data:
                raise
        return encode(paired)

    return encode_hinted


def _check_depth(data: Any) -> None:
    try:
        check_depth(data)
    except ValueError as error:
        raise EncodeError(f"the value does not match an Avro record: {error}") from error


def _misfit(data: Any, schema: AvroSchema, error: Exception) -> EncodeError:
    """Name the mismatched field. fastavro's validation is slow, but this record has failed already."""
    try:
        invalid = _invalid(data, schema)
    except Exception as stumble:  # noqa: BLE001, validation may fail on unwritable values
        let_through(stumble)
        invalid = None
    return invalid or _unwritable(data, schema, error)


def _unwritable(data: Any, schema: AvroSchema, error: Exception) -> EncodeError:
    """The error of a value of the right type."""
    if (found := misfit_of_decimal(schema.parsed, data, schema.named)) is not None:
        return EncodeError(
            f"the value does not match the schema: {found}",
            hint="Round it, as by Decimal.quantize; or change the schema",
        )
    return EncodeError(f"the value does not match the schema {schema.name}: {without_data(error)}")


def _invalid(data: Any, schema: AvroSchema) -> EncodeError | None:
    """The mismatch reported by fastavro's validation, with the field's path; None for a matching value."""
    validation: Any = require("fastavro.validation", "avro")
    try:
        validation.validate(data, schema.writable, raise_errors=True)
    except validation.ValidationError as invalid:
        # By field and value: a union has an error for each of its branches.
        found: dict[tuple[str, int], tuple[Any, dict[str, None]]] = {}
        for detail in invalid.errors:
            place = detail.field or schema.name, id(detail.datum)
            found.setdefault(place, (detail.datum, {}))[1][_type_name(detail.schema)] = None
        mismatches = [
            f"{field} is {_shown(value)}, expected {' or '.join(expected)}"
            for (field, _), (value, expected) in found.items()
        ]
        more = f"; and {len(mismatches) - _MAX_SHOWN} more" if len(mismatches) > _MAX_SHOWN else ""
        is_pair = any(isinstance(value, tuple) for value, _ in found.values())
        expects_bytes = any(type(each.datum) is not bytes and _takes_bytes(each.schema) for each in invalid.errors)
        return (BytesExpectedError if expects_bytes else EncodeError)(
            f"the value does not match the schema: {'; '.join(mismatches[:_MAX_SHOWN])}{more}",
            hint="A pair is the full name of a union's branch, and its value" if is_pair else None,
        )
    return None


def _takes_bytes(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) and "logicalType" not in schema else schema
    return kind in ("bytes", "fixed")


def _type_name(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_type_name, schema))
    if isinstance(schema, dict):
        name, kind = schema.get("name"), schema["type"]
        return f"{kind} {name}" if name else str(schema.get("logicalType", kind)).removeprefix(PRIVATE)
    return str(schema)


def _shown(value: Any) -> str:
    return "missing or None" if value is None else shape_of(value)


def _in_order(data: Any) -> Any:
    """A key with sorted maps, so that equal keys give equal bytes."""
    if isinstance(data, dict):
        return {name: _in_order(data[name]) for name in sorted(data)}
    return type(data)(map(_in_order, data)) if type(data) in {list, tuple} else data
