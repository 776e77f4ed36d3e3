"""JSON, on orjson, with exact numbers (:mod:`.numbers`) and optional validation against a JSON Schema.

``json.framing`` = ``confluent``, ``glue``, ``apicurio`` or ``header`` registers the schema and names it in each record,
like the JSON Schema serializers of these registries. By default, JSON does not use a registry of the type ``confluent``
that is configured for other stages.
"""

from __future__ import annotations

import json as standard_json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

from payload_stores.errors import drop_data
from payload_stores.options import Option, choice
from payload_stores.plugins import require
from serde_chain.base import Buffer, Deserializer, FieldType, Serializer
from serde_chain.codecs import MAX_OUTPUT
from serde_chain.errors import ConfigError, DecodeError, EncodeError
from serde_chain.models import check_neighbours, read_model
from serde_chain.record import Context
from serde_chain.schemas import schema_id, schema_registry
from serde_chain.schemas.framing import HEADER, NONE, Framing, SchemaFrame
from serde_chain.schemas.part_budget import MAX_PARTS, TOO_MANY, Budget, parts_of_json
from serde_chain.schemas.registry import SchemaRegistry
from serde_chain.schemas.schema_id import SchemaKey
from serde_chain.schemas.schema_references import REFERENCES
from serde_chain.schemas.schema_registry import (
    FRAMINGS,
    PerSchema,
    PerTopic,
    StageSchema,
    UsesRegistry,
    framing_of,
    is_configured,
    named_framing,
    open_registry,
    schema_to_write,
)
from serde_chain.stages.json import numbers as json_numbers
from serde_chain.stages.json.fields import field_type
from serde_chain.stages.json.models import TYPE, JsonModel, json_model
from serde_chain.stages.json.schema import (
    ADDRESSES,
    SCHEMA,
    SCHEMA_FILE,
    VALIDATE,
    JsonSchema,
    Problem,
    check_own,
    own_schema,
    registered_schema,
    unresolved_schema,
)
from serde_chain.transfer import finish

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

_TYPE: Final = "JSON"
_OF_TEXT: Final = "its objects are made of text, not of dictionaries"
_OWN: Final = "json.schema"
_BOM: Final = b"\xef\xbb\xbf"

FRAMING: Final = Option(
    "json.framing",
    choice(*FRAMINGS, NONE),
    None,
    doc="how a record names its schema: glue, apicurio (default with such a registry), confluent, header, none",
)


class _Writer(NamedTuple):
    """The way to write records of one topic.

    Attributes:
        encode: Writes a document.
        frame: The bytes and headers that name the schema.
    """

    encode: Callable[[Any], bytes]
    frame: SchemaFrame

    def write(self, data: Any, ctx: Context | None) -> bytes:
        """Write a record."""
        return self.frame.put(self.encode(data), ctx)


class _Json(UsesRegistry):
    """Both directions."""

    message_format: str | None = "json"
    holds_objects = True
    _model: JsonModel | None

    def bind(self, before: object | None, after: object | None) -> Self:
        """Refuse a neighbour that moves fields, with ``json.type``."""
        if self._model is not None:
            check_neighbours(TYPE, _OF_TEXT, before, after)
        return self


