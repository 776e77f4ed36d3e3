"""Protobuf, on Google's library: with or without a schema registry.

``protobuf.framing`` says how a record names its schema: ``confluent``, ``glue`` or ``apicurio`` (the registry's id and
the message's name in front; the default where a registry of the type is set), ``header`` (the id in a record header),
or ``none``. See :mod:`serde_chain.schemas.schema_id` for the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from payload_stores.options import Option, choice
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.base import Buffer, Deserializer, FieldType, Serializer
from serde_chain.codecs import MAX_OUTPUT
from serde_chain.errors import (
    BytesExpectedError,
    ConfigError,
    DecodeError,
    EncodeError,
    SchemaRegistryError,
    without_data,
)
from serde_chain.record import Context
from serde_chain.schemas import schema_registry
from serde_chain.schemas.framing import CONFLUENT, NONE, Framing, MessageName, MessageType, SchemaFrame
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.part_budget import MAX_PARTS, TOO_MANY, Budget, TooManyPartsError
from serde_chain.schemas.registry import RegisteredSchema, SchemaRegistry
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_registry import (
    FRAMINGS,
    PerSchema,
    PerTopic,
    StageSchema,
    UsesRegistry,
    framing_of,
)
from serde_chain.stages.protobuf import dictionaries
from serde_chain.stages.protobuf import schema as protobuf_schema
from serde_chain.stages.protobuf.fields import field_type
from serde_chain.stages.protobuf.misfits import misfit
from serde_chain.stages.protobuf.schema import DESCRIPTOR_SET, MESSAGE_CLASS, MESSAGE_NAME, TYPE
from serde_chain.transfer import finish

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm
    from serde_chain.stages.protobuf.column_writer import ProtobufWriter

FRAMING: Final = Option(
    "protobuf.framing",
    choice(*FRAMINGS, NONE),
    None,
    doc="how a record names its schema: confluent, glue, apicurio (default with such a registry), header, none",
)
VALUES: Final = Option("protobuf.values", choice("message", "dict"), "message", doc="what readers get: message or dict")

_TYPE: Final = "PROTOBUF"
# Messages of up to this size cannot take much memory, whatever their types.
_SHORT: Final = 1024
# Readers take 100 levels of messages, of which each takes two bytes.
_SHALLOW: Final = 200
# Records also name message index paths, each of which takes a descriptor pool.
_MAX_CLASSES: Final = 1000
_OTHER_INDEXES: Final = (
    "Was it written without a schema registry? See protobuf.framing. Records of use.deprecated.format of Confluent's "
    "Python client, without zigzag encoding, must be written again"
)
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
        self._type = protobuf_schema.type_of(self._class.DESCRIPTOR)
        _, self._framing, self._registry = framing_of(FRAMING, config, is_key=is_key)
        self._as_proto = schema_registry.TYPE.read(config) != CONFLUENT
        latest_s = None if self._registry is None else self._registry.latest_s
        self._frames = PerTopic(self._ask_for_frame, latest_s=latest_s)
        self._known = self._frames.known
        self._encode = _encoder(self._class)
        # The schema named by a record depends on its topic.
        self.plain = self._encode if self._registry is None else None

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        file, text = self._class.DESCRIPTOR.file, None
        if self._registry is not None and not self._registry.writes_registered and not file.dependencies:
            text = protobuf_schema.descriptor_text(file, as_proto=self._as_proto)
        return StageSchema(_TYPE, self._class.DESCRIPTOR.full_name, text, self._registry)

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
        """Writes columns; None if a record is more than a prefix and the message.

        See :class:`serde_chain.arrow.SupportsColumns`.
        """
        frame = SchemaFrame(b"") if self._registry is None else self._frames.of(ctx)
        if not frame.is_prefix:
            return None
        from serde_chain.stages.protobuf.column_writer import ProtobufWriter

        return ProtobufWriter(self._class.DESCRIPTOR, frame.prefix)

    def row_converter(self, column: Any, _ctx: Context | None) -> Callable[[Any], Any] | None:
        """Reverses the conversions of ``to_arrow``. See :class:`serde_chain.arrow.SupportsColumns`."""
        from serde_chain.stages.protobuf.rows import message_fitter

        return message_fitter(self._class.DESCRIPTOR, column.type)

    def _ask_for_frame(self, ctx: Context | None) -> SchemaFrame:
        registry, descriptor = cast(SchemaRegistry, self._registry), self._class.DESCRIPTOR
        subject = registry.subject(ctx, descriptor.full_name)
        message = self._type
        if registry.writes_registered:
            registered = registry.schema_for(subject, None, _TYPE)
            message = _type_in(registered, subject, descriptor.full_name)
        else:
            known = registry.known_references(subject)
            # All texts before any is registered: each can fail.
            texts = _texts(descriptor.file, registry, known, as_proto=self._as_proto)
            references = _references(registry, subject, descriptor.file, known, texts)
            registered = registry.schema_for(subject, texts[descriptor.file.name], _TYPE, references)
        return cast(Framing, self._framing).named_frame(registered, message)


def _encoder(message_class: Any) -> Callable[[Any], bytes]:
    descriptor, serialize = message_class.DESCRIPTOR, message_class.SerializeToString
    # Twice as slow; needed only for maps.
    write: Callable[[Any], bytes] = (
        partial(serialize, deterministic=True) if protobuf_schema.has_maps(descriptor) else serialize
    )
    make = _maker(message_class)
    may_be_deep = protobuf_schema.is_recursive(descriptor)
    unreadable = require("google.protobuf.message", "protobuf").DecodeError

    def encode(data: Any) -> bytes:
        try:
            encoded = write(data if isinstance(data, message_class) else make(data))
            if may_be_deep and len(encoded) > _SHALLOW:
                message_class.FromString(encoded)  # the library writes what it refuses to read
        except EncodeError:
            raise
        except unreadable:
            raise EncodeError(f"the value nests deeper than readers of {descriptor.full_name} take") from None
        except Exception as error:  # noqa: BLE001  replaced: its message may quote the value
            let_through(error)
            why = misfit(descriptor, data) if isinstance(data, Mapping) else None
            text, expects_bytes = why or (_reason(error), False)
            kind = BytesExpectedError if expects_bytes else EncodeError
            raise kind(f"the value does not match {descriptor.full_name}: {text}") from None
        return encoded

    return encode


def _maker(message_class: Any) -> Callable[[Any], Any]:
    """A function from a dictionary to a message; for a ``Value`` and its kin, from what it stands for."""
    descriptor = message_class.DESCRIPTOR
    takes_all, fill = dictionaries.is_dynamic(descriptor), dictionaries.filler(descriptor)

    def message_of(data: Any) -> Any:
        if not takes_all and not isinstance(data, Mapping):
            raise EncodeError(
                f"the value is of type {type(data).__qualname__}, expected {descriptor.full_name} or a "
                "dictionary of its fields"
            )
        filled = data if fill is None else fill(data)
        return filled if takes_all else message_class(**filled)

    def message_of_any_depth(data: Any) -> Any:
        check_depth(data)
        return message_of(data)

    return message_of_any_depth if protobuf_schema.is_recursive(descriptor) else message_of


def _reason(error: Exception) -> str:
    """What protobuf says of a value that it refuses, without the value; this one it does not quote."""
    if "got non-string argument" in str(error):
        return f"{type(error).__name__}: the name of a field is not text"
    return without_data(error)


class _Known(NamedTuple):
    """The class of the messages of a schema.

    Attributes:
        message_class: The class.
        order: A number that grows with the registry's schemas; 0 if unknown.
    """

    message_class: Any
    order: int


class ProtobufDeserializer(UsesRegistry, Deserializer[Any]):
    """Reads messages of the configured class; without one, of the class described by the registry.

    Reading requires only protobuf's field numbers, so a record's schema is looked up only if it names its message in
    another way than the configured class is named: it may then be another message. Confluent's deserializer does not
    look either.
    """

    options = (
        *(MESSAGE_CLASS, TYPE, DESCRIPTOR_SET, MESSAGE_NAME, FRAMING, VALUES, MAX_PARTS, MAX_OUTPUT),
        *schema_registry.OPTIONS,
    )
    removed_headers = ()
    plain: Callable[[Any], Any] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Find the message class; the first record of a schema queries the registry, if necessary."""
        super().configure(config, is_key)
        require("google.protobuf", "protobuf")
        self._class: Any = protobuf_schema.message_class(config)
        self._budget = Budget.read(config)
        self._as_dict = VALUES.read(config) == "dict"
        _, self._framing, self._registry = framing_of(
            FRAMING, config, is_key=is_key, needs_registry=self._class is None
        )
        if self._class is None and self._registry is None:
            raise ConfigError(
                "protobuf has no message to read", hint=f"{_NO_CLASS}, or schema.registry.url", key=MESSAGE_CLASS.name
            )
        self._own_name: MessageName | None = None
        if self._class is not None and self._framing is not None:
            self._own_name = self._framing.name_of(protobuf_schema.type_of(self._class.DESCRIPTOR))
        self._wanted_by = MESSAGE_NAME.name if MESSAGE_NAME.read(config) else MESSAGE_CLASS.name
        self._wanted = MESSAGE_NAME.read(config) if self._class is None else self._class.DESCRIPTOR.full_name
        self._own_class = _Known(self._class, 0)
        self._classes: PerSchema[tuple[SchemaKey, MessageName], _Known] = PerSchema(
            self._registry, self._class_for, most=_MAX_CLASSES
        )
        parse, as_dict = self.parse, self.to_dict if self._as_dict else None
        framing, message_class = self._framing, self._class

        def read(data: Buffer) -> Any:
            written, start = message_class, 0
            if framing is not None:
                data = framing.unpacked(data)
                key, name, start = self._named(data, None)
                written = self._known_class(key, name, None).message_class
            message = parse(written, data, start)
            return message if as_dict is None else as_dict(message, len(data))

        # KeyError for a schema that must be looked up in the registry first. With a class, only its name is compared.
        self.plain = None if self._classes.is_scoped and self._class is None else read

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        return StageSchema(_TYPE, self._wanted, None, self._registry)

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
        if self._framing is None:
            return self._value(self._class, data, 0)
        plain = self._framing.unpacked(data)
        key, name, start = self._named(plain, ctx)
        try:
            known = self._known_class(key, name, ctx)
        except KeyError:
            return self._classes.transfer(
                (key, name), ctx, lambda found: self._value(found.message_class, plain, start)
            )
        return self._value(known.message_class, plain, start)

    def _value(self, message_class: Any, data: Buffer, start: int) -> Any:
        message = self.parse(message_class, data, start)
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
        return self.parse(*self.located(data, ctx)[1:])

    def read_dict(self, data: Buffer | None, ctx: Context | None) -> Any:
        """Read one message as a dictionary, regardless of ``protobuf.values``.

        Raises:
            DecodeError: As for :meth:`read`.
            SchemaRegistryError: As for :meth:`read`.
        """
        return None if data is None else self.to_dict(self.read(data, ctx), len(data))

    def parse(self, message_class: Any, data: Buffer, start: int) -> Any:
        """Read a message.

        Args:
            message_class: Its class.
            data: The record.
            start: The start of the message.

        Raises:
            DecodeError: The bytes are not such a message, or claim too many parts.
        """
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

    def to_dict(self, message: Any, size: int, nameless: Callable[[int], Any] = int) -> Any:
        """A message as a dictionary, if it has not too many parts.

        Args:
            message: The message.
            size: Bytes of the record.
            nameless: As for :func:`.dictionaries.to_dict`.

        Raises:
            DecodeError: The message has too many parts.
        """
        try:
            protobuf_schema.check_parts(message, size, self._budget)
        except TooManyPartsError as error:
            raise DecodeError(str(error), hint=TOO_MANY) from None
        return dictionaries.to_dict(message, nameless)

    def batch_form(self) -> BatchForm:
        """The form for whole columns."""
        from serde_chain.stages.protobuf.batch import ProtobufBatch

        return ProtobufBatch(self.descriptor, self.located, self.parse, self.to_dict)

    def located(self, data: Buffer, ctx: Context | None) -> tuple[int, Any, Buffer, int]:
        """Find how to read a record.

        Returns:
            A number that grows with the registry's schemas, the message's class, the record without compression, and
            the start of the message.

        Raises:
            DecodeError: The record has another framing, or another message.
            SchemaRegistryError: The registry is down, or does not know the schema.
        """
        if self._framing is None:
            return 0, self._class, data, 0
        data = self._framing.unpacked(data)
        key, name, start = self._named(data, ctx)
        try:
            known = self._known_class(key, name, ctx)
        except KeyError:
            known = self._classes.get((key, name), ctx)
        return known.order, known.message_class, data, start

    def _named(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, MessageName, int]:
        """The schema and message name in the header or prefix, and the start of the message."""
        framing = cast(Framing, self._framing)
        try:
            key, end = framing.split(data, ctx)
        except ValueError as error:
            raise DecodeError(str(error), hint=framing.advice(data, FRAMING.name)) from error
        try:
            return key, *framing.split_name(data, end, ctx)
        except ValueError as error:
            raise DecodeError(str(error), hint=_OTHER_INDEXES) from error

    def _known_class(self, key: SchemaKey, name: MessageName, ctx: Context | None) -> _Known:
        """The class of a record's message; KeyError if the registry must be queried first."""
        if name == self._own_name or self._registry is None:
            return self._own_class
        known = self._classes.known((key, name), ctx)
        if known is None:
            raise KeyError(key)
        return known

    def _class_for(self, named: tuple[SchemaKey, MessageName], ctx: Context | None) -> _Known:
        """Query the registry, once per schema and message."""
        registry, (key, name) = cast(SchemaRegistry, self._registry), named
        written = _registered_class(registry.get(key, _TYPE, registry.reading_subject(ctx)), name)
        found = written.message_class.DESCRIPTOR.full_name
        if self._wanted is not None and found != self._wanted:
            raise DecodeError(
                f"the record is a {found}, expected {self._wanted}",
                hint=f"Does the topic contain several kinds of messages? If not, correct {self._wanted_by}",
            )
        if self._class is not None:
            return self._own_class
        latest = registry.latest_for(ctx, found, _TYPE)
        return written if latest is None else _latest_class(latest, found)


