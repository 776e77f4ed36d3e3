"""Routes: settings per topic (``large.message.route.<name>.topics`` and the keys beside it).

A route's settings override the configuration's. A route contains full keys (``large.message.route.images.s3.bucket``);
the stage's own keys may omit ``large.message.``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

from payload_stores.base import PayloadStore
from payload_stores.options import Option, listing
from serde_chain.errors import ConfigError
from serde_chain.stages.large_message.options import OF_READERS, OF_ROUTES, OF_WRITERS, STORE

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
        own: The route's own settings, by full keys.
        config: The configuration in effect for these topics.
    """

    name: str
    topics: tuple[str, ...]
    own: Mapping[str, object]
    config: Mapping[str, object]

    def takes(self, topic: str) -> bool:
        """Whether a topic belongs to the route."""
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Name the route in configuration errors."""
        try:
            yield
        except ConfigError as error:
            error.message = f"in the route {self.name}: {error.message}"
            if error.key in self.own:
                error.key = f"{PREFIX}{self.name}.{error.key}"
            raise


class ByTopic(Generic[T]):
    """A value per route, found by topic; the first matching route counts.

    Args:
        routes: The routes in configuration order, each with its value.
    """

    def __init__(self, routes: Iterable[tuple[Route, T]] = ()) -> None:
        self._routes = tuple(routes)
        # Topics repeat, and each glob compiles to a regular expression.
        self.find: Callable[[str], T | None] = lru_cache(_REMEMBERED)(self._find)

    def _find(self, topic: str) -> T | None:
        return next((one for route, one in self._routes if route.takes(topic)), None)

    def map(self, change: Callable[[T], U]) -> ByTopic[U]:
        """The same routes with changed values."""
        changed: list[tuple[Route, U]] = []
        for route, one in self._routes:
            with route.explained():
                changed.append((route, change(one)))
        return ByTopic(changed)

    def __iter__(self) -> Iterator[T]:
        return (one for _route, one in self._routes)


def _keys(route: str, option: Option[Any]) -> tuple[str, ...]:
    """The keys of an option in a route: the full one, and the one without a leading ``large.message.``."""
    short = option.name.removeprefix(_STAGE)
    return tuple(f"{PREFIX}{route}.{name}" for name in dict.fromkeys((short, option.name)))


def route_options(
    config: Mapping[str, object], options_of: Callable[[Mapping[str, object]], Iterable[Option[Any]]]
) -> tuple[Option[Any], ...]:
    """The options of all routes under their own keys, so that a misspelt key is refused with the nearest one.

    Args:
        config: The flat configuration.
        options_of: Returns the options of the stores, for the configuration in effect for one route.
    """
    options: list[Option[Any]] = []
    for name, own in _by_name(config).items():
        options.append(_topics(name))
        of_stores = options_of(_laid_over(config, _whole(own)))
        # Settings shared by all topics are included: routes_of refuses them with a reason.
        for option in dict.fromkeys((*OF_WRITERS, *OF_READERS, *PayloadStore.options, *of_stores)):
            # A setting absent from the route falls back to the configuration: neither default nor required.
            options += (option.changed(name=key, required=False, default=None) for key in _keys(name, option))
    return tuple(options)


def routes_of(config: Mapping[str, object]) -> tuple[Route, ...]:
    """Read the routes of a configuration.

    Args:
        config: The flat configuration.

    Returns:
        The routes, in the order of their ``topics`` keys.

    Raises:
        ConfigError: A route names no topics, or sets one key twice.
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
                hint=f"Set {key} outside the route",
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
        doc="names or globs of the topics that the route applies to; the first matching route counts",
    )


def _route_of(key: str) -> str:
    """The name of a key's route; empty for other keys."""
    name, dot, rest = key.removeprefix(PREFIX).partition(".")
    return name if key.startswith(PREFIX) and dot and rest else ""


def _by_name(config: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """The settings of each route, as written."""
    routes: dict[str, dict[str, object]] = {}
    for key, value in config.items():
        if name := _route_of(key):
            rest = key.removeprefix(f"{PREFIX}{name}.")
            routes.setdefault(name, {}).update({} if rest == _TOPICS else {rest: value})
    return routes


def _whole(own: Mapping[str, object]) -> dict[str, object]:
    """A route's settings by full keys: a key without ``large.message.`` gets it if the result is a key of the stage."""
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
    """The configuration in effect for a route's topics."""
    plain = {key: value for key, value in config.items() if not key.startswith(PREFIX)}
    store = plain.get(STORE.name)
    if isinstance(store, Mapping):
        # A store's own options override the configuration, but not the route.
        plain[STORE.name] = {key: own.get(key, value) for key, value in store.items()}
    return {**plain, **own}