class JsonSerializer(_Json, Serializer[Any]):
    """Writes objects as JSON in UTF-8, without spaces; in record keys, members are sorted.

    Refuses NaN and infinities, which JSON lacks, and integers beyond 64 bits, which many readers round.
    """

    options = (SCHEMA, SCHEMA_FILE, TYPE, VALIDATE, ADDRESSES, FRAMING, *schema_registry.OPTIONS)
    plain: Callable[[Any], bytes] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schema and its settings; the first record of a topic queries the registry."""
        super().configure(config, is_key)
        self._orjson: Any = require("orjson", "json")
        name, self._framing, self._registry = framing_of(FRAMING, config, is_key=is_key, confluent_by_default=False)
        self._is_key = is_key
        self._model = _model(config)
        self._schema = _own(config, self._model, has_registry=self._registry is not None)
        self._validates = VALIDATE.read(config) is not False and self._model is None
        self._addresses = ADDRESSES.read(config)
        self._key = SCHEMA.name if SCHEMA_FILE.read(config) is None else SCHEMA_FILE.name
        self._references = REFERENCES.read(config) if self._registry is not None else ()
        self._text, self._title = None if self._schema is None else self._schema.text, ""
        if self._registry is not None:
            self._prepare_registry(self._registry, config)
            if name != HEADER:
                self.message_format = None
        elif VALIDATE.read(config) and self._schema is None:
            raise ConfigError(
                f"{VALIDATE.name} requires a schema",
                hint=f"Set {SCHEMA.name} or {SCHEMA_FILE.name}; or, for that of a registry, {FRAMING.name} = confluent",
                key=SCHEMA.name,
            )
        self._encode = self._encoder(self._schema)
        # The schema named by a record depends on its topic.
        self.plain = self._encode if self._registry is None else None

    def _prepare_registry(self, registry: SchemaRegistry, config: Mapping[str, object]) -> None:
        if self._model is None and (unresolved := unresolved_schema(config)) is not None:
            self._text = unresolved[1]
        if self._text is None and not registry.writes_registered:
            raise ConfigError(
                "json has no schema to register",
                hint=f"Set {SCHEMA.name}, {SCHEMA_FILE.name} or {TYPE.name}; or use.latest.version = true; or "
                f"{FRAMING.name} = {NONE}",
                key=SCHEMA.name,
            )
        is_whole = self._schema is None or len(self._schema.documents) <= 1
        if not (is_whole or self._references or registry.writes_registered):
            raise ConfigError(
                "the schema refers to other documents, which readers of the registered one do not have",
                hint=f"Register them, and name them in {REFERENCES.name}; or set use.latest.version = true",
                key=REFERENCES.name,
            )
        if self._text is not None:
            self._title = (
                str(standard_json.loads(self._text).get("title", "")) if self._text.lstrip()[:1] == "{" else ""
            )
            registry.check_name(self._title)
        self._writers = PerTopic(self._ask_for_writer, latest_s=registry.latest_s)
        self._known = self._writers.known

    def _encoder(self, schema: JsonSchema | None, what: str = _OWN) -> Callable[[Any], bytes]:
        problem = None if schema is None or not self._validates else schema.problem()
        encode = _encoder(self._orjson, problem, what, is_key=self._is_key)
        if self._model is None:
            return encode
        convert = self._model.write
        return lambda data: encode(convert(data))

    def field_type(self) -> FieldType | None:
        """The type that ``json.schema`` describes. See :class:`~serde_chain.base.DescribesFields`."""
        return None if self._schema is None or self._model is not None else field_type(self._schema.document)

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        if self._registry is None:
            return None if self._schema is None else _stage_schema(self._schema.title, None, None)
        has_text = not self._registry.writes_registered and not self._references
        return _stage_schema(self._title, self._text if has_text else None, self._registry)

    def __call__(self, data: Any, ctx: Context | None = None, /) -> bytes | None:
        """Write one object."""
        return None if data is None else cast("bytes", finish(self.begin(data, ctx)))

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Write one object; a transfer queries the registry at a topic's first record."""
        if self._registry is None:
            return self._encode(data)
        writer = self._known.get(None if ctx is None else ctx.topic)
        if writer is None:
            return self._writers.transfer(ctx, lambda writer: writer.write(data, ctx))
        return writer.write(data, ctx)

    def _ask_for_writer(self, ctx: Context | None) -> _Writer:
        registry = cast(SchemaRegistry, self._registry)
        subject = registry.subject(ctx, self._title)
        check = partial(check_own, self._key, self._addresses) if self._validates else None
        registered = schema_to_write(registry, subject, self._text, _TYPE, self._references, check=check)
        frame = cast(Framing, self._framing).frame(registered)
        if not self._validates or (self._schema is not None and registered.text == self._schema.text):
            return _Writer(self._encode, frame)
        schema = registered_schema(registered, self._addresses)
        return _Writer(self._encoder(schema, f"schema {registered.key} of the registry"), frame)


