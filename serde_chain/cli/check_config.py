"""``serde-chain check-config``: the result of a configuration file."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click
from rich.console import Console

from payload_stores.options import Option
from serde_chain import config as configuration
from serde_chain.base import Stage
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage
from serde_chain.cli.config_tree import config_tree
from serde_chain.cli.doctor.offline import offline, short_delivery_times
from serde_chain.cli.findings import Finding, Level
from serde_chain.cli.mistakes import check_config
from serde_chain.cli.output import Screen, plain
from serde_chain.cli.routed import large_fields_config, large_message_config, threshold_of
from serde_chain.clients.client_chains import DOWNLOADS_BYTES_OF_CONSUMERS
from serde_chain.config import CLIENT_OPTIONS, Config, Resolved
from serde_chain.record import KEY, VALUE
from serde_chain.schemas.schema_registry import idle_options
from serde_chain.stages.avro.native import NATIVE, absence, library
from serde_chain.stages.large_message.options import ACCEPT, DOWNLOADS_BYTES, ID, STORE, THRESHOLD
from serde_chain.stages.large_message.routes import Route, routes_of
from serde_chain.stages.large_message.stores import LargeMessage

Options: TypeAlias = Collection[Option[Any]]

_HIDDEN = "********"
# What else there is to say of a default.
_MORE = {
    ACCEPT.name: "; with the store hop, hop too",
    # Kafka-python and chains without a client do not ask for that.
    ID.name: "; content if the client sees that the topic is compacted",
}
_SECRET_WORDS = (
    "password", "secret", "token", "credential", "user.info", "jaas", "private", "access.key", "ssl.key",
    "encryption.keys",
)  # fmt: skip


def print_config(path: Path, topics: Iterable[str] = (), *, as_json: bool) -> list[Finding]:
    """Check a configuration file like a producer and a consumer, and print its chains and client settings.

    Args:
        path: The file.
        topics: Topics for which to show where large messages go.
        as_json: Print JSON instead of a tree.

    Returns:
        Its mistakes, in the order of their lines; nothing is printed if there are any.

    Raises:
        ConfigError: The file is unreadable.
    """
    with _warnings_once():
        resolved, wrong = check_config(path)
    if resolved is None:
        return wrong
    config = resolved.settings
    for finding in (*short_delivery_times(config), *offline(resolved)):
        if finding.level is not Level.OK:  # a client starts all the same, so each is a warning
            _warn(finding.text)
    client = {key: _shown(key, value, ()) for key, value in resolved.client.items()}
    consumer = {name: config[name] for name in (option.name for option in CLIENT_OPTIONS) if name in config}
    places = _places(resolved)
    by_topic = {topic: next(place for place in places if place.takes(topic)) for topic in topics if places}
    content = {
        "chains": _chains(resolved),
        "consumer": consumer,
        "client": client,
        "routes": {place.name: place.shown for place in places if place.name},
        "topics": {topic: {"route": place.name or None, **place.shown} for topic, place in by_topic.items()},
    }
    if as_json:
        click.echo(json.dumps(content, default=str))
    else:
        routed = {", ".join(place.topics): {"route": place.name, **place.shown} for place in places}
        Screen().print(config_tree(path.name, content, routed if len(places) > 1 else {}))
    return []


class _Once(logging.Handler):
    """Prints each warning once, even if several chains and routes have the store."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self._seen:
            self._seen.add(message)
            _warn(message)


def _warn(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print(plain(f"Warning: {message}"))


@contextmanager
def _warnings_once() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("payload_stores", "serde_chain")]
    handler = _Once()
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@dataclass(frozen=True)
class _Place:
    """The destination of some topics' large messages and fields.

    Attributes:
        name: The route's name; empty for topics without a route.
        topics: Names of the topics, or globs.
        shown: The store, the threshold of whole values if they are moved, and the route's other settings, without
            secrets.
    """

    name: str
    topics: tuple[str, ...]
    shown: dict[str, Any]

    def takes(self, topic: str) -> bool:
        return not self.name or Route(self.name, self.topics, {}, {}).takes(topic)


def _places(config: Resolved) -> list[_Place]:
    """The destinations of payloads: by route, then without a route; empty if no chain offloads."""
    of_values = large_message_config(config)
    merged = large_fields_config(config) if of_values is None else of_values
    if merged is None:
        return []
    options = LargeMessage.options_for(merged)
    rest = Route("", ("all others",), {}, merged)
    return [_place(route, options, whole=of_values is not None) for route in (*routes_of(merged), rest)]


def _place(route: Route, options: Options, *, whole: bool) -> _Place:
    shown: dict[str, Any] = {
        "topics": list(route.topics),
        "store": _shown(STORE.name, STORE.read(route.config), options),
        **({"threshold": threshold_of(route.config)} if whole else {}),
    }
    own = {key: value for key, value in route.own.items() if key not in {STORE.name, THRESHOLD.name}}
    shown["settings"] = {key: _shown(key, value, options) for key, value in own.items()}
    return _Place(route.name, route.topics, shown)


def _chains(config: Resolved) -> dict[str, list[dict[str, Any]]]:
    """The stages of each chain, with their settings."""
    return {
        f"{KEY if is_key else VALUE}.{side.word}s": [
            {"stage": stage.label, **_stage(stage)} for stage in config.of(side, is_key=is_key)
        ]
        for side in (SERIALIZE, DESERIALIZE)
        for is_key in (True, False)
    }


def _stage(stage: ConfiguredStage) -> dict[str, Any]:
    kind, config = stage.kind, stage.settings
    if not (isinstance(kind, type) and issubclass(kind, Stage)):
        return {"takes": "?", "gives": "?", "settings": {}}
    idle = idle_options(config)
    settings = {
        key: value
        for option in stage.options
        for key, value in _settings(option, config, stage.options, shows_default=option not in idle)
    }
    return {"takes": str(kind.takes or "any"), "gives": str(kind.gives or "any"), "settings": settings}


def _settings(
    option: Option[Any], config: Config, options: Options, *, shows_default: bool
) -> list[tuple[str, object]]:
    """The option's configured keys, and its default if it has one."""
    given = [(key, _shown(key, config[key], options)) for key in config if option.matches(key)]
    if given or not shows_default or option.default in (None, "", ()) or callable(option.default):
        return given
    if option is DOWNLOADS_BYTES:
        return [(option.name, f"{DOWNLOADS_BYTES_OF_CONSUMERS} (default; {option.default} in Spark)")]
    default = ", ".join(option.default) if isinstance(option.default, tuple) else option.default
    if option is NATIVE:
        return [(option.name, f"{default} (default; {'compiled' if library() else f'serde-chain is {absence()}'})")]
    return [(option.name, f"{str(default).lower()} (default{_MORE.get(option.name, '')})")]


def _shown(key: str, value: object, options: Options) -> object:
    """A value without secrets.

    Secrets of libraries are recognized by name, addresses may contain passwords, and stores may have their own options.
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
