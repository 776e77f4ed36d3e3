"""Payload stores, for payloads too large for a record.

Public names are loaded on first use, so that each import costs only what it uses.
"""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from payload_stores.base import Lifetimes as Lifetimes
    from payload_stores.base import PayloadInfo as PayloadInfo
    from payload_stores.base import PayloadStore as PayloadStore
    from payload_stores.base import PublishContext as PublishContext
    from payload_stores.base import RecordWriter as RecordWriter
    from payload_stores.base import StoredRecord as StoredRecord
    from payload_stores.base import SupportsClock as SupportsClock
    from payload_stores.base import SupportsDelete as SupportsDelete
    from payload_stores.base import SupportsDeleteMany as SupportsDeleteMany
    from payload_stores.base import SupportsExpiration as SupportsExpiration
    from payload_stores.base import SupportsInfo as SupportsInfo
    from payload_stores.base import SupportsLeftoverCount as SupportsLeftoverCount
    from payload_stores.base import SupportsLeftovers as SupportsLeftovers
    from payload_stores.base import SupportsLifetimes as SupportsLifetimes
    from payload_stores.base import SupportsList as SupportsList
    from payload_stores.base import SupportsListRange as SupportsListRange
    from payload_stores.base import SupportsOptOut as SupportsOptOut
    from payload_stores.base import SupportsPreparation as SupportsPreparation
    from payload_stores.base import SupportsRanges as SupportsRanges
    from payload_stores.base import SupportsRecords as SupportsRecords
    from payload_stores.base import SupportsRetryCount as SupportsRetryCount
    from payload_stores.base import SupportsStreaming as SupportsStreaming
    from payload_stores.base import SupportsTopics as SupportsTopics
    from payload_stores.base import SupportsTransactions as SupportsTransactions
    from payload_stores.errors import ConfigError as ConfigError
    from payload_stores.errors import ForkedClientError as ForkedClientError
    from payload_stores.errors import MissingDependencyError as MissingDependencyError
    from payload_stores.errors import PayloadAccessDeniedError as PayloadAccessDeniedError
    from payload_stores.errors import PayloadIntegrityError as PayloadIntegrityError
    from payload_stores.errors import PayloadNotFoundError as PayloadNotFoundError
    from payload_stores.errors import PayloadRetractedError as PayloadRetractedError
    from payload_stores.errors import PayloadStoreError as PayloadStoreError
    from payload_stores.errors import PayloadStoreUnavailableError as PayloadStoreUnavailableError
    from payload_stores.errors import PayloadTooLargeError as PayloadTooLargeError
    from payload_stores.errors import UntrustedReferenceError as UntrustedReferenceError
    from payload_stores.expiration import propose_expiration as propose_expiration
    from payload_stores.registry import open_store as open_store
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            ".base": "Lifetimes PayloadInfo PayloadStore PublishContext RecordWriter StoredRecord "
            "SupportsClock SupportsDelete SupportsDeleteMany SupportsExpiration SupportsInfo "
            "SupportsLeftoverCount SupportsLeftovers SupportsLifetimes SupportsList SupportsListRange "
            "SupportsOptOut SupportsPreparation SupportsRanges SupportsRecords SupportsRetryCount "
            "SupportsStreaming SupportsTopics SupportsTransactions",
            ".errors": "ConfigError ForkedClientError MissingDependencyError PayloadAccessDeniedError "
            "PayloadIntegrityError PayloadNotFoundError PayloadRetractedError PayloadStoreError "
            "PayloadStoreUnavailableError PayloadTooLargeError UntrustedReferenceError",
            ".expiration": "propose_expiration",
            ".registry": "open_store",
        },
    )
