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
from typing import Any

from serde_chain import config as configuration
from serde_chain.chain import DeserializerChain, SerializerChain
from serde_chain.clients.client_chains import single_deserializer, single_serializer
from serde_chain.clients.limits import MESSAGE_MAX

__all__ = ["DeserializerChainBuilder", "SerializerChainBuilder"]


class SerializerChainBuilder:
    """Builds the chain of ``key.serializers`` or ``value.serializers`` from a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[SerializerChain, dict[str, Any]]:
        """Build the chain, which offloads payloads that the client would refuse to send.

        The size of a key is unknown while its value is serialized: 4 KiB are kept free for it. The topic's own limit is
        not considered.

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
        resolved = configuration.resolve(conf)
        return single_serializer(resolved, MESSAGE_MAX, is_key=is_key), configuration.client_config(resolved)


class DeserializerChainBuilder:
    """Builds the chain of ``key.deserializers`` or ``value.deserializers`` from a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[DeserializerChain, dict[str, Any]]:
        """Build the chain; see :meth:`SerializerChainBuilder.build`."""
        resolved = configuration.resolve(conf)
        return single_deserializer(resolved, is_key=is_key), configuration.client_config(resolved)
