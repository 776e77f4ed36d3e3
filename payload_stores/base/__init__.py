"""The contract of a payload store (KIP-1159, "PayloadStore").

A store's author reads ``store.py``: every store's methods, and the optional abilities, each a Protocol.

=================  =========================================================================================
``store.py``       the contract
``values.py``      what its methods take and return
``checks.py``      settings and checks that all stores share
``signatures.py``  which arguments a method takes
``capability.py``  how ``isinstance`` decides on an ability; only middleware needs it
=================  =========================================================================================

Example:
    >>> import io
    >>> from datetime import UTC
    >>> from payload_stores import open_store
    >>> store = open_store("memory", {"large.message.max.payload.bytes": "1000"})
    >>> store.configure({})
    >>> one = store.publish("tour", b"payload", PublishContext(payload_id="1"))
    >>> one == store.reference("tour", "1"), store.owns(one), store.claim(one), store.topic_of(one)
    (True, True, 1, 'tour')
    >>> store.id(b"payload", PublishContext("content"))
    '239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5'
    >>> store.download(one), store.download_verified(one, size=7), store.read_range(one, 3, 2)
    (b'payload', b'payload', b'lo')
    >>> with store.open(store.publish_stream("tour", io.BytesIO(b"file"), PublishContext(payload_id="4"))) as file:
    ...     file.read()
    b'file'
    >>> store.delete("memory:///tour/4")
    >>> isinstance(store, SupportsClock), store.now().tzinfo is UTC, store.worst_case_ms()
    (True, True, None)
    >>> isinstance(store, SupportsInfo), store.info(one).size, [info.size for info in store.list("tour")]
    (True, 7, [7])
    >>> two, three = (store.publish("tour", b"", PublishContext(payload_id=name)) for name in "23")
    >>> [info.reference for info in store.list_range("tour", after="1", until="2")]
    ['memory:///tour/2']
    >>> store.delete(one), store.delete_many([two, three]), [*store.list("tour")]
    (None, {}, [])
    >>> store.close()
"""

from typing import Final

from payload_stores.base import store
from payload_stores.base.capability import Capability
from payload_stores.base.store import (
    PayloadStore,
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
from payload_stores.base.values import Lifetimes, PayloadInfo, PublishContext, RecordWriter
from payload_stores.buffers import Buffer
from payload_stores.records import StoredRecord

CAPABILITIES: Final = tuple(item for item in vars(store).values() if isinstance(item, Capability))
"""All optional abilities of a :class:`PayloadStore`; a middleware has those of its inner store."""

__all__ = [
    "CAPABILITIES", "Buffer", "Lifetimes", "PayloadInfo", "PayloadStore", "PublishContext", "RecordWriter",
    "StoredRecord", "SupportsClock", "SupportsDelete", "SupportsDeleteMany", "SupportsExpiration", "SupportsInfo",
    "SupportsLeftoverCount", "SupportsLeftovers", "SupportsLifetimes", "SupportsList", "SupportsListRange",
    "SupportsOptOut", "SupportsPreparation", "SupportsRanges", "SupportsRecords", "SupportsRetryCount",
    "SupportsStreaming", "SupportsTopics", "SupportsTransactions",
]  # fmt: skip
