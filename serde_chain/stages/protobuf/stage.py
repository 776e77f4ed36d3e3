"""Protobuf, on Google's library: with or without a schema registry.

``protobuf.framing`` says how a record names its schema: ``confluent`` (the registry's id and the message's indexes in
front; the default where a registry is set), ``header`` (the same in a record header), or ``none``. See
:mod:`serde_chain.schemas.schema_id` for the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from payload_stores.options import Option, choice
from payload_stores.plugins import require
from serde_chain.base import Buffer, Deserializer, FieldType, Serializer
from serde_chain.errors import ConfigError, DecodeError, EncodeError, SchemaRegistryError
from serde_chain.lookups import Lookups
from serde_chain.record import Context, get_header
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.parts import MAX_PARTS, TOO_MANY, Budget, TooManyPartsError
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_registry import (
    CONFLUENT,
    HEADER,
    NONE,
    PerTopic,
    RegisteredSchema,
    SchemaFrame,
    SchemaRegistry,
    UsesRegistry,
    frame_of,
    framing_of,
)
from serde_chain.stages.protobuf import schema as protobuf_schema
from serde_chain.stages.protobuf.fields import field_type
from serde_chain.stages.protobuf.schema import DESCRIPTOR_SET, MESSAGE_CLASS, MESSAGE_NAME, TYPE
from serde_chain.transfer import finish

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm
    from serde_chain.stages.protobuf.columns import ProtobufWriter

__all__ = ["ProtobufDeserializer", "ProtobufSerializer"]

FRAMING: Final = Option(
    "protobuf.framing",
    choice(CONFLUENT, HEADER, NONE),
    None,
    doc="how a record names its schema: confluent (default with a registry), header, none",
)
VALUES: Final = Option("protobuf.values", choice("message", "dict"), "message", doc="what readers get: message or dict")

_TYPE: Final = "PROTOBUF"
# Messages of up to this size cannot take much memory, whatever their types.
_SHORT: Final = 1024
# Records also name message index paths, each of which takes a descriptor pool.
_MAX_CLASSES: Final = 1000
_NO_CLASS: Final = f"Set {MESSAGE_CLASS.name}, or {DESCRIPTOR_SET.name} and {MESSAGE_NAME.name}"


class ProtobufSerializer(UsesRegistry, Serializer[Any]):
    """Writes messages, or dictionaries of their fields.

    Equal messages give equal bytes, maps included, with one version of the library.
    """

    options = (MESSAGE_CLASS, TYPE, DESCRIPTOR_SET, MESSAGE_NAME, FRAMING, *schema_registry.OPTIONS)
    plain: Callable[[Any], bytes] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Find the message class; the first record of a topic queries the registry."""
        super().configure(config, is_key)
        require("google.protobuf", "protobuf")
        self._class: Any = protobuf_schema.message_class(config)
        if self._class is None:
            raise ConfigError("protobuf has no message to write", hint=_NO_CLASS, key=MESSAGE_CLASS.name)
        descriptor = self._class.DESCRIPTOR
        self._indexes = schema_id.encode_indexes(protobuf_schema.indexes_of(descriptor))
        self._framing, self._registry = framing_of(FRAMING, config, is_key=is_key)
        self._is_key = is_key
        self._frames = PerTopic(self._ask_for_frame)
        self._known = self._frames.known
        self._encode = _encoder(self._class)
        # The schema named by a record depends on its topic.
        self.plain = self._encode if self._registry is None else None

    @property
    def descriptor(self) -> Any:
        """Descriptor of the configured message."""
        return self._class.DESCRIPTOR

    holds_objects = False

    def field_type(self) -> FieldType:
        """The type of the configured message. See :class:`~serde_chain.base.DescribesFields`."""
        return field_type(self._class.DESCRIPTOR)

    def __call__(self, data: Any, ctx: Context | None = None, /) -> bytes | None:
        """Write one message."""
        return None if data is None else cast("bytes", finish(self.begin(data, ctx)))

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Write one message; a transfer queries the registry at a topic's first record."""
        encoded = self._encode(data)
        if self._registry is None:
            return encoded
        frame = self._known.get(None if ctx is None else ctx.topic)
        if frame is None:
            return self._frames.transfer(ctx, lambda frame: frame.put(encoded, ctx))
        return frame.put(encoded, ctx)

    def column_writer(self, ctx: Context | None) -> ProtobufWriter | None:
        """Writes columns; None if a header names the schema. See :class:`serde_chain.arrow.SupportsColumns`."""
        frame = SchemaFrame(b"", None) if self._registry is None else self._frames.of(ctx)
        if frame.header is not None:
            return None
        from serde_chain.stages.protobuf.columns import ProtobufWriter

        return ProtobufWriter(self._class.DESCRIPTOR, frame.prefix)

    def row_converter(self, column: Any) -> Callable[[Any], Any] | None:
        """Reverses the conversions of ``to_arrow``. See :class:`serde_chain.arrow.SupportsColumns`."""
        from serde_chain.stages.protobuf.rows import message_fitter

        return message_fitter(self._class.DESCRIPTOR, column.type)

    def _ask_for_frame(self, ctx: Context | None) -> SchemaFrame:
        registry, descriptor = cast(SchemaRegistry, self._registry), self._class.DESCRIPTOR
        subject = registry.subject(ctx, descriptor.full_name)
        references = [] if registry.use_latest else _references(registry, descriptor.file)
        registered = registry.schema_for(subject, protobuf_schema.descriptor_text(descriptor.file), _TYPE, references)
        return frame_of(registered, self._framing, is_key=self._is_key, indexes=self._indexes)


