"""Routes: settings for the topics of certain names (``large.message.route.<name>.topics`` and what stands beside it).

A route's settings are laid over those of the whole configuration. A key stands under the route whole
(``large.message.route.images.s3.bucket``); of the stage's own keys, ``large.message.`` may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from payload_stores.base import PayloadStore
from payload_stores.options import Option, listing
from serde_chain.errors import ConfigError
from serde_chain.stages.large_message.options import OF_READERS, OF_ROUTES, OF_WRITERS, STORE

__all__ = ["PREFIX", "ByTopic", "Route", "route_options", "routes_of"]

T = TypeVar("T")
U = TypeVar("U")

PREFIX: Final = "large.message.route."
_STAGE: Final = "large.message."
_TOPICS: Final = "topics"
_REMEMBERED: Final = 1024
_STAGE_KEYS: Final = frozenset(option.name for option in (*OF_WRITERS, *OF_READERS, *PayloadStore.options))
_SHARED: Final = _STAGE_KEYS - {option.name for option in (*OF_ROUTES, *PayloadStore.options)}


class Route(NamedTuple):
    """Settings for some topics.

    Attributes:
        name: Its name in the configuration.
        topics: Names of topics, or globs.
        own: What stands under it, by whole keys.
        config: The whole configuration as it is for these topics.
    """

    name: str
    topics: tuple[str, ...]
    own: Mapping[str, object]
    config: Mapping[str, object]

    def takes(self, topic: str) -> bool:
        """Whether a topic is one of the route's."""
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Let errors of the configuration say that they are about the route."""
        try:
            yield
        except ConfigError as error:
            error.message = f"in the route {self.name}: {error.message}"
            if error.key in self.own:
                error.key = f"{PREFIX}{self.name}.{error.key}"
            raise


class ByTopic(Generic[T]):
    """What each route has, found by the topic; the first route that names it counts.

    Args:
        routes: The routes, in the order of the configuration, and what each has.
    """

    def __init__(self, routes: Iterable[tuple[Route, T]] = ()) -> None:
        self._routes = tuple(routes)
        # Producers use a topic again and again, and each glob is a regular expression.
        self.find: Callable[[str], T | None] = lru_cache(_REMEMBERED)(self._find)

    def _find(self, topic: str) -> T | None:
        return next((one for route, one in self._routes if route.takes(topic)), None)

    def map(self, change: Callable[[T], U]) -> ByTopic[U]:
        """The same routes, with something else each."""
        changed: list[tuple[Route, U]] = []
        for route, one in self._routes:
            with route.explained():
                changed.append((route, change(one)))
        return ByTopic(changed)

    def __iter__(self) -> Iterator[T]:
        return (one for _route, one in self._routes)


def _keys(route: str, option: Option[Any]) -> tuple[str, ...]:
    """The keys by which a route has an option: whole, and without ``large.message.`` where it begins so."""
    short = option.name.removeprefix(_STAGE)
    return tuple(f"{PREFIX}{route}.{name}" for name in dict.fromkeys((short, option.name)))


def route_options(
    config: Mapping[str, object], options_of: Callable[[Mapping[str, object]], Iterable[Option[Any]]]
) -> tuple[Option[Any], ...]:
    """The options of all routes, each with its own keys, so that a misspelt one is refused with the nearest.

    Args:
        config: The flat configuration.
        options_of: The options that stores have beside the stage's, by a configuration as it is for one route.
    """
    options: list[Option[Any]] = []
    for name, own in _by_name(config).items():
        options.append(_topics(name))
        of_stores = options_of(_laid_over(config, _whole(own)))
        # Those that all topics share have names as well: what refuses them says why.
        for option in dict.fromkeys((*OF_WRITERS, *OF_READERS, *PayloadStore.options, *of_stores)):
            # What is not set under the route has the value of the whole configuration: neither default nor required.
            options += (replace(option, name=key, required=False, default=None) for key in _keys(name, option))
    return tuple(options)


def routes_of(config: Mapping[str, object]) -> tuple[Route, ...]:
    """Read the routes of a configuration.

    Args:
        config: The flat configuration.

    Returns:
        The routes, in the order in which their topics are named.

    Raises:
        ConfigError: A route names no topics, or one setting twice.
    """
    by_name = _by_name(config)
    named = [name for key in config if (name := _route_of(key)) in by_name and key == _topics(name).name]
    routes = []
    for name in dict.fromkeys([*named, *by_name]):
        topics = _topics(name).read(config)
        if not topics:
            raise ConfigError(f"{_topics(name).name} names no topic", key=_topics(name).name)
        _refuse_twice(name, by_name[name])
        own = _whole(by_name[name])
        for key in own.keys() & _SHARED:
            raise ConfigError(
                f"{PREFIX}{name} has {key}, a setting that all topics share",
                hint=f"Set {key} outside of the route",
                key=f"{PREFIX}{name}.{key}",
            )
        routes.append(Route(name, topics, own, _laid_over(config, own)))
    return tuple(routes)


def _topics(name: str) -> Option[tuple[str, ...]]:
    return Option(
        f"{PREFIX}{name}.{_TOPICS}",
        listing,
        (),
        required=True,
        doc="names or globs of the topics for which the route's settings hold; the first route counts",
    )


def _route_of(key: str) -> str:
    """The name of the route that a key belongs to; empty for other keys."""
    name, dot, rest = key.removeprefix(PREFIX).partition(".")
    return name if key.startswith(PREFIX) and dot and rest else ""


def _by_name(config: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """What stands under each route, as it is written."""
    routes: dict[str, dict[str, object]] = {}
    for key, value in config.items():
        if name := _route_of(key):
            rest = key.removeprefix(f"{PREFIX}{name}.")
            routes.setdefault(name, {}).update({} if rest == _TOPICS else {rest: value})
    return routes


def _whole(own: Mapping[str, object]) -> dict[str, object]:
    """What stands under a route, by whole keys: those without ``large.message.`` have it in the configuration's own."""
    return {_full(key): value for key, value in own.items()}


def _full(key: str) -> str:
    return _STAGE + key if _STAGE + key in _STAGE_KEYS else key


def _refuse_twice(name: str, own: Iterable[str]) -> None:
    seen: set[str] = set()
    for key in own:
        if _full(key) in seen:
            raise ConfigError(
                f"{PREFIX}{name}.{_full(key)} is set twice, with and without the inner {_STAGE}",
                hint="Leave one of them out",
                key=f"{PREFIX}{name}.{key}",
            )
        seen.add(_full(key))


def _laid_over(config: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """The configuration as it is for a route's topics."""
    plain = {key: value for key, value in config.items() if not key.startswith(PREFIX)}
    store = plain.get(STORE.name)
    if isinstance(store, Mapping):
        # What a store has by itself comes before the configuration, but not before the route.
        plain[STORE.name] = {key: own.get(key, value) for key, value in store.items()}
    return {**plain, **own}
