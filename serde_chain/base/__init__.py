"""The contract of a stage: serializers and deserializers (KIP-1159, "Serializer chain").

A stage's author reads ``stage.py``. Any callable ``(data, ctx)`` can be a stage, Confluent's serializers included;
deriving from these classes adds configuration and order checks. Chains and clients look for nothing else.

===============  =========================================================================================
``stage.py``     the contract: the classes, and the optional members, each a Protocol
``values.py``    what optional members return
``plain.py``     bases for stages that need only the data
``parts.py``     bases for large values in pieces; files as values
``kinds.py``     questions about stages
``payloads.py``  what the library's stages with a payload store offer clients, jobs and each other
``foreign.py``   optional methods of callables that are not stages
===============  =========================================================================================

Example:
    >>> class ReverseSerializer(Serializer[bytes]):
    ...     takes = Data.BYTES
    ...
    ...     def __call__(self, data, ctx=None, /):
    ...         return None if data is None else bytes(data)[::-1]
    >>> class ReverseDeserializer(Deserializer[bytes]):
    ...     gives = Data.BYTES
    ...
    ...     def __call__(self, data, ctx=None, /):
    ...         return None if data is None else bytes(data)[::-1]
    >>> pair = StagePair(ReverseSerializer, ReverseDeserializer)
    >>> pair.serializer()(b"abc"), pair.deserializer()(b"cba")
    (b'cba', b'abc')
"""

from payload_stores.buffers import Buffer
from serde_chain.base.foreign import (
    SupportsAsyncClose,
    SupportsAsyncClusterId,
    SupportsBuild,
    SupportsClose,
    SupportsClusterId,
    SupportsConfigure,
)
from serde_chain.base.kinds import is_same_work, is_stage, removed_headers_of
from serde_chain.base.parts import STREAMED_BYTES, BufferReader, PartsSerializer, SupportsRead, is_stream
from serde_chain.base.payloads import (
    ModelOfRecords,
    MovesFields,
    RecordLimits,
    SupportsDownloads,
    SupportsFetch,
    SupportsModels,
    SupportsOffload,
    SupportsReferences,
    SupportsUploads,
)
from serde_chain.base.plain import PlainDeserializer, PlainSerializer, ShortBytes, ShortBytesOnly, untouched
from serde_chain.base.stage import (
    Data,
    DeclaresHeaders,
    DescribesFields,
    Deserializer,
    Serializer,
    Stage,
    StagePair,
    SupportsArrowType,
    SupportsPlainCalls,
    SupportsTransfers,
)
from serde_chain.base.values import ANYTHING, NO_FIELDS, FieldType, RemovedHeaders

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
