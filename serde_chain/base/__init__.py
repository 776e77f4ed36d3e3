"""The stage contract: serializers and deserializers (KIP-1159, "Serializer chain").

A stage author needs only ``stage.py``. Any callable ``(data, ctx)`` can be a stage, Confluent's serializers included;
deriving from these classes adds configuration and order checks. Further capabilities are Protocols (``Supports…``), one
file each. Chains and clients look for nothing else.

=================  =========================================================================================
``stage.py``       the contract of every stage
``plain.py``       works without a record context
``streams.py``     accepts files as values
``parts.py``       returns several buffers, uploaded without a copy
``arrow_type.py``  knows the Arrow type of its results; whole columns: ``serde_chain.arrow``
``transfers.py``   needs I/O for some records: an upload, a download, a question
``offload.py``     moves payloads to a store and leaves placeholders
``references.py``  follows placeholders, or reads their references
``fields.py``      knows the fields of its values, or moves single fields
``headers.py``     declares its changes of a record's headers
``kinds.py``       which stage determines the type of a chain's input
``foreign.py``     optional methods of callables that are not stages
=================  =========================================================================================
"""

from payload_stores.buffers import Buffer
from serde_chain.base.arrow_type import SupportsArrowType
from serde_chain.base.fields import (
    ANYTHING,
    NO_FIELDS,
    DescribesFields,
    FieldType,
    ModelOfRecords,
    MovesFields,
    SupportsModels,
)
from serde_chain.base.foreign import (
    SupportsAsyncClose,
    SupportsAsyncClusterId,
    SupportsBuild,
    SupportsClose,
    SupportsClusterId,
    SupportsConfigure,
)
from serde_chain.base.headers import DeclaresHeaders, RemovedHeaders, removed_headers_of
from serde_chain.base.offload import RecordLimits, SupportsOffload, SupportsUploads
from serde_chain.base.parts import STREAMED_BYTES, BufferReader, PartsSerializer
from serde_chain.base.plain import (
    PlainDeserializer,
    PlainSerializer,
    ShortBytes,
    ShortBytesOnly,
    SupportsPlainCalls,
    is_same_work,
    untouched,
)
from serde_chain.base.references import SupportsDownloads, SupportsFetch, SupportsReferences
from serde_chain.base.stage import Data, Deserializer, Serializer, Stage, StagePair, is_stage
from serde_chain.base.streams import SupportsRead, is_stream
from serde_chain.base.transfers import SupportsTransfers

__all__ = [
    "ANYTHING",
    "NO_FIELDS",
    "STREAMED_BYTES",
    "Buffer",
    "BufferReader",
    "Data",
    "DeclaresHeaders",
    "DescribesFields",
    "Deserializer",
    "FieldType",
    "ModelOfRecords",
    "MovesFields",
    "PartsSerializer",
    "PlainDeserializer",
    "PlainSerializer",
    "RecordLimits",
    "RemovedHeaders",
    "Serializer",
    "ShortBytes",
    "ShortBytesOnly",
    "Stage",
    "StagePair",
    "SupportsArrowType",
    "SupportsAsyncClose",
    "SupportsAsyncClusterId",
    "SupportsBuild",
    "SupportsClose",
    "SupportsClusterId",
    "SupportsConfigure",
    "SupportsDownloads",
    "SupportsFetch",
    "SupportsModels",
    "SupportsOffload",
    "SupportsPlainCalls",
    "SupportsRead",
    "SupportsReferences",
    "SupportsTransfers",
    "SupportsUploads",
    "is_same_work",
    "is_stage",
    "is_stream",
    "removed_headers_of",
    "untouched",
]
