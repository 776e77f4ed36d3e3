"""JSON, on orjson, with exact numbers (:mod:`.numbers`) and optional validation against a JSON Schema.

``json.framing`` = ``confluent``, ``glue``, ``apicurio`` or ``header`` registers the schema and names it in each record,
like the JSON Schema serializers of these registries. By default, JSON does not use a registry of the type ``confluent``
that is configured for other stages.
"""

from __future__ import annotations

import json as standard_json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Self, cast

from payload_stores.errors import drop_data
from payload_stores.options import Option, boolean, choice, text
from payload_stores.plugins import require
from serde_chain.base import Buffer, Deserializer, FieldType, Serializer
from serde_chain.codecs import MAX_OUTPUT
from serde_chain.errors import ConfigError, DecodeError, EncodeError, shape_of
from serde_chain.models import check_neighbours, read_model
from serde_chain.record import Context
from serde_chain.schemas import schema_registry
from serde_chain.schemas.framing import Framing, SchemaFrame
from serde_chain.schemas.parts import MAX_PARTS, TOO_MANY, Budget, parts_of_json
from serde_chain.schemas.schema_registry import (
    FRAMINGS,
    HEADER,
    NONE,
    PerTopic,
    SchemaRegistry,
    StageSchema,
    UsesRegistry,
    framing_of,
    named_framing,
)
from serde_chain.stages.json import numbers as json_numbers
from serde_chain.stages.json.fields import field_type
from serde_chain.stages.json.models import TYPE, JsonModel, json_model
from serde_chain.transfer import finish

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

__all__ = ["JsonDeserializer", "JsonSerializer"]

SCHEMA: Final = Option(
    "json.schema", lambda value: value if isinstance(value, dict) else text(value), None, doc="a JSON Schema"
)
VALIDATE: Final = Option("json.validate", boolean, None, doc="check every value against json.schema (default: if set)")

_OF_TEXT: Final = "its objects are made of text, not of dictionaries"

FRAMING: Final = Option(
    "json.framing",
    choice(*FRAMINGS, NONE),
    None,
    doc="how a record names its schema: glue, apicurio (default with such a registry), confluent, header, none",
)

Problem = Callable[[Any], str | None]

# The best of so many is told: a record may have one for each of its bytes.
_MOST_VIOLATIONS: Final = 100


class JsonSerializer(UsesRegistry, Serializer[Any]):
    """Writes objects as JSON in UTF-8, without spaces; in record keys, members are sorted.

    Refuses NaN and infinities, which JSON lacks, and integers beyond 64 bits, which many readers round.
    """

    message_format: str | None = "json"
    options = (SCHEMA, TYPE, VALIDATE, FRAMING, *schema_registry.OPTIONS)
    plain: Callable[[Any], bytes] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schema and its settings; the first record of a topic queries the registry."""
        super().configure(config, is_key)
        orjson: Any = require("orjson", "json")
        name, self._framing, self._registry = framing_of(FRAMING, config, is_key=is_key, confluent_by_default=False)
        self._model = _model(config)
        self._schema = _schema(config)
        self._frames = PerTopic(self._ask_for_frame)
        self._known = self._frames.known
        if self._registry is not None:
            self._text = _schema_text(config) if self._model is None else standard_json.dumps(self._model.schema)
            if name != HEADER:
                self.message_format = None
        self._encode = _encoder(orjson, _validator(config), is_key=is_key)
        if self._model is not None:
            convert, encode = self._model.write, self._encode
            self._encode = lambda data: encode(convert(data))
        # The schema named by a record depends on its topic.
        self.plain = self._encode if self._registry is None else None

    def bind(self, before: object | None, after: object | None) -> Self:
        """Refuse a neighbour that moves fields, with ``json.type``."""
        if self._model is not None:
            check_neighbours(TYPE, _OF_TEXT, before, after)
        return self

    holds_objects = True

    def field_type(self) -> FieldType | None:
        """The type that ``json.schema`` describes. See :class:`~serde_chain.base.DescribesFields`."""
        return None if self._schema is None else field_type(self._schema)

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        text = None if self._registry is None or self._registry.use_latest else self._text
        return _stage_schema(self._schema, self._model, text, self._registry)

    def __call__(self, data: Any, ctx: Context | None = None, /) -> bytes | None:
        """Write one object."""
        return None if data is None else cast("bytes", finish(self.begin(data, ctx)))

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Write one object; a transfer queries the registry at a topic's first record."""
        encoded = self._encode(data)
        if self._registry is None:
            return encoded
        frame = self._known.get(None if ctx is None else ctx.topic)
        if frame is None:
            return self._frames.transfer(ctx, lambda frame: frame.put(encoded, ctx))
        return frame.put(encoded, ctx)

    def _ask_for_frame(self, ctx: Context | None) -> SchemaFrame:
        registry = cast(SchemaRegistry, self._registry)
        subject = registry.subject(ctx, str(standard_json.loads(self._text).get("title", "")))
        return cast(Framing, self._framing).frame(registry.schema_for(subject, self._text, "JSON"))