class _Check(NamedTuple):
    """How values of a registered schema are checked.

    Attributes:
        problem: Returns a value's violation of the schema.
        what: The schema, in words.
    """

    problem: Problem
    what: str


class JsonDeserializer(_Json, Deserializer[Any]):
    """Reads JSON, and ``NaN``, ``Infinity`` and ``-Infinity`` as written by Python's ``json``; integers are exact.

    ``null`` becomes None, which is the JSON value, not a tombstone. With ``json.validate``, and without a schema of
    one's own or with ``use.latest.version``, values are checked against the registered schema.
    """

    options = (SCHEMA, SCHEMA_FILE, TYPE, VALIDATE, ADDRESSES, FRAMING, MAX_PARTS, MAX_OUTPUT, *schema_registry.OPTIONS)
    removed_headers = ()
    plain: Callable[[Any], Any] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schema if values are validated; the first record of a schema queries the registry, if necessary."""
        super().configure(config, is_key)
        self._model = _model(config)
        self._schema = _own(config, self._model, has_registry=is_configured(config))
        wanted = VALIDATE.read(config)
        _, self._framing = named_framing(FRAMING, config, is_key=is_key, confluent_by_default=False)
        # One's own schema is replaced by the latest one only.
        asks = bool(wanted) and self._framing is not None and is_configured(config)
        registry = open_registry(config, is_key=is_key) if asks else None
        if registry is not None and self._schema is not None and not registry.reads_latest:
            registry.close()
            registry = None
        self._registry = registry
        self._addresses = ADDRESSES.read(config)
        if wanted and self._schema is None and registry is None:
            raise ConfigError(
                "json.validate requires a schema",
                hint=f"Set json.schema, or {FRAMING.name} with a registry",
                key=SCHEMA.name,
            )
        own = None if self._schema is None or wanted is False or self._model is not None else self._schema.problem()
        read = None if self._model is None else self._model.read
        self._decode = _decoder(
            require("orjson", "json"),
            None if registry is not None else own,
            MAX_PARTS.read(config),
            read,
            is_framed=self._framing is not None,
        )
        self.plain = self._decode
        if self._framing is not None:
            self.message_format = None
            self.plain = self._read_framed
        self._checks: PerSchema[SchemaKey, _Check] = PerSchema(registry, self._ask_for_check)
        if registry is not None:
            self.plain = None
            self._loads = _decoder(require("orjson", "json"), None, MAX_PARTS.read(config), None, is_framed=True)

    def batch_form(self) -> BatchForm:
        """The form for whole columns: the documents' text, in which framing does not show."""
        from serde_chain.stages.json.batch import JsonBatch

        return JsonBatch(self, self._document)

    def field_type(self) -> FieldType | None:
        """Unknown, with a schema too: values keep all members. See :class:`~serde_chain.base.DescribesFields`."""
        return None

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        if self._schema is None and self._registry is None:
            return None
        return _stage_schema("" if self._schema is None else self._schema.title, None, self._registry)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Read one object."""
        return None if data is None else finish(self.begin(data, ctx))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Read one object; a transfer queries the registry for a required schema that is not known yet."""
        if self._registry is None:
            if self._framing is None and self.plain is not None:
                return self.plain(data)
            return self._decode(self._document(data, ctx))
        key, document = self._split(data, ctx)
        check = self._checks.known(key, ctx)
        if check is None:
            return self._checks.transfer(key, ctx, lambda check: self._checked(check, document))
        return self._checked(check, document)

    def _checked(self, check: _Check, document: Buffer) -> Any:
        value = self._loads(document)
        if why := check.problem(value):
            raise DecodeError(f"the value does not match {check.what}: {why}")
        return value if self._model is None else self._decode(document)

    def _ask_for_check(self, key: SchemaKey, ctx: Context | None) -> _Check:
        registry = cast(SchemaRegistry, self._registry)
        written = registry.get(key, _TYPE, registry.reading_subject(ctx))
        latest = registry.latest_for(ctx, _title_of(written.text), _TYPE)
        registered = latest or written
        named_by_record = latest is None
        schema = registered_schema(registered, self._addresses, named_by_record=named_by_record)
        return _Check(schema.problem(), f"schema {registered.key} of the registry")

    def _read_framed(self, data: Buffer) -> Any:
        return self._decode(self._document(data, None))

    def _document(self, data: Buffer, ctx: Context | None) -> Buffer:
        """The document in a record."""
        return data if self._framing is None else self._split(data, ctx)[1]

    def _split(self, data: Buffer, ctx: Context | None) -> tuple[SchemaKey, Buffer]:
        """The schema in the header or prefix, and the document."""
        framing = cast(Framing, self._framing)
        data = framing.unpacked(data)
        try:
            key, start = framing.split(data, ctx)
        except ValueError as error:
            raise DecodeError(str(error), hint=framing.advice(data, FRAMING.name)) from error
        return key, memoryview(data)[start:] if start else data


