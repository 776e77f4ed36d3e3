"""Callbacks of a client's configuration that are coroutine functions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final

from serde_chain.clients.event_loop import on_loop

_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_commit")


def with_callbacks(config: Mapping[str, object]) -> dict[str, object]:
    """A client's configuration whose coroutine callbacks run on the current event loop.

    Args:
        config: The configuration. Other callbacks are unchanged; the client calls them in its thread.

    Example:
        >>> with_callbacks({"bootstrap.servers": "localhost:9092"})
        {'bootstrap.servers': 'localhost:9092'}
    """
    return {
        key: on_loop(value) if key in _CALLBACKS and inspect.iscoroutinefunction(value) else value
        for key, value in config.items()
    }
