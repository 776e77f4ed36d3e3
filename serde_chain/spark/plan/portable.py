"""Makes a configuration usable on other machines: the driver reads the files and the classes that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from payload_stores.options import Option, content
from serde_chain import config as configuration
from serde_chain.catalogue import bare_key
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.spark.plan.models import each_stage, with_schemas
from serde_chain.spark.plan.registered import with_registered
from serde_chain.stages.large_fields.options import FETCH

__all__ = ["load"]


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
    loaded = {name: each_stage(value, within) for name, value in options.items() if bare_key(name) != FETCH.name}
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
