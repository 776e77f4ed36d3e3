"""Makes a configuration usable on other machines: the driver reads the files and the classes that it names.

Columns have the schema of a model, not its checks, so workers need the schema alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from payload_stores.options import Option, content
from serde_chain import config as configuration
from serde_chain.catalogue import DESERIALIZE, bare_key
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.models import read_model
from serde_chain.record import KEY, VALUE
from serde_chain.spark.chains.registered import with_registered
from serde_chain.stages.avro.models import TYPE as AVRO_TYPE
from serde_chain.stages.avro.models import AvroModel
from serde_chain.stages.avro.schema import READER_SCHEMA, SCHEMA, SCHEMA_FILE
from serde_chain.stages.json.models import TYPE as JSON_TYPE
from serde_chain.stages.json.models import json_model
from serde_chain.stages.json.schema import SCHEMA as JSON_SCHEMA
from serde_chain.stages.json.schema import SCHEMA_FILE as JSON_SCHEMA_FILE
from serde_chain.stages.json.schema import VALIDATE
from serde_chain.stages.large_fields.options import FETCH


def load(source: Config | str | Path, topics: Sequence[str] = ()) -> dict[str, object]:
    """Load a configuration, with the content of files, the schemas of models, and registered messages.

    Options of the used stages and stores declare which keys name files
    (:attr:`payload_stores.options.Option.file`). ``large.fields.fetch`` is left out: columns hold no handles.

    Args:
        source: The configuration.
        topics: The topics that are read, if known; see :mod:`.registered`.

    Raises:
        ConfigError: The configuration, or a file that it names, is unreadable.
        SchemaRegistryError: The registry is down, or does not know the topics' schemas.
    """
    resolved = configuration.resolve(source)
    settings = _with_contents(resolved.settings, [option for option in resolved.options if option.file])
    return with_registered(with_schemas(settings), topics)


def _with_contents(options: Mapping[str, object], files: list[Option[Any]]) -> dict[str, object]:
    within = partial(_with_contents, files=files)
    loaded = {name: _each_stage(value, within) for name, value in options.items() if bare_key(name) != FETCH.name}
    for name, value in options.items():
        option = next((option for option in files if option.name == bare_key(name)), None)
        path = None if option is None else option.read({option.name: value})
        if option is not None and isinstance(path, str):
            try:
                loaded[name] = option.file(path) if callable(option.file) else content(path, name)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else error
                hint = f"It was looked for at {Path(path).absolute()}" if isinstance(error, FileNotFoundError) else None
                raise ConfigError(f"{name} = {path!r} cannot be read: {reason}", hint=hint, key=name) from error
    return loaded


def _of_avro(cls: type) -> dict[str, object]:
    schema = json.dumps(AvroModel(cls).schema)
    return {SCHEMA.name: schema, READER_SCHEMA.name: schema}


def _of_json(cls: type) -> dict[str, object]:
    return {JSON_SCHEMA.name: json.dumps(json_model(cls).schema), VALIDATE.name: False}


_KINDS: Final[tuple[tuple[Option[Any], tuple[Option[Any], ...], Callable[[type], dict[str, object]]], ...]] = (
    (AVRO_TYPE, (SCHEMA, SCHEMA_FILE, READER_SCHEMA), _of_avro),
    (JSON_TYPE, (JSON_SCHEMA, JSON_SCHEMA_FILE), _of_json),
)


def with_schemas(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings with the schemas of models in place of the models.

    Args:
        settings: Flat settings.

    Raises:
        ConfigError: A model is none, has no schema, or is beside a schema.

    Example:
        >>> from dataclasses import make_dataclass
        >>> found = with_schemas({"avro.type": make_dataclass("Image", [("id", int)]), "key.avro.schema": '"int"'})
        >>> sorted(found)
        ['key.avro.schema', 'value.avro.reader.schema', 'value.avro.schema']
    """
    changed = {
        name: _each_stage(value, partial(_with_schemas_of_stage, reads=DESERIALIZE.word in name))
        for name, value in settings.items()
    }
    for option, excluded, schemas_of in _KINDS:
        names = (option.name, *(other.name for other in excluded))
        for side in (f"{KEY}.", f"{VALUE}."):
            own = {name: settings[side + name] for name in names if side + name in settings}
            # What a side has of its own replaces what both have.
            effective = own or {name: settings[name] for name in names if name in settings}
            cls = read_model(effective, option, *excluded)
            if cls is not None:
                changed |= {side + name: schema for name, schema in schemas_of(cls).items()}
        for side in ("", f"{KEY}.", f"{VALUE}."):
            changed.pop(side + option.name, None)
    return changed


def _with_schemas_of_stage(options: Mapping[str, object], *, reads: bool) -> dict[str, object]:
    changed = dict(options)
    for option, excluded, schemas_of in _KINDS:
        cls = read_model(options, option, *excluded)
        if cls is not None:
            del changed[option.name]
            schemas = schemas_of(cls)
            changed |= {name: schema for name, schema in schemas.items() if reads or name != READER_SCHEMA.name}
    return changed


def _each_stage(value: object, change: Callable[[Mapping[str, object]], dict[str, object]]) -> object:
    """A value whose stages or stores may have their own options: ``{"class": …}``, alone or in a list.

    Args:
        value: The value of a key.
        change: Returns the options of one stage or store, changed.
    """
    if isinstance(value, Mapping) and "class" in value:
        return change(value)
    return [_each_stage(item, change) for item in value] if isinstance(value, (list, tuple)) else value
