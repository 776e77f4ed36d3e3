"""Payload stores, for payloads too large for a record.

Public names are loaded on first use, so that each import costs only what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from payload_stores.base import (
        Lifetimes,
        PayloadInfo,
        PayloadStore,
        PublishContext,
        RecordWriter,
        StoredRecord,
        SupportsClock,
        SupportsDelete,
        SupportsDeleteMany,
        SupportsExpiration,
        SupportsInfo,
        SupportsLeftoverCount,
        SupportsLeftovers,
        SupportsLifetimes,
        SupportsList,
        SupportsListRange,
        SupportsOptOut,
        SupportsPreparation,
        SupportsRanges,
        SupportsRecords,
        SupportsRetryCount,
        SupportsStreaming,
        SupportsTopics,
        SupportsTransactions,
    )
    from payload_stores.errors import (
        ConfigError,
        ForkedClientError,
        MissingDependencyError,
        PayloadAccessDeniedError,
        PayloadIntegrityError,
        PayloadNotFoundError,
        PayloadRetractedError,
        PayloadStoreError,
        PayloadStoreUnavailableError,
        PayloadTooLargeError,
        UntrustedReferenceError,
    )
    from payload_stores.expiration import propose_expiration
    from payload_stores.registry import open_store

__all__ = [
    "ConfigError",
    "ForkedClientError",
    "Lifetimes",
    "MissingDependencyError",
    "PayloadAccessDeniedError",
    "PayloadInfo",
    "PayloadIntegrityError",
    "PayloadNotFoundError",
    "PayloadRetractedError",
    "PayloadStore",
    "PayloadStoreError",
    "PayloadStoreUnavailableError",
    "PayloadTooLargeError",
    "PublishContext",
    "RecordWriter",
    "StoredRecord",
    "SupportsClock",
    "SupportsDelete",
    "SupportsDeleteMany",
    "SupportsExpiration",
    "SupportsInfo",
    "SupportsLeftoverCount",
    "SupportsLeftovers",
    "SupportsLifetimes",
    "SupportsList",
    "SupportsListRange",
    "SupportsOptOut",
    "SupportsPreparation",
    "SupportsRanges",
    "SupportsRecords",
    "SupportsRetryCount",
    "SupportsStreaming",
    "SupportsTopics",
    "SupportsTransactions",
    "UntrustedReferenceError",
    "open_store",
    "propose_expiration",
]

_MODULES = {name: "errors" for name in __all__ if name.endswith("Error")} | {
    "open_store": "registry",
    "propose_expiration": "expiration",
}


if not TYPE_CHECKING:  # otherwise type checkers would accept any misspelt name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'base')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
