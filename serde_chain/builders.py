"""Builders of chains, for the clients of confluent_kafka 2.16 that make and close their own serializers.

::

    SerializingProducer({
        "bootstrap.servers": "localhost:9092",
        "value.serializer.builder": SerializerChainBuilder(),
        "value.serializers": "avro, zstd, large-message",
        ...
    })
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from serde_chain import config as configuration
from serde_chain.chain import DeserializerChain, SerializerChain
from serde_chain.clients.client_chains import room_for_key, single_deserializer, single_serializer
from serde_chain.clients.confluent.topic_admin import ConfluentAdmin
from serde_chain.clients.limits import MESSAGE_MAX
from serde_chain.clients.topic_limits import LearntLimits, warn_of_no_question

__all__ = ["DeserializerChainBuilder", "SerializerChainBuilder"]


_SERVERS: Final = "bootstrap.servers"


class SerializerChainBuilder:
    """Builds the chain of ``key.serializers`` or ``value.serializers`` from a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[SerializerChain, dict[str, Any]]:
        """Build the chain, which offloads payloads that the client would refuse to send.

        The size of a key is unknown while its value is serialized: 4 KiB are kept free for it. With
        ``large.message.threshold.bytes = auto``, and in hop's format, the broker is asked for the topic's limit, in the
        call of the first record of each topic. The client's ``message.max.bytes`` applies as well, since a builder
        cannot change it; and ``batch.size`` must not exceed the topic's limit: librdkafka does not split batches.

        Args:
            conf: The client's configuration.
            is_key: Whether the chain is for keys.

        Returns:
            The chain, and the remaining settings for the client.

        Raises:
            ConfigError: The configuration of chains, stages or stores is wrong, or a threshold is above the client's
                limit.
            MissingDependencyError: An extra is not installed.
        """
        resolved = configuration.checked(conf)
        client: dict[str, Any] = dict(resolved.client)
        max_bytes = MESSAGE_MAX.read(resolved.settings)
        limits = LearntLimits(
            partial(ConfluentAdmin, client) if _SERVERS in client else None,
            max_bytes,
            setting=MESSAGE_MAX.name,
            room=room_for_key(is_key=is_key),
        )
        chain = single_serializer(resolved, limits, is_key=is_key)
        if _SERVERS not in client:
            setting = f"{MESSAGE_MAX.name} ({max_bytes})"
            warn_of_no_question(chain.stages, f"the configuration has no {_SERVERS}", setting)
        return chain, client


class DeserializerChainBuilder:
    """Builds the chain of ``key.deserializers`` or ``value.deserializers`` from a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[DeserializerChain, dict[str, Any]]:
        """Build the chain; see :meth:`SerializerChainBuilder.build`."""
        resolved = configuration.checked(conf)
        return single_deserializer(resolved, is_key=is_key), dict(resolved.client)
