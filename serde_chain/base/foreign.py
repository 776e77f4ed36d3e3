"""Foreign callables as stages: the optional methods that a chain calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SupportsConfigure(Protocol):
    """A class that is no stage but is configured like one (KIP-1159, ``configure``)."""

    def configure(self, config: Mapping[str, object], is_key: bool, /) -> object:
        """Read the client's configuration, as :meth:`Stage.configure` does."""


@runtime_checkable
class SupportsClose(Protocol):
    """A foreign callable that holds resources."""

    def close(self) -> object:
        """Release them."""


@runtime_checkable
class SupportsBuild(Protocol):
    """One of Confluent's builders, which makes a serializer for their clients. A chain uses the result."""

    def build(self, conf: Mapping[str, object], is_key: bool, /) -> tuple[Any, Mapping[str, object]]:
        """Build a serializer; returns it and the remaining configuration."""


@runtime_checkable
class SupportsAsyncClose(Protocol):
    """A foreign callable that is closed from a coroutine, such as those of Confluent's asyncio clients."""

    def aclose(self) -> Awaitable[object]:
        """Release its resources."""


@runtime_checkable
class SupportsClusterId(Protocol):
    """A foreign callable that needs the cluster id, such as Confluent's serializers."""

    def set_cluster_id_resolver(self, resolver: Callable[..., Any], /) -> object:
        """Set the function that returns the cluster id."""


@runtime_checkable
class SupportsAsyncClusterId(Protocol):
    """The same for Confluent's asyncio serializers."""

    def set_async_cluster_id_resolver(self, resolver: Callable[..., Any], /) -> object:
        """Set the coroutine function that returns the cluster id."""
