"""JSON Schemas of models, and the conversions between their objects and JSON: by pydantic for its models, else msgspec.

Both check what they read, with the rules and the JSON that each documents.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from payload_stores.options import Option
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.base import Buffer
from serde_chain.errors import ConfigError, DecodeError
from serde_chain.models import is_pydantic, parse_model, refusal, written

TYPE: Final[Option[Any]] = Option(
    "json.type", parse_model, None, doc="class of the values, or its dotted path; its JSON Schema is derived"
)


class JsonModel(NamedTuple):
    """A model in JSON.

    Attributes:
        cls: The class.
        schema: Its JSON Schema.
        to_json: Converts an object to the types of JSON.
        from_json: Reads an object from JSON text.
    """

    cls: type
    schema: dict[str, Any]
    to_json: Callable[[Any], Any]
    from_json: Callable[[Buffer], Any]

    def write(self, value: Any) -> Any:
        """An object in the types of JSON; a dictionary, as from a table, is one already.

        Raises:
            EncodeError: It is not an object of the model, or a part of it is of another type.
        """
        return written(value, self.cls, self.to_json, TYPE)

    def read(self, data: Buffer) -> Any:
        """An object of JSON text.

        Raises:
            DecodeError: The text is not JSON, or the class refuses it.
        """
        try:
            return self.from_json(data)
        except Exception as error:  # noqa: BLE001  a class may raise any error
            let_through(error)
            reason = refusal(error, self.cls)
        # Outside, since errors of pydantic hold the record.
        raise DecodeError(f"the bytes are no {self.cls.__qualname__}: {reason}")


def json_model(cls: type) -> JsonModel:
    """A model in JSON.

    Args:
        cls: The class.

    Raises:
        ConfigError: A field's type has no JSON.
        MissingDependencyError: msgspec is not installed, and the class is of attrs or dataclasses.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Image:
        ...     name: str
        >>> json_model(Image).read(b'{"name":"M 51"}')
        Image(name='M 51')
    """
    try:
        return _by_pydantic(cls) if _is_of_pydantic(cls) else _by_msgspec(cls)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: pydantic's own
        raise ConfigError(
            f"{cls.__qualname__} has no JSON Schema: {error}", hint="docs/values.md lists the types", key=TYPE.name
        ) from error


def _is_of_pydantic(cls: type) -> bool:
    pydantic: Any = sys.modules.get("pydantic")
    return is_pydantic(cls) or (pydantic is not None and pydantic.dataclasses.is_pydantic_dataclass(cls))


def _by_pydantic(cls: type) -> JsonModel:
    adapter = require("pydantic", "models").TypeAdapter(cls)
    return JsonModel(
        cls,
        adapter.json_schema(),
        lambda value: adapter.dump_python(value, mode="json", by_alias=True),
        lambda data: adapter.validate_json(bytes(data)),
    )


def _by_msgspec(cls: type) -> JsonModel:
    msgspec: Any = require("msgspec", "models")
    (reference,), components = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    # Registries recognize a JSON Schema by its members, so it begins with those of the class, not with a reference.
    own = components[reference["$ref"].rpartition("/")[2]]
    return JsonModel(
        cls,
        {**own, "$defs": components},
        lambda value: msgspec.to_builtins(value, str_keys=True),
        msgspec.json.Decoder(cls).decode,
    )
