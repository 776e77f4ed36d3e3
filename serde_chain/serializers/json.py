"""JSON, on orjson, with validation against a JSON Schema on request."""

from __future__ import annotations

import json as standard_json
from collections.abc import Callable, Mapping
from typing import Any, Final

from payload_stores.options import Option, boolean, text
from payload_stores.plugins import require
from serde_chain.base import Buffer, Deserializer, Serializer
from serde_chain.errors import ConfigError, DecodeError, EncodeError
from serde_chain.record import Context

__all__ = ["JsonDeserializer", "JsonSerializer"]

SCHEMA: Final = Option(
    "json.schema", lambda value: value if isinstance(value, dict) else text(value), None, doc="a JSON Schema"
)
VALIDATE: Final = Option("json.validate", boolean, None, doc="check every value against json.schema (default: if set)")

Problem = Callable[[Any], str | None]


class JsonSerializer(Serializer[Any]):
    """Writes objects as JSON in UTF-8, without spaces."""

    message_format = "json"
    options = (SCHEMA, VALIDATE)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read ``json.schema`` and ``json.validate``."""
        super().configure(config, is_key)
        self._orjson: Any = require("orjson", "json")
        self._problem = _validator(config)

    def __call__(self, data: Any, ctx: Context | None = None, /) -> bytes | None:
        """Write one object."""
        if data is None:
            return None
        if self._problem is not None and (problem := self._problem(data)):
            raise EncodeError(f"the value does not fit json.schema: {problem}")
        try:
            encoded: bytes = self._orjson.dumps(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise EncodeError(f"the value is not JSON: {error}") from error
        return encoded


class JsonDeserializer(Deserializer[Any]):
    """Reads JSON. ``null`` reads as None, which is the JSON value and not a tombstone."""

    message_format = "json"
    options = (SCHEMA, VALIDATE)
    batch_form = "serde_chain.serializers.json_batch:JsonBatch"

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read ``json.schema`` and ``json.validate``."""
        super().configure(config, is_key)
        self._orjson: Any = require("orjson", "json")
        self._problem = _validator(config)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Any:
        """Read one object."""
        if data is None:
            return None
        try:
            value = self._orjson.loads(data)
        except ValueError as error:
            raise DecodeError(f"the bytes are not JSON: {error}") from error
        if self._problem is not None and (problem := self._problem(value)):
            raise DecodeError(f"the value does not fit json.schema: {problem}")
        return value


def _validator(config: Mapping[str, object]) -> Problem | None:
    """A function that says what is wrong with a value, or None if nothing is to be checked."""
    source, wanted = SCHEMA.read(config), VALIDATE.read(config)
    if source is None and wanted:
        raise ConfigError("json.validate needs a schema", hint="Set json.schema", key=SCHEMA.name)
    if source is None or wanted is False:
        return None
    jsonschema: Any = require("jsonschema", "json")
    try:
        schema = standard_json.loads(source) if isinstance(source, str) else source
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
    except (ValueError, jsonschema.SchemaError) as error:
        raise ConfigError(f"json.schema is not a JSON Schema: {error}", key=SCHEMA.name) from error
    validator = kind(schema)

    def problem(value: Any) -> str | None:
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        return None if error is None else f"{error.json_path}: {error.message[:300]}"

    return problem
