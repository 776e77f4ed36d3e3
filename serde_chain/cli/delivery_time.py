"""Idempotent producers with a short delivery timeout: longer outages write other records twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from payload_stores.options import Option, boolean, integer
from serde_chain.config import Config

__all__ = ["short_delivery_times"]

_IDEMPOTENCE: Final = Option("enable.idempotence", boolean, False)
_TRANSACTIONAL_ID: Final = "transactional.id"
# librdkafka's default for both names.
_LONG_MS: Final = 300_000
_TIMES: Final = tuple(Option(name, integer(0), _LONG_MS) for name in ("message.timeout.ms", "delivery.timeout.ms"))


def short_delivery_times(config: Config) -> Iterator[tuple[str, str]]:
    """Find a delivery timeout that is too short for an idempotent producer (librdkafka's issue 4953).

    Args:
        config: A flat configuration without mistakes.

    Yields:
        The problem, and the remedy.

    Example:
        >>> [(message, _)] = short_delivery_times({"enable.idempotence": "true", "message.timeout.ms": "30000"})
        >>> message
        'with enable.idempotence, an outage of more than message.timeout.ms (30 s) writes acknowledged records twice'
    """
    if not _IDEMPOTENCE.read(config) or _TRANSACTIONAL_ID in config:
        return
    for option in _TIMES:
        limit_ms = option.read(config)
        if 0 < limit_ms < _LONG_MS:  # 0 is unlimited
            longer = f"an outage of more than {option.name} ({limit_ms / 1000:g} s)"
            yield (
                f"with {_IDEMPOTENCE.name}, {longer} writes acknowledged records twice",
                f"Set {option.name} well above any outage ({_LONG_MS} or more), or use transactions",
            )
