"""Payload stores: where payloads go that are too large for a record."""

from payload_stores.base import (
    PayloadInfo,
    PayloadStore,
    PublishContext,
    StoredRecord,
    SupportsDelete,
    SupportsLeftovers,
    SupportsList,
    SupportsOptOut,
    SupportsRecords,
    SupportsStreaming,
    SupportsTopics,
)
from payload_stores.errors import (
    ConfigError,
    MissingDependencyError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    UntrustedReferenceError,
)
from payload_stores.registry import open_store

__all__ = [
    "ConfigError",
    "MissingDependencyError",
    "PayloadAccessDeniedError",
    "PayloadInfo",
    "PayloadIntegrityError",
    "PayloadNotFoundError",
    "PayloadStore",
    "PayloadStoreError",
    "PayloadStoreUnavailableError",
    "PayloadTooLargeError",
    "PublishContext",
    "StoredRecord",
    "SupportsDelete",
    "SupportsLeftovers",
    "SupportsList",
    "SupportsOptOut",
    "SupportsRecords",
    "SupportsStreaming",
    "SupportsTopics",
    "UntrustedReferenceError",
    "open_store",
]
