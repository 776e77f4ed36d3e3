"""``serde-chain check-config``: what a configuration file yields."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from payload_stores.errors import ContextualError
from payload_stores.options import Option
from serde_chain import config as configuration
from serde_chain.base import Stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, Side, StageItem, stage_type
from serde_chain.cli.mistakes import mistakes
from serde_chain.config import CLIENT_OPTIONS, Config
from serde_chain.stages.large_message.options import KIP_THRESHOLD_BYTES, STORE, THRESHOLD
from serde_chain.stages.large_message.routes import Route, routes_of
from serde_chain.stages.large_message.stores import LargeMessage

__all__ = ["print_config"]

Options: TypeAlias = Collection[Option[Any]]

_HIDDEN = "********"
_SECRET_WORDS = (
    "password", "secret", "token", "credential", "user.info", "jaas", "private", "access.key", "ssl.key",
    "encryption.keys",
)  # fmt: skip


def print_config(path: Path, topics: Iterable[str] = (), *, as_json: bool) -> list[ContextualError]:
    """Check a configuration file as a producer and a consumer would, and print its chains and client settings.

    Args:
        path: The file.
        topics: Topics for which to say what becomes of their large messages.
        as_json: Print JSON instead of tables.

    Returns:
        Its mistakes; nothing is printed if there are any.

    Raises:
        ConfigError: It cannot be read.
    """
    config = configuration.load(path)
    with _warnings_once():
        wrong = mistakes(config)
    if wrong:
        return wrong
    chains = _chains(config)
    client = {key: _shown(key, value, ()) for key, value in configuration.client_config(config).items()}
    consumer = {name: config[name] for name in (option.name for option in CLIENT_OPTIONS) if name in config}
    places = _places(config)
    by_topic = {topic: next(place for place in places if place.takes(topic)) for topic in topics if places}
    content = {
        "chains": chains,
        "consumer": consumer,
        "client": client,
        "routes": {place.name: place.shown for place in places if place.name},
        "topics": {topic: {"route": place.name or None, **place.shown} for topic, place in by_topic.items()},
    }
    if as_json:
        Console().print_json(json.dumps(content, default=str))
    else:
        _print_tables(chains, places, by_topic, {"for the consumer": consumer, "for the Kafka client": client})
    return []


class _Once(logging.Handler):
    """Prints each warning of a store once, however many chains and routes have the store."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self._seen:
            self._seen.add(message)
            Console(stderr=True, soft_wrap=True).print(Text(f"Warning: {message}"))


@contextmanager
def _warnings_once() -> Iterator[None]:
    stores = logging.getLogger("payload_stores")
    handler = _Once()
    stores.addHandler(handler)
    try:
        yield
    finally:
        stores.removeHandler(handler)


@dataclass(frozen=True)
class _Place:
    """Where large messages of some topics go.

    Attributes:
        name: The route's name; empty for topics without a route.
        topics: Names of the topics, or globs.
        shown: The store, the threshold, and what else the route sets, without secrets.
    """

    name: str
    topics: tuple[str, ...]
    shown: dict[str, Any]

    def takes(self, topic: str) -> bool:
        return not self.name or Route(self.name, self.topics, {}, {}).takes(topic)


def _places(config: Config) -> list[_Place]:
    """Where large messages go: by route, and at last those without; none where no chain stores any."""
    for side in (SERIALIZE, DESERIALIZE):
        for is_key in (False, True):
            for item in configuration.stage_items(config, side, is_key=is_key):
                kind = stage_type(item, side)
                if isinstance(kind, type) and issubclass(kind, LargeMessage):
                    merged = {**config, **item.options}
                    options = kind.options_for(merged)
                    rest = Route("", ("all others",), {}, merged)
                    return [_place(route, options) for route in (*routes_of(merged), rest)]
    return []


def _place(route: Route, options: Options) -> _Place:
    threshold = THRESHOLD.read(route.config)
    shown: dict[str, Any] = {
        "topics": list(route.topics),
        "store": _shown(STORE.name, STORE.read(route.config), options),
        "threshold": KIP_THRESHOLD_BYTES if threshold is None else threshold,
    }
    own = {key: value for key, value in route.own.items() if key not in {STORE.name, THRESHOLD.name}}
    shown["settings"] = {key: _shown(key, value, options) for key, value in own.items()}
    return _Place(route.name, route.topics, shown)


def _table_of_places(title: str, places: Mapping[str, _Place]) -> Table:
    columns = ("topics", "route", "store", "threshold", "settings")
    table = Table(*map(_whole, columns), title=title, title_justify="left", show_lines=True)
    for topics, place in places.items():
        settings = "\n".join(f"{key} = {_short(value)}" for key, value in place.shown["settings"].items())
        cells = (topics, place.name or "none", _short(place.shown["store"]), str(place.shown["threshold"]), settings)
        table.add_row(*map(Text, cells))
    return table


def _chains(config: Config) -> dict[str, list[dict[str, Any]]]:
    """The stages of each chain, with their settings."""
    return {
        f"{'key' if is_key else 'value'}.{side.word}s": [
            {"stage": item.label, **_stage(item, side, config)}
            for item in configuration.stage_items(config, side, is_key=is_key)
        ]
        for side in (SERIALIZE, DESERIALIZE)
        for is_key in (True, False)
    }


def _print_tables(
    chains: Mapping[str, list[dict[str, Any]]],
    places: list[_Place],
    by_topic: Mapping[str, _Place],
    clients: Mapping[str, Mapping[str, object]],
) -> None:
    console = Console()
    if not any(chains.values()):
        console.print("The file names no chains: keys and values stay as the Kafka client takes and returns them.")
        console.print("A chain is named by value.serializers, value.deserializers and the same with key.")
    for name, stages in chains.items():
        if stages:
            console.print(_table(name, stages))
    routed = {", ".join(place.topics): place for place in places} if len(places) > 1 else {}
    for title, of_topics in (("large messages, by topic", routed), ("these topics", by_topic)):
        if of_topics:
            console.print(_table_of_places(title, of_topics))
    for title, content in clients.items():
        settings = Table(title=title, title_justify="left", show_header=False)
        settings.add_column()
        settings.add_column(overflow="fold")
        for key, value in content.items():
            settings.add_row(Text(key), Text(str(value)))
        if content:
            console.print(settings)


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
    columns = ("", "stage", "takes", "gives", "settings")
    table = Table(*map(_whole, columns), title=name, title_justify="left", show_lines=True)
    for number, stage in enumerate(stages, 1):
        settings = "\n".join(f"{key} = {_short(value)}" for key, value in stage["settings"].items())
        table.add_row(str(number), *map(Text, (stage["stage"], stage["takes"], stage["gives"], settings)))
    return table


def _whole(header: str) -> Column:
    """A column that breaks keys which are longer than a line, instead of cutting them off."""
    return Column(header, overflow="fold")


def _short(value: object) -> str:
    text = " ".join(_text(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _text(value: object) -> str:
    """A value on one line; a store's own options as they stand in TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_text(item)}" for name, item in value.items()) + "}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
