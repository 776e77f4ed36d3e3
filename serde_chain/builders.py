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
from typing import Any, ClassVar, TypeVar

from payload_stores.options import Option
from serde_chain import config as configuration
from serde_chain.chain import DeserializerChain, SerializerChain
from serde_chain.clients.client_chains import limited_chain
from serde_chain.clients.limits import KEY_ROOM, MESSAGE_MAX, ClientLimits

__all__ = ["DeserializerChainBuilder", "SerializerChainBuilder"]

ChainT = TypeVar("ChainT", SerializerChain, DeserializerChain)


class SerializerChainBuilder:
    """Builds the chain of ``key.serializers`` or ``value.serializers`` from a client's configuration.

    Attributes:
        limit: The client's setting for the largest record.
    """

    limit: ClassVar[Option[int]] = MESSAGE_MAX

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
        chain, rest = _build(SerializerChain, conf, is_key=is_key)
        try:
            max_bytes, room = self.limit.read(configuration.resolve(conf).settings), 0 if is_key else KEY_ROOM
            limited = limited_chain(
                chain,
                lambda _, overhead, for_key: ClientLimits(
                    max_bytes, overhead + room, None, is_key=for_key, setting=self.limit.name
                ),
                is_key=is_key,
            )
        except BaseException:
            chain.close()
            raise
        return limited, rest


class DeserializerChainBuilder:
    """Builds the chain of ``key.deserializers`` or ``value.deserializers`` from a client's configuration."""

    def build(self, conf: Mapping[str, object], is_key: bool) -> tuple[DeserializerChain, dict[str, Any]]:
        """Build the chain; see :meth:`SerializerChainBuilder.build`."""
        return _build(DeserializerChain, conf, is_key=is_key)


def _build(chain: type[ChainT], conf: Mapping[str, object], *, is_key: bool) -> tuple[ChainT, dict[str, Any]]:
    resolved = configuration.resolve(conf)
    configuration.check_keys(resolved)
    return chain.from_config(resolved, is_key=is_key), configuration.client_config(resolved)