def _type_in(registered: RegisteredSchema, subject: str, full_name: str) -> MessageType:
    """How records name a message by its registered file."""
    try:
        return protobuf_schema.type_in(protobuf_schema.files_of(registered), full_name)
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryError(
            f"schema {registered.key} of the subject {subject} does not describe {full_name}: {error}",
            hint="Register the file of the message under this subject",
        ) from error


def _latest_class(latest: RegisteredSchema, full_name: str) -> _Known:
    """The class of a message in the latest file; a record may name one that is no longer there."""
    try:
        found = protobuf_schema.class_named(protobuf_schema.files_of(latest), full_name)
    except (ValueError, RecursionError) as error:
        raise DecodeError(
            f"the latest schema of the registry, {latest.key}, does not describe {full_name}: {error}",
            hint="Remove use.latest.version to read each record by its own schema",
        ) from error
    return _Known(found, latest.order or 0)


def _imported(file: Any, registry: SchemaRegistry, known: Mapping[str, Any]) -> list[Any]:
    """The files that a file imports and refers to."""
    refers_to_all = registry.refers_to_known_files
    return [
        each
        for each in file.dependencies
        if each.name in known or refers_to_all or not protobuf_schema.is_known(each.name)
    ]


def _texts(file: Any, registry: SchemaRegistry, known: Mapping[str, Any], *, as_proto: bool) -> dict[str, str]:
    """The texts of a file, and of those that it imports, but for those that are known to be registered."""
    texts: dict[str, str] = {}
    waiting = [file]
    while waiting:
        each = waiting.pop()
        if each.name not in texts:
            texts[each.name] = protobuf_schema.descriptor_text(each, as_proto=as_proto)
            waiting += [other for other in _imported(each, registry, known) if other.name not in known]
    return texts


def _references(
    registry: SchemaRegistry, subject: str, file: Any, known: Mapping[str, Any], texts: Mapping[str, str]
) -> list[Any]:
    """Register a file's imports, and theirs; those that are known to be registered are only referred to."""
    return [
        known[each.name]
        if each.name in known
        else registry.reference(
            subject, each.name, texts[each.name], _TYPE, _references(registry, subject, each, known, texts)
        )
        for each in _imported(file, registry, known)
    ]


def _registered_class(registered: RegisteredSchema, name: MessageName) -> _Known:
    """The class of a registered message."""
    files = protobuf_schema.files_of(registered)
    try:
        return _Known(protobuf_schema.class_at(files, name), registered.order or 0)
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryError(
            f"schema {registered.key} of the registry does not describe the record: {error}",
            # the record names the message itself
        ).marked(about_record=True) from error
