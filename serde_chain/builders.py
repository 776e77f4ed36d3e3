"""Chains as builders, for the clients of confluent_kafka 2.16 that make and close their own serializers.

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
from typing import Any, TypeVar

from serde_chain import config as configuration
from serde_chain.chain import DeserializerChain, SerializerChain

__all__ = ["DeserializerChainBuilder", "SerializerChainBuilder"]

ChainT = TypeVar("ChainT", SerializerChain, DeserializerChain)


class SerializerChainBuilder:
    """Builds the chain of ``key.serializers`` or ``value.serializers`` out of a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[SerializerChain, dict[str, Any]]:
        """Build the chain.

        Args:
            conf: The client's configuration.
            is_key: Whether for keys.

        Returns:
            The chain, and what is left for the client.

        Raises:
            ConfigError: The configuration of chains, stages or stores is wrong.
            MissingDependencyError: An extra is not installed.
        """
        return _build(SerializerChain, conf, is_key=is_key)


class DeserializerChainBuilder:
    """Builds the chain of ``key.deserializers`` or ``value.deserializers`` out of a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[DeserializerChain, dict[str, Any]]:
        """Build the chain; as :meth:`SerializerChainBuilder.build`."""
        return _build(DeserializerChain, conf, is_key=is_key)


def _build(chain: type[ChainT], conf: Mapping[str, object], *, is_key: bool) -> tuple[ChainT, dict[str, Any]]:
    resolved = configuration.resolve(conf)
    configuration.check_keys(resolved)
    return chain.from_config(resolved, is_key=is_key), configuration.client_config(resolved)
