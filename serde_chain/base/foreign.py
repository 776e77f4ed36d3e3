"""Callables of others as stages: what they may need from a chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "SupportsAsyncClose",
    "SupportsAsyncClusterId",
    "SupportsBuild",
    "SupportsClose",
    "SupportsClusterId",
    "SupportsConfigure",
]


@runtime_checkable
class SupportsConfigure(Protocol):
    """A class that is not a stage, and is configured like one (KIP-1159, ``configure``)."""

    def configure(self, config: Mapping[str, object], is_key: bool, /) -> object:
        """Take the client's configuration; as :meth:`Stage.configure`."""


@runtime_checkable
class SupportsClose(Protocol):
    """A foreign callable that holds resources."""

    def close(self) -> object:
        """Release them."""


@runtime_checkable
class SupportsBuild(Protocol):
    """A builder of Confluent's, which makes a serializer for their clients. A chain takes what it builds."""

    def build(self, conf: Mapping[str, object], is_key: bool, /) -> tuple[Any, Mapping[str, object]]:
        """Build a serializer; returns it, and what is left of the configuration."""


@runtime_checkable
class SupportsAsyncClose(Protocol):
    """A foreign callable that is closed from a coroutine, as those of Confluent's asyncio clients."""

    def aclose(self) -> Awaitable[object]:
        """Release what it holds."""


@runtime_checkable
class SupportsClusterId(Protocol):
    """A foreign callable that needs the cluster's id, as Confluent's serializers do."""

    def set_cluster_id_resolver(self, resolver: Callable[..., Any], /) -> object:
        """Take a function that returns the cluster's id."""


@runtime_checkable
class SupportsAsyncClusterId(Protocol):
    """The same, of Confluent's asyncio serializers."""

    def set_async_cluster_id_resolver(self, resolver: Callable[..., Any], /) -> object:
        """Take a coroutine function that returns the cluster's id."""