def _encoder(message_class: Any) -> Callable[[Any], bytes]:
    descriptor, serialize = message_class.DESCRIPTOR, message_class.SerializeToString
    # Twice as slow; needed only for maps.
    write: Callable[[Any], bytes] = (
        partial(serialize, deterministic=True) if protobuf_schema.has_maps(descriptor) else serialize
    )
    recursive = protobuf_schema.is_recursive(descriptor)

    def message_of(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise EncodeError(
                f"the value is of type {type(data).__qualname__}, expected {descriptor.full_name} or a "
                "dictionary of its fields"
            )
        if recursive:
            check_depth(data)
        return message_class(**data)

    def encode(data: Any) -> bytes:
        try:
            return write(data if isinstance(data, message_class) else message_of(data))
        except EncodeError:
            raise
        except Exception as error:  # protobuf raises its own error, and several of Python's
            raise EncodeError(f"the value does not match {descriptor.full_name}: {error}") from error

    return encode


class ProtobufDeserializer(UsesRegistry, Deserializer[Any]):
    """Reads messages of the configured class; without one, of the class described by the registry.

    Reading requires only protobuf's field numbers, so a record's schema is looked up only if its message indexes differ
    from those of the configured class: it may then be another message.
    """

    options = (MESSAGE_CLASS, TYPE, DESCRIPTOR_SET, MESSAGE_NAME, FRAMING, VALUES, MAX_PARTS, *schema_registry.OPTIONS)
    removed_headers = ()
    plain: Callable[[Any], Any]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Find the message class; the first record of a schema queries the registry, if necessary."""
        super().configure(config, is_key)
        require("google.protobuf", "protobuf")
        self._class: Any = protobuf_schema.message_class(config)
        self._budget = Budget.read(config)
        self._as_dict = VALUES.read(config) == "dict"
        framing, self._registry = framing_of(FRAMING, config, is_key=is_key, needs_registry=self._class is None)
        if self._class is None and self._registry is None:
            raise ConfigError(
                "protobuf has no message to read", hint=f"{_NO_CLASS}, or schema.registry.url", key=MESSAGE_CLASS.name
            )
        self._header_name = schema_id.KEY_HEADER if is_key else schema_id.VALUE_HEADER
        self._framed = framing != NONE
        self._own_indexes: tuple[int, ...] | None = None
        if self._class is not None:
            self._own_indexes = protobuf_schema.indexes_of(self._class.DESCRIPTOR)
        self._classes: Lookups[tuple[SchemaKey, tuple[int, ...]], Any] = Lookups(most=_MAX_CLASSES)
        parse, as_dict = self._parse, self.to_dict if self._as_dict else None
        locate = self._locate_known if self._framed else None
        message_class = self._class

        def read(data: Buffer) -> Any:
            written, start = (message_class, 0) if locate is None else locate(data)
            message = parse(written, data, start)
            return message if as_dict is None else as_dict(message, len(data))

        # KeyError for a schema that must be looked up in the registry first.
        self.plain = read

    @property
    def holds_objects(self) -> bool:
        """Whether values are dictionaries."""
        return self._as_dict

    def field_type(self) -> FieldType | None:
        """The type of the configured message; None if each record names its own."""
        return None if self._class is None else field_type(self._class.DESCRIPTOR)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Read one message."""
        return None if data is None else finish(self.begin(data, ctx))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Read one message; a transfer queries the registry for a required schema that is not known yet."""
        if not self._framed:
            return self._value(self._class, data, 0)
        key, indexes, start = self._named(data, ctx)
        try:
            message_class = self._known_class(key, indexes)
        except KeyError:
            return self._classes.transfer(
                (key, indexes), partial(self._class_for, key, indexes), lambda found: self._value(found, data, start)
            )
        return self._value(message_class, data, start)

    def _value(self, message_class: Any, data: Buffer, start: int) -> Any:
        message = self._parse(message_class, data, start)
        return self.to_dict(message, len(data)) if self._as_dict else message

    @property
    def descriptor(self) -> Any | None:
        """Descriptor of the configured message; None if each record names its own."""
        return None if self._class is None else self._class.DESCRIPTOR

    def read(self, data: Buffer, ctx: Context | None) -> Any:
        """Read one message, regardless of ``protobuf.values``.

        Raises:
            DecodeError: The bytes are not such a message, or have another framing.
            SchemaRegistryError: The registry is down, or does not know the schema.
        """
        written, start = self._locate(data, ctx) if self._framed else (self._class, 0)
        return self._parse(written, data, start)

    def read_dict(self, data: Buffer | None, ctx: Context | None) -> dict[str, Any] | None:
        """Read one message as a dictionary, regardless of ``protobuf.values``.

        Raises:
            DecodeError: As for :meth:`read`.
            SchemaRegistryError: As for :meth:`read`.
        """
        return None if data is None else self.to_dict(self.read(data, ctx), len(data))

    def _parse(self, message_class: Any, data: Buffer, start: int) -> Any:
        data = data if type(data) is bytes and not start else bytes(data[start:])
        try:
            if len(data) > _SHORT:
                protobuf_schema.check_bytes(message_class.DESCRIPTOR, memoryview(data), self._budget)
            return message_class.FromString(data)
        except TooManyPartsError as error:
            raise DecodeError(str(error), hint=TOO_MANY) from None
        except Exception as error:  # protobuf's own error; UnicodeDecodeError for text in some releases
            raise DecodeError(
                f"the bytes are not a {message_class.DESCRIPTOR.full_name}: {error}",
                hint="Was it written with another message, or with a framing? See protobuf.framing",
            ) from error

    def to_dict(self, message: Any, size: int, nameless: Callable[[int], Any] = int) -> dict[str, Any]:
        """A message as a dictionary, if it has not too many parts.

        Args:
            message: The message.
            size: Bytes of the record.
            nameless: As for :func:`.schema.to_dict`.

        Raises:
            DecodeError: The message has too many parts.
        """
        try:
            protobuf_schema.check_parts(message, size, self._budget)
        except TooManyPartsError as error:
            raise DecodeError(str(error), hint=TOO_MANY) from None
        return protobuf_schema.to_dict(message, nameless)

    def batch_form(self) -> BatchForm:
        """The form for whole columns."""
        from serde_chain.stages.protobuf.batch import ProtobufBatch

        return ProtobufBatch(self.descriptor, self.read, self.to_dict)

    def _locate(self, data: Buffer, ctx: Context | None) -> tuple[Any, int]:
        """The class for the schema in the header or prefix, and the start of the message."""
        key, indexes, start = self._named(data, ctx)
        try:
            message_class = self._known_class(key, indexes)
        except KeyError:
            message_class = self._classes.get((key, indexes), partial(self._class_for, key, indexes))
        return message_class, start

    def _named(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, tuple[int, ...], int]:
        """The schema and message indexes in the header or prefix, and the start of the message."""
        in_header = get_header(ctx, self._header_name)
        key, indexes, end = _split(data if in_header is None else in_header)
        return key, indexes, end if in_header is None else 0

    def _locate_known(self, data: Buffer) -> tuple[Any, int]:
        """The same for a record without headers; KeyError if the registry must be queried first."""
        key, indexes, end = _split(data)
        return self._known_class(key, indexes), end

    def _known_class(self, key: SchemaKey, indexes: tuple[int, ...]) -> Any:
        """The class of a record's message; KeyError if the registry must be queried first."""
        if indexes == self._own_indexes or self._registry is None:
            return self._class
        return self._classes.known[key, indexes]

    def _class_for(self, key: SchemaKey, indexes: tuple[int, ...]) -> Any:
        """Query the registry, once per schema and message."""
        written = _registered_class(cast(SchemaRegistry, self._registry), key, indexes)
        if self._class is None:
            return written
        theirs, ours = written.DESCRIPTOR.full_name, self._class.DESCRIPTOR.full_name
        if theirs != ours:
            raise DecodeError(
                f"the record is a {theirs}, expected {ours}", hint="Does the topic contain several kinds of messages?"
            )
        return self._class


def _split(source: Buffer) -> tuple[SchemaKey, tuple[int, ...], int]:
    """The schema and message indexes in a record, and their end."""
    try:
        key, end = schema_id.split_confluent(source)
        return key, *schema_id.split_indexes(source, end)
    except ValueError as error:
        raise DecodeError(str(error), hint="Was it written without a schema registry? See protobuf.framing") from error


def _references(registry: SchemaRegistry, file: Any) -> list[Any]:
    """Register a file's imports, recursively; every reader has the known files."""
    return [
        registry.reference(
            imported.name, protobuf_schema.descriptor_text(imported), _TYPE, _references(registry, imported)
        )
        for imported in file.dependencies
        if not protobuf_schema.is_known(imported.name)
    ]


def _registered_class(registry: SchemaRegistry, key: SchemaKey, indexes: tuple[int, ...]) -> Any:
    """The class of a registered message; Confluent's registry converts a schema stored as text to a descriptor."""
    registered = registry.get(key, _TYPE)
    try:
        return _class_at(registered, indexes)
    except _NotADescriptor:
        registered = registry.get(key, _TYPE, "serialized")
    try:
        return _class_at(registered, indexes)
    except _NotADescriptor as error:
        raise SchemaRegistryError(
            f"schema {key} of the registry is not a descriptor: {error}",
            hint=f"{_NO_CLASS}: then the registry's schema is not needed",
        ) from error


class _NotADescriptor(ValueError):  # noqa: N818, never leaves this file
    """The registry stores the schema as text."""


def _class_at(registered: RegisteredSchema, indexes: tuple[int, ...]) -> Any:
    try:
        files = [
            protobuf_schema.parse_file(name, text)
            for name, text in (*zip(registered.names, registered.references, strict=True), ("record", registered.text))
        ]
    except ValueError as error:
        raise _NotADescriptor(str(error)) from error
    try:
        return protobuf_schema.class_at(files, indexes)
    except (ValueError, RecursionError) as error:
        failure = SchemaRegistryError(f"schema {registered.key} of the registry does not describe the record: {error}")
        failure.about_record = True  # the record names the message's index path itself
        raise failure from error
