"""Serializer chains and large messages for Kafka and Spark.

Public names are loaded when they are first used, so that importing the package needs no third-party library and costs
next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serde_chain.base import Data, Deserializer, Serializer, StagePair
    from serde_chain.chain import DeserializerChain, SerializerChain
    from serde_chain.clients.aio.consumer import AsyncConsumer
    from serde_chain.clients.aio.producer import AsyncProducer
    from serde_chain.clients.confluent.consumer import Consumer
    from serde_chain.clients.confluent.producer import Producer
    from serde_chain.clients.confluent.share_consumer import ShareConsumer
    from serde_chain.errors import (
        ConfigError,
        DecodeError,
        DecryptionError,
        EncodeError,
        ForeignFormatError,
        ForkedClientError,
        JournalError,
        MessageTooLargeError,
        MissingDependencyError,
        PayloadAccessDeniedError,
        PayloadIntegrityError,
        PayloadNotFoundError,
        PayloadRetractedError,
        PayloadStoreError,
        PayloadStoreUnavailableError,
        PayloadTooLargeError,
        SchemaRegistryError,
        SerializationError,
        TopicLimitError,
        UnknownKeyError,
        UntrustedReferenceError,
    )
    from serde_chain.handles import PayloadHandle
    from serde_chain.record import RecordContext
    from serde_chain.transfer import Transfer

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "ConfigError",
    "Consumer",
    "Data",
    "DecodeError",
    "DecryptionError",
    "Deserializer",
    "DeserializerChain",
    "EncodeError",
    "ForeignFormatError",
    "ForkedClientError",
    "JournalError",
    "MessageTooLargeError",
    "MissingDependencyError",
    "PayloadAccessDeniedError",
    "PayloadHandle",
    "PayloadIntegrityError",
    "PayloadNotFoundError",
    "PayloadRetractedError",
    "PayloadStoreError",
    "PayloadStoreUnavailableError",
    "PayloadTooLargeError",
    "Producer",
    "RecordContext",
    "SchemaRegistryError",
    "SerializationError",
    "Serializer",
    "SerializerChain",
    "ShareConsumer",
    "StagePair",
    "TopicLimitError",
    "Transfer",
    "UnknownKeyError",
    "UntrustedReferenceError",
]

_PUBLIC = frozenset(__all__)
_CLIENTS = frozenset({"AsyncConsumer", "AsyncProducer", "Consumer", "Producer", "ShareConsumer"})
# The clients say what to install when they are asked for; `from serde_chain import *` asks for nothing in particular.
if not TYPE_CHECKING and find_spec("confluent_kafka") is None:
    __all__ = [name for name in __all__ if name not in _CLIENTS]

_MODULES = {
    "AsyncConsumer": "clients.aio.consumer",
    "AsyncProducer": "clients.aio.producer",
    "Consumer": "clients.confluent.consumer",
    "Data": "base",
    "Deserializer": "base",
    "DeserializerChain": "chain",
    "PayloadHandle": "handles",
    "Producer": "clients.confluent.producer",
    "RecordContext": "record",
    "Serializer": "base",
    "SerializerChain": "chain",
    "ShareConsumer": "clients.confluent.share_consumer",
    "StagePair": "base",
    "Transfer": "transfer",
}


if not TYPE_CHECKING:  # type checkers would take any misspelt name for one of these

    def __getattr__(name: str) -> object:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
