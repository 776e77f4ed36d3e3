"""Serializer chains and large messages for Kafka and Spark.

Public names are loaded when they are first used, so that importing the package needs no third-party library and costs
next to nothing.
"""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.base import Data as Data
    from serde_chain.base import Deserializer as Deserializer
    from serde_chain.base import Serializer as Serializer
    from serde_chain.base import StagePair as StagePair
    from serde_chain.chain import DeserializerChain as DeserializerChain
    from serde_chain.chain import SerializerChain as SerializerChain
    from serde_chain.clients.aio.consumer import AsyncConsumer as AsyncConsumer
    from serde_chain.clients.aio.producer import AsyncProducer as AsyncProducer
    from serde_chain.clients.confluent.consumer import Consumer as Consumer
    from serde_chain.clients.confluent.producer import Producer as Producer
    from serde_chain.clients.confluent.share_consumer import ShareConsumer as ShareConsumer
    from serde_chain.errors import ConfigError as ConfigError
    from serde_chain.errors import DecodeError as DecodeError
    from serde_chain.errors import DecryptionError as DecryptionError
    from serde_chain.errors import EncodeError as EncodeError
    from serde_chain.errors import ForeignFormatError as ForeignFormatError
    from serde_chain.errors import ForkedClientError as ForkedClientError
    from serde_chain.errors import JournalError as JournalError
    from serde_chain.errors import MessageTooLargeError as MessageTooLargeError
    from serde_chain.errors import MissingDependencyError as MissingDependencyError
    from serde_chain.errors import PayloadAccessDeniedError as PayloadAccessDeniedError
    from serde_chain.errors import PayloadIntegrityError as PayloadIntegrityError
    from serde_chain.errors import PayloadNotFoundError as PayloadNotFoundError
    from serde_chain.errors import PayloadRetractedError as PayloadRetractedError
    from serde_chain.errors import PayloadStoreError as PayloadStoreError
    from serde_chain.errors import PayloadStoreUnavailableError as PayloadStoreUnavailableError
    from serde_chain.errors import PayloadTooLargeError as PayloadTooLargeError
    from serde_chain.errors import SchemaRegistryError as SchemaRegistryError
    from serde_chain.errors import SerializationError as SerializationError
    from serde_chain.errors import TopicLimitError as TopicLimitError
    from serde_chain.errors import UnknownKeyError as UnknownKeyError
    from serde_chain.errors import UntrustedReferenceError as UntrustedReferenceError
    from serde_chain.handles import PayloadHandle as PayloadHandle
    from serde_chain.record import RecordContext as RecordContext
    from serde_chain.transfer import Transfer as Transfer
else:
    _names, _load = _lazy_names(
        __name__,
        {
            ".base": "Data Deserializer Serializer StagePair",
            ".chain": "DeserializerChain SerializerChain",
            ".clients.aio.consumer": "AsyncConsumer",
            ".clients.aio.producer": "AsyncProducer",
            ".clients.confluent.consumer": "Consumer",
            ".clients.confluent.producer": "Producer",
            ".clients.confluent.share_consumer": "ShareConsumer",
            ".errors": "ConfigError DecodeError DecryptionError EncodeError ForeignFormatError ForkedClientError "
            "JournalError MessageTooLargeError MissingDependencyError PayloadAccessDeniedError "
            "PayloadIntegrityError PayloadNotFoundError PayloadRetractedError PayloadStoreError "
            "PayloadStoreUnavailableError PayloadTooLargeError SchemaRegistryError SerializationError "
            "TopicLimitError UnknownKeyError UntrustedReferenceError",
            ".handles": "PayloadHandle",
            ".record": "RecordContext",
            ".transfer": "Transfer",
        },
    )[:2]

    def __getattr__(name: str) -> object:
        return __dir__() if name == "__all__" else _load(name)

    def __dir__() -> list[str]:
        # The clients name what to install when they are asked for; `from serde_chain import *` asks for none of them.
        from importlib.util import find_spec

        has_client = find_spec("confluent_kafka") is not None
        return [name for name in _names if has_client or not name.endswith(("Consumer", "Producer"))]
