"""The payload store contract (KIP-1159, "PayloadStore").

A store's author needs ``store.py``. A capability beyond it is a Protocol, in a file of its own: a store has it by
having the methods, and ``isinstance(store, SupportsDelete)`` asks for it.

===================  =======================================================================================
``store.py``         what every store has
``checks.py``        methods of every store, to be called: topic, size, digest, age, untrusted references
``delete.py``        deletes payloads
``listing.py``       lists the payloads of a topic
``info.py``          size and time of one payload, for less than a listing
``streaming.py``     publishes and opens files
``ranges.py``        reads a part of a payload
``topics.py``        tells the topic in a reference
``records.py``       keeps headers and keys too
``transactions.py``  joins the client's transactions
``expiration.py``    has the server delete old payloads
``leftovers.py``     removes what killed writers leave behind
``retry_count.py``   counts its repeated requests
``opt_out.py``       may be switched off
``preparation.py``   creates something beside the payloads
``capability.py``    how ``isinstance`` asks, which matters to a store around another
===================  =======================================================================================
"""

from typing import Final

from payload_stores.base.delete import SupportsDelete
from payload_stores.base.expiration import SupportsExpiration
from payload_stores.base.info import SupportsInfo
from payload_stores.base.leftovers import SupportsLeftoverCount, SupportsLeftovers
from payload_stores.base.listing import PayloadInfo, SupportsList
from payload_stores.base.opt_out import SupportsOptOut
from payload_stores.base.preparation import SupportsPreparation
from payload_stores.base.ranges import SupportsRanges
from payload_stores.base.records import SupportsRecords
from payload_stores.base.retry_count import SupportsRetryCount
from payload_stores.base.store import PayloadStore, PublishContext
from payload_stores.base.streaming import SupportsStreaming
from payload_stores.base.topics import SupportsTopics
from payload_stores.base.transactions import RecordWriter, SupportsTransactions
from payload_stores.buffers import Buffer
from payload_stores.records import StoredRecord

CAPABILITIES: Final[tuple[type, ...]] = (
    SupportsDelete, SupportsExpiration, SupportsInfo, SupportsLeftoverCount, SupportsLeftovers, SupportsList,
    SupportsOptOut, SupportsPreparation, SupportsRanges, SupportsRecords, SupportsRetryCount, SupportsStreaming,
    SupportsTopics, SupportsTransactions,
)  # fmt: skip
"""All that a store may have beyond :class:`PayloadStore`; a store around another has what the inner one has."""

__all__ = [
    "CAPABILITIES", "Buffer", "PayloadInfo", "PayloadStore", "PublishContext", "RecordWriter", "StoredRecord",
    "SupportsDelete", "SupportsExpiration", "SupportsInfo", "SupportsLeftoverCount", "SupportsLeftovers",
    "SupportsList", "SupportsOptOut", "SupportsPreparation", "SupportsRanges", "SupportsRecords", "SupportsRetryCount",
    "SupportsStreaming", "SupportsTopics", "SupportsTransactions",
]  # fmt: skip
