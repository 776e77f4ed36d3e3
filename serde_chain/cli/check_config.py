"""``serde-chain check-config``: what a configuration file yields."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from payload_stores.errors import ContextualError
from payload_stores.options import Option
from serde_chain import config as configuration
from serde_chain.base import Stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, Side, StageItem, stage_type
from serde_chain.cli.mistakes import mistakes
from serde_chain.config import CLIENT_OPTIONS, Config

__all__ = ["print_config"]

Options: TypeAlias = Collection[Option[Any]]

_HIDDEN = "********"
_SECRET_WORDS = (
    "password", "secret", "token", "credential", "user.info", "jaas", "private", "access.key", "ssl.key",
    "encryption.keys",
)  # fmt: skip


def print_config(path: Path, *, as_json: bool) -> list[ContextualError]:
    """Check a configuration file as a producer and a consumer would, and print its chains and client settings.

    Args:
        path: The file.
        as_json: Print JSON instead of tables.

    Returns:
        Its mistakes; nothing is printed if there are any.

    Raises:
        ConfigError: It cannot be read.
    """
    config = configuration.load(path)
    wrong = mistakes(config)
    if wrong:
        return wrong
    chains = {
        f"{'key' if is_key else 'value'}.{side.word}s": [
            {"stage": item.label, **_stage(item, side, config)}
            for item in configuration.stage_items(config, side, is_key=is_key)
        ]
        for side in (SERIALIZE, DESERIALIZE)
        for is_key in (True, False)
    }
    client = {key: _shown(key, value, ()) for key, value in configuration.client_config(config).items()}
    consumer = {name: config[name] for name in (option.name for option in CLIENT_OPTIONS) if name in config}
    console = Console()
    if as_json:
        console.print_json(json.dumps({"chains": chains, "consumer": consumer, "client": client}, default=str))
        return []
    if not any(chains.values()):
        console.print("The file names no chains: keys and values stay as the Kafka client takes and returns them.")
        console.print("A chain is named by value.serializers, value.deserializers and the same with key.")
    for name, stages in chains.items():
        if stages:
            console.print(_table(name, stages))
    for title, content in (("for the consumer", consumer), ("for the Kafka client", client)):
        settings = Table(title=title, title_justify="left", show_header=False)
        settings.add_column()
        settings.add_column(overflow="fold")
        for key, value in content.items():
            settings.add_row(Text(key), Text(str(value)))
        if content:
            console.print(settings)
    return []


def _stage(item: StageItem, side: Side, config: Config) -> dict[str, Any]:
    kind = stage_type(item, side)
    if not (isinstance(kind, type) and issubclass(kind, Stage)):
        return {"takes": "?", "gives": "?", "settings": {}}
    merged = {**config, **item.options}
    options = kind.options_for(merged)
    settings = {key: value for option in options for key, value in _settings(option, merged, options)}
    return {"takes": str(kind.takes or "any"), "gives": str(kind.gives or "any"), "settings": settings}


def _settings(option: Option[Any], config: Config, options: Options) -> list[tuple[str, object]]:
    """The option's keys that are set, and its default if it has one."""
    given = [(key, _shown(key, config[key], options)) for key in config if option.matches(key)]
    if given or option.default in (None, "", ()) or callable(option.default):
        return given
    default = ", ".join(option.default) if isinstance(option.default, tuple) else option.default
    return [(option.name, f"{str(default).lower()} (default)")]


def _shown(key: str, value: object, options: Options) -> object:
    """A value without secrets.

    Secrets of libraries are known by their names, addresses may hold passwords, and a store may have its own options.
    """
    if configuration.is_secret(key, options) or any(word in key for word in _SECRET_WORDS):
        return _HIDDEN
    if isinstance(value, Mapping):
        return {name: _shown(str(name), item, options) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(key, item, options) for item in value]
    if isinstance(value, str) and "://" in value and "@" in value:
        scheme, _, rest = value.partition("://")
        return f"{scheme}://{_HIDDEN}@{rest.rpartition('@')[2]}"
    return value


def _table(name: str, stages: list[dict[str, Any]]) -> Table:
    table = Table("", "stage", "takes", "gives", "settings", title=name, title_justify="left", show_lines=True)
    for number, stage in enumerate(stages, 1):
        settings = "\n".join(f"{key} = {_short(value)}" for key, value in stage["settings"].items())
        table.add_row(str(number), *map(Text, (stage["stage"], stage["takes"], stage["gives"], settings)))
    return table


def _short(value: object) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(value: object) -> str:
    """A value on one line; a store's own options as they stand in TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_text(item)}" for name, item in value.items()) + "}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