class JsonDeserializer(Deserializer[Any]):
    """Reads JSON, and ``NaN``, ``Infinity`` and ``-Infinity`` as written by Python's ``json``; integers are exact.

    ``null`` becomes None, which is the JSON value, not a tombstone.
    """

    message_format: str | None = "json"
    options = (SCHEMA, TYPE, VALIDATE, FRAMING, MAX_PARTS, MAX_OUTPUT, *schema_registry.OPTIONS)
    removed_headers = ()
    plain: Callable[[Any], Any]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the schema if values are validated; reading does not depend on the schema named by a record."""
        super().configure(config, is_key)
        self._model = _model(config)
        read = None if self._model is None else self._model.read
        self._schema = _schema(config)
        self._decode = _decoder(require("orjson", "json"), _validator(config), MAX_PARTS.read(config), read)
        _, self._framing = named_framing(FRAMING, config, is_key=is_key, confluent_by_default=False)
        self.plain = self._decode
        if self._framing is not None:
            self.message_format = None
            self.plain = self._read_framed

    def batch_form(self) -> BatchForm:
        """The form for whole columns: the documents' text, in which framing does not show."""
        from serde_chain.stages.json.batch import JsonBatch

        return JsonBatch(self, self._document)

    def bind(self, before: object | None, after: object | None) -> Self:
        """Refuse a neighbour that moves fields, with ``json.type``."""
        if self._model is not None:
            check_neighbours(TYPE, _OF_TEXT, before, after)
        return self

    holds_objects = True

    def field_type(self) -> FieldType | None:
        """Unknown, with a schema too: values keep all members. See :class:`~serde_chain.base.DescribesFields`."""
        return None

    def stage_schema(self) -> StageSchema | None:
        """See :class:`~serde_chain.schemas.schema_registry.HasSchema`."""
        return _stage_schema(self._schema, self._model, None, None)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Read one object."""
        if data is None:
            return None
        return self.plain(data) if self._framing is None else self._decode(self._document(data, ctx))

    def _read_framed(self, data: Buffer) -> Any:
        return self._decode(self._document(data, None))

    def _document(self, data: Buffer, ctx: Context | None) -> Buffer:
        """The document in a record."""
        if self._framing is None:
            return data
        data = self._framing.unpacked(data)
        try:
            _, start = self._framing.split(data, ctx)
        except ValueError as error:
            raise DecodeError(str(error), hint="Was it written without a schema registry? See json.framing") from error
        return memoryview(data)[start:] if start else data


def _encoder(orjson: Any, problem: Problem | None, *, is_key: bool) -> Callable[[Any], bytes]:
    dumps = json_numbers.dumps
    # Equal keys need equal bytes, which determine partitions and compaction.
    options = orjson.OPT_SORT_KEYS if is_key else None

    def encode(data: Any) -> bytes:
        if problem is not None and (why := problem(data)):
            raise EncodeError(f"the value does not match json.schema: {why}")
        try:
            return dumps(orjson, data, options)
        except (TypeError, ValueError, RecursionError) as error:
            message = str(error)
            drop_data(error)
            raise EncodeError(f"the value is not JSON: {message}") from error

    return encode


def _decoder(
    orjson: Any, problem: Problem | None, most_parts: int | None, read: Callable[[Buffer], Any] | None
) -> Callable[[Buffer], Any]:
    loads = json_numbers.loads
    # Without a budget, JSON pays for all of its parts: each takes at least a byte.
    free = sys.maxsize if most_parts is None else most_parts

    def decode(data: Buffer) -> Any:
        if len(data) > free and parts_of_json(bytes(data)) > free:
            raise DecodeError(str(Budget(free).exceeded(len(data))), hint=TOO_MANY)
        if read is not None:
            return read(data)
        try:
            value = loads(orjson, data)
        except (ValueError, RecursionError) as error:
            message = str(error)
            drop_data(error)
            raise DecodeError(f"the bytes are not JSON: {message}") from error
        if problem is not None and (why := problem(value)):
            raise DecodeError(f"the value does not match json.schema: {why}")
        return value

    return decode


def _model(config: Mapping[str, object]) -> JsonModel | None:
    cls = read_model(config, TYPE, SCHEMA)
    return None if cls is None else json_model(cls)


def _stage_schema(
    schema: Any, model: JsonModel | None, text: str | None, registry: SchemaRegistry | None
) -> StageSchema | None:
    written = schema if model is None else model.schema
    if written is None and registry is None:
        return None
    title = written.get("title") if isinstance(written, dict) else None
    return StageSchema("JSON", None if title is None else str(title), text, registry)


def _schema_text(config: Mapping[str, object]) -> str:
    source = SCHEMA.read(config)
    if source is None:
        raise ConfigError(
            "json has no schema to register",
            hint=f"Set {SCHEMA.name} or {TYPE.name}; or {FRAMING.name} = {NONE}",
            key=SCHEMA.name,
        )
    return source if isinstance(source, str) else standard_json.dumps(source)


def _schema(config: Mapping[str, object]) -> Any:
    """The parsed schema; None without one.

    Raises:
        ConfigError: It is not JSON.
    """
    source = SCHEMA.read(config)
    try:
        return standard_json.loads(source) if isinstance(source, str) else source
    except ValueError as error:
        raise ConfigError(f"json.schema is not a JSON Schema: {error}", key=SCHEMA.name) from error


def _validator(config: Mapping[str, object]) -> Problem | None:
    """A function that returns a value's violation of the schema; None if values are not validated."""
    source, wanted = SCHEMA.read(config), VALIDATE.read(config)
    if source is None and wanted:
        raise ConfigError("json.validate requires a schema", hint="Set json.schema", key=SCHEMA.name)
    if source is None or wanted is False:
        return None
    jsonschema: Any = require("jsonschema", "json")
    try:
        schema = _schema(config)
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except (ValueError, jsonschema.SchemaError) as error:
        raise ConfigError(f"json.schema is not a JSON Schema: {error}", key=SCHEMA.name) from error
    quadratic = kind.VALIDATORS.get("uniqueItems")
    if quadratic is not None:
        kind = jsonschema.validators.extend(kind, {"uniqueItems": partial(_unique_items, quadratic)})
    validator = kind(schema)

    def problem(value: Any) -> str | None:
        try:
            error = jsonschema.exceptions.best_match(islice(validator.iter_errors(value), _MOST_VIOLATIONS))
        except RecursionError:
            return "it is nested too deep"
        return None if error is None else _violation(error)

    return problem


