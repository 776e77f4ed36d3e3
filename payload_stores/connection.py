"""Connection and login settings of a Kafka client, selected from its whole configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NAMES: Final = ("bootstrap.servers", "metadata.broker.list", "client.id", "oauth_cb", "broker.address.family")
_PREFIXES: Final = ("sasl.", "security.", "ssl.", "enable.ssl.", "socket.", "https.", "client.dns.")


def can_connect(config: Mapping[str, object]) -> bool:
    """Whether a configuration names a broker.

    Example:
        >>> can_connect({"bootstrap.servers": "localhost:9092"}), can_connect({"sasl.username": "alice"})
        (True, False)
    """
    return bool(config.get("bootstrap.servers") or config.get("metadata.broker.list"))


def connection_settings(config: Mapping[str, object]) -> dict[str, object]:
    """The settings a second client needs to connect like the configured one, including secrets.

    Example:
        >>> connection_settings({"bootstrap.servers": "localhost:9092", "acks": "all"})
        {'bootstrap.servers': 'localhost:9092'}
    """
    return {key: value for key, value in config.items() if key in _NAMES or key.startswith(_PREFIXES)}
