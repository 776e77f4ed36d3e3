"""A configuration that can be used on other machines: files of the driver are read on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from payload_stores.options import Option
from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.errors import ConfigError

__all__ = ["load"]


def load(source: Config | str | Path) -> dict[str, object]:
    """Load a configuration, with the content of files in place of their paths.

    The files are named by the options of the stages and stores that the configuration uses
    (:attr:`payload_stores.options.Option.file`).

    Raises:
        ConfigError: The configuration, or a file that it names, cannot be read.
    """
    resolved = configuration.resolve(source)
    files = [option for option in resolved.options if option.file]
    config = dict(resolved.settings)
    for name in [form + plural for form in resolved.items for plural in ("", "s")]:
        items = config.get(name)
        if isinstance(items, (list, tuple)):
            config[name] = [_with_contents(item, files) if isinstance(item, Mapping) else item for item in items]
        elif isinstance(items, Mapping):
            config[name] = _with_contents(items, files)
    return _with_contents(config, files)


def _with_contents(options: Mapping[str, object], files: list[Option[Any]]) -> dict[str, object]:
    loaded = dict(options)
    for option in files:
        path = option.read(options)
        if isinstance(path, str):
            try:
                loaded[option.name] = Path(path).read_bytes()
            except (OSError, ValueError) as error:
                raise ConfigError(f"{option.name} = {path!r} cannot be read: {error}", key=option.name) from error
    return loaded
