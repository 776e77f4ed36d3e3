"""The configurations of ``large-message`` and of ``large-fields`` for each topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from serde_chain.base.kinds import moves_fields
from serde_chain.catalogue import find_format
from serde_chain.clients.limits import MESSAGE_MAX, largest_value
from serde_chain.config import Config, Resolved
from serde_chain.stages.large_fields.options import settings_of_stores
from serde_chain.stages.large_message.options import AUTO, FORMAT, KIP_THRESHOLD_BYTES, THRESHOLD
from serde_chain.stages.large_message.routes import routes_of
from serde_chain.stages.large_message.stores import LargeMessage


def large_message_config(config: Resolved) -> Config | None:
    """The configuration that ``large-message`` sees, including its own options; None without that stage."""
    return _first(config, lambda kind: issubclass(kind, LargeMessage))


def large_fields_config(config: Resolved) -> Config | None:
    """The configuration that ``large-fields`` sees, including its own options; None without that stage."""
    found = _first(config, moves_fields)
    return None if found is None else settings_of_stores(found)


def _first(config: Resolved, is_wanted: Callable[[type], bool]) -> Config | None:
    """The settings of the first stage of a kind."""
    stages = (stage for chain in config.chains.values() for stage in chain)
    return next((stage.settings for stage in stages if isinstance(stage.kind, type) and is_wanted(stage.kind)), None)


def config_of(merged: Mapping[str, object], topic: str) -> Mapping[str, object]:
    """The result of either function above for one topic: the first matching route counts."""
    return next((route.config for route in routes_of(merged) if route.takes(topic)), merged)


def threshold_of(config: Mapping[str, object]) -> int | str:
    """The maximum size of values that stay in their records, as in ``Producer``.

    Args:
        config: The result of :func:`config_of`.

    Returns:
        Size in bytes of a value without key and headers, or ``auto`` if the producer asks the broker.
    """
    threshold = THRESHOLD.read(config)
    if threshold == AUTO or find_format(FORMAT.read(config)).whole_record:
        return AUTO
    sent = largest_value(MESSAGE_MAX.read(config), None, None)
    return min(sent, KIP_THRESHOLD_BYTES if threshold is None else int(threshold))