def _unique_items(original: Any, validator: Any, wanted: Any, array: Any, schema: Any) -> Iterator[Any]:
    """``uniqueItems`` by sorted texts. jsonschema compares each two objects: 3,000 of 12 bytes take it 9 s."""
    if wanted and validator.is_type(array, "array"):
        try:
            texts = {standard_json.dumps(_comparable(item), sort_keys=True) for item in array}
        except (TypeError, ValueError, OverflowError):  # objects that are not JSON; these are only written
            pass
        else:
            if len(texts) == len(array):
                return
            # The error quotes these; it gets the array that it is about from the validator.
            array = [0, 0]
    yield from original(validator, wanted, array, schema)


def _comparable(value: Any) -> Any:
    """A value in which equal numbers are alike: 1.0 is 1 in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    return list(map(_comparable, value)) if isinstance(value, list) else value


def _violation(error: Any) -> str:
    """What a ``jsonschema.ValidationError`` reports, in words of the schema: its message quotes the value."""
    names = {name for key, name in pairwise(error.absolute_schema_path) if key == "properties"}
    # Other names are a part of the value.
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step}" if step in names else "[...]"
        for step in error.absolute_path
    )
    where = "".join(("$", *steps))[:300]
    if error.validator == "required":
        return f"{where}: {error.message[:300]}"  # a name in the schema
    if error.validator is None:
        return f"{where} is not allowed"
    wanted = standard_json.dumps(error.validator_value, default=str)
    return f"{where} is {shape_of(error.instance)}, against {error.validator}: {wanted[:200]}"
