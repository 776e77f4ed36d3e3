"""The payload stores of ``large-message``: each opened once, wrapped as configured (cache, retries, deadline)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Self
from weakref import ref

from payload_stores.base import PayloadStore, SupportsRetryCount
from payload_stores.middleware import Cache, CachedPayloads, Deadline, Retry, Translated
from payload_stores.options import Option
from payload_stores.registry import ConfiguredStore
from serde_chain.base import Stage
from serde_chain.errors import ConfigError
from serde_chain.stages.large_message.options import CACHE, RETRIES, STORE, STORES, TIMEOUT
from serde_chain.stages.large_message.routes import Route, route_options
from serde_chain.telemetry import count_cache


class Stores:
    """The stores of a stage. Equally configured stores, for example of several routes, are shared.

    Example:
        >>> stores = Stores()
        >>> first, second = (stores.open("memory", {"large.message.grace.ms": grace}) for grace in (1000, 1000))
        >>> first is second
        True
    """

    def __init__(self) -> None:
        self.all: tuple[PayloadStore, ...] = ()
        self._made_of: list[tuple[object, dict[str, object]]] = []

    def open(self, spec: Any, config: Mapping[str, object]) -> PayloadStore:
        """Open a store behind its deadline, or return the open one.

        Args:
            spec: Anything that :func:`payload_stores.open_store` accepts.
            config: Flat configuration.
        """
        configured = ConfiguredStore.of(spec, config)
        made_of = configured.made_of((TIMEOUT, RETRIES, CACHE))
        if made_of in self._made_of:
            return self.all[self._made_of.index(made_of)]
        timeout_ms = TIMEOUT.read(config)
        store: PayloadStore = Translated(configured.open())
        try:
            if (attempts := RETRIES.read(config)) > 1:
                # Leave room for the last attempt's worst case, where the store knows it.
                time_ms = max(1, timeout_ms - (store.worst_case_ms() or 0))
                store = Retry(store, attempts, timeout_ms=time_ms)
            if most := CACHE.read(config):
                store = Cache(store, most, payloads=_shared_payloads(store, made_of, config, most, timeout_ms))
        except BaseException:
            store.close()
            raise
        self.all += (Deadline(store, timeout_ms, setting=TIMEOUT.name),)
        self._made_of.append(made_of)
        return self.all[-1]

    def owner(self, reference: str) -> PayloadStore | None:
        """The store of a reference: the one with the longest matching prefix; the first on a tie."""
        owner: PayloadStore | None = None
        most = 0
        for store in self.all:
            if (claim := store.claim(reference)) > most:
                owner, most = store, claim
        return owner

    def close(self) -> None:
        """Close all stores."""
        for store in self.all:
            store.close()


_shared: Final[list[tuple[Any, ref[CachedPayloads]]]] = []
_lock: Final = threading.Lock()


def _shared_payloads(
    store: PayloadStore, made_of: object, config: Mapping[str, object], most: int, timeout_ms: int
) -> CachedPayloads:
    """The payloads shared by all caches of one store in this process, for as long as any cache lives.

    Shared only between identical configurations: another user's credentials may not open the same payloads.
    """
    key = made_of, dict(config)
    with _lock:
        _shared[:] = [(other, payloads) for other, payloads in _shared if payloads() is not None]
        shared = next((found for other, payloads in _shared if other == key and (found := payloads())), None)
        if shared is None:
            shared = CachedPayloads(most, patience_ms=timeout_ms, observe=partial(count_cache, store.scheme))
            _shared.append((key, ref(shared)))
        return shared


class LargeMessage(Stage):
    """The base of both directions: stores behind a deadline."""

    moves_payloads = True
    _stores: Stores = Stores()
    _content: str | None = None
    """The message format of the neighbouring stage that makes or reads the payload, as headers name it."""

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        """The stage's own keys, and those of the configured stores."""
        routes = route_options(config, options_of_stores)
        return (*cls.options, *PayloadStore.options, *options_of_stores(config), *routes)

    def _with_content(self, content: str | None) -> Self:
        """The stage next to a neighbour of this message format; the stores are shared."""
        return self if content == self._content else self._with(_content=content)

    @property
    def timeout_ms(self) -> int:
        """Deadline of one upload or download, in ms."""
        return self._timeout_ms

    @property
    def worst_case_ms(self) -> int:
        """Longest duration of one store request in ms, by the store's own timeouts and retries."""
        return max((store.worst_case_ms() or 0 for store in self._stores.all), default=0)

    @property
    def is_closed(self) -> bool:
        """Whether the stores are closed."""
        return self._closing.is_set()

    def _begin_stores(self, config: Mapping[str, object], routes: Iterable[Route]) -> None:
        """Start without open stores."""
        configs = (config, *(route.config for route in routes))
        self._timeout_ms = max(map(TIMEOUT.read, configs))
        self._max_bytes = max(map(PayloadStore.MAX_PAYLOAD.read, configs))
        self._stores = Stores()
        self._closing = threading.Event()  # shared by the stage's copies in several chains

    @property
    def retries(self) -> int:
        """Number of requests repeated by its stores. See :class:`~payload_stores.SupportsRetryCount`."""
        return sum(store.retries for store in self._stores.all if isinstance(store, SupportsRetryCount))

    def close(self) -> None:
        """Close the stores."""
        if self._stores.all:
            self._closing.set()
            self._stores.close()


def options_of_stores(config: Mapping[str, object]) -> tuple[Option[Any], ...]:
    """The options of the configured stores."""
    named = {STORE.name: (STORE.read({STORE.name: "memory", **config}),), STORES.name: STORES.read(config)}
    of_stores = [_options(spec, key) for key, specs in named.items() for spec in specs if spec]
    return tuple(option for options in of_stores for option in options)


def _options(spec: Any, key: str) -> tuple[Option[Any], ...]:
    """The options of the store configured by a key."""
    try:
        return ConfiguredStore.of(spec, {}).options
    except ConfigError as error:
        error.add_context(key=key)
        raise


def without_deadline(store: PayloadStore) -> PayloadStore:
    """The opened store without its deadline, for callers with one deadline for several calls."""
    return store.store if isinstance(store, Deadline) else store