def _encoder(orjson: Any, problem: Problem | None, what: str, *, is_key: bool) -> Callable[[Any], bytes]:
    dumps = json_numbers.dumps
    # Equal keys need equal bytes, which determine partitions and compaction.
    options = orjson.OPT_SORT_KEYS if is_key else None

    def encode(data: Any) -> bytes:
        if problem is not None and (why := problem(data)):
            raise EncodeError(f"the value does not match {what}: {why}")
        try:
            return dumps(orjson, data, options)
        except (TypeError, ValueError, RecursionError) as error:
            message = str(error)
            drop_data(error)
            raise EncodeError(f"the value is not JSON: {message}") from error

    return encode


def _decoder(
    orjson: Any,
    problem: Problem | None,
    most_parts: int | None,
    read: Callable[[Buffer], Any] | None,
    *,
    is_framed: bool,
) -> Callable[[Buffer], Any]:
    loads = json_numbers.loads
    # Without a budget, JSON pays for all of its parts: each takes at least a byte.
    free = sys.maxsize if most_parts is None else most_parts

    def decode(data: Buffer) -> Any:
        if len(data) > free and parts_of_json(bytes(data)) > free:
            raise DecodeError(str(Budget(free).exceeded(len(data))), hint=TOO_MANY)
        if read is not None:
            return read(data[3:] if data[:3] == _BOM else data)
        try:
            value = loads(orjson, data)
        except (ValueError, RecursionError) as error:
            if data[:3] == _BOM != data[3:6]:  # RFC 8259, 8.1: readers may ignore it
                return decode(data[3:])
            message = str(error)
            drop_data(error)
            hint = None if is_framed else _advice(data)
            raise DecodeError(f"the bytes are not JSON: {message}", hint=hint) from error
        if problem is not None and (why := problem(value)):
            raise DecodeError(f"the value does not match json.schema: {why}")
        return value

    return decode


def _advice(data: Buffer) -> str | None:
    """Advice for bytes without framing that are not JSON; None if they do not begin like a framing."""
    framing = schema_id.framing_of_bytes(data)
    return framing and f"The bytes begin like a schema id: set {FRAMING.name} = {framing}"


def _model(config: Mapping[str, object]) -> JsonModel | None:
    cls = read_model(config, TYPE, SCHEMA, SCHEMA_FILE)
    return None if cls is None else json_model(cls)


def _own(config: Mapping[str, object], model: JsonModel | None, *, has_registry: bool) -> JsonSchema | None:
    """The schema of one's own; None without one, or if its references are in the registry."""
    if model is not None:
        return JsonSchema.unfollowed(model.schema, standard_json.dumps(model.schema))
    return own_schema(config, follows=VALIDATE.read(config) is not False, has_registry=has_registry)


def _stage_schema(title: str, text: str | None, registry: SchemaRegistry | None) -> StageSchema:
    return StageSchema("JSON", title or None, text, registry)


def _title_of(text: str) -> str:
    try:
        schema = standard_json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return str(schema.get("title", "")) if isinstance(schema, dict) else ""
