"""The payload store contract (KIP-1159, "PayloadStore").

A store's author needs ``store.py``. Each optional capability is a Protocol in a separate file: a store implements its
methods, and callers check for it with ``isinstance(store, SupportsDelete)``.

===================  =======================================================================================
``store.py``         required and default methods of every store
``context.py``       what a store may know about a payload
``signatures.py``    which arguments a method takes
``checks.py``        helpers for every store: topic, size, digest, age, untrusted references
``clock.py``         tells the server's time
``delete.py``        deletes payloads
``listing.py``       lists the payloads of a topic
``info.py``          reads size and time of one payload, cheaper than a listing
``streaming.py``     publishes and opens files
``ranges.py``        reads a part of a payload
``topics.py``        extracts the topic from a reference
``records.py``       stores headers and keys too
``transactions.py``  joins the client's transactions
``expiration.py``    has the server delete old payloads
``lifetimes.py``     tells when the server has deleted some, and all, of a topic's payloads
``leftovers.py``     removes leftovers of killed writers
``retry_count.py``   counts retried requests
``opt_out.py``       can be switched off
``preparation.py``   creates resources besides the payloads
``capability.py``    how ``isinstance`` decides; only middleware needs it
===================  =======================================================================================
"""

from typing import Final

from payload_stores.base.clock import SupportsClock
from payload_stores.base.context import PublishContext
from payload_stores.base.delete import SupportsDelete, SupportsDeleteMany
from payload_stores.base.expiration import SupportsExpiration
from payload_stores.base.info import SupportsInfo
from payload_stores.base.leftovers import SupportsLeftoverCount, SupportsLeftovers
from payload_stores.base.lifetimes import Lifetimes, SupportsLifetimes
from payload_stores.base.listing import PayloadInfo, SupportsList, SupportsListRange
from payload_stores.base.opt_out import SupportsOptOut
from payload_stores.base.preparation import SupportsPreparation
from payload_stores.base.ranges import SupportsRanges
from payload_stores.base.records import SupportsRecords
from payload_stores.base.retry_count import SupportsRetryCount
from payload_stores.base.store import PayloadStore
from payload_stores.base.streaming import SupportsStreaming
from payload_stores.base.topics import SupportsTopics
from payload_stores.base.transactions import RecordWriter, SupportsTransactions
from payload_stores.buffers import Buffer
from payload_stores.records import StoredRecord

CAPABILITIES: Final[tuple[type, ...]] = (
    SupportsClock, SupportsDelete, SupportsDeleteMany, SupportsExpiration, SupportsInfo, SupportsLeftoverCount,
    SupportsLeftovers, SupportsLifetimes, SupportsList, SupportsListRange, SupportsOptOut, SupportsPreparation,
    SupportsRanges, SupportsRecords, SupportsRetryCount, SupportsStreaming, SupportsTopics, SupportsTransactions,
)  # fmt: skip
"""All optional capabilities of a :class:`PayloadStore`; a middleware has those of its inner store."""

__all__ = [
    "CAPABILITIES", "Buffer", "Lifetimes", "PayloadInfo", "PayloadStore", "PublishContext", "RecordWriter",
    "StoredRecord", "SupportsClock", "SupportsDelete", "SupportsDeleteMany", "SupportsExpiration", "SupportsInfo",
    "SupportsLeftoverCount", "SupportsLeftovers", "SupportsLifetimes", "SupportsList", "SupportsListRange",
    "SupportsOptOut", "SupportsPreparation", "SupportsRanges", "SupportsRecords", "SupportsRetryCount",
    "SupportsStreaming", "SupportsTopics", "SupportsTransactions",
]  # fmt: skip
