"""The contract of a stage: serializers and deserializers (KIP-1159, "Serializer chain").

A stage's author reads ``stage.py``. Any callable ``(data, ctx)`` can be a stage, Confluent's serializers included;
deriving from these classes adds configuration and order checks. Chains and clients look for nothing else. Public names
are loaded on first use: a client without chains needs few of them.

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
    >>> from serde_chain.base import Data, Deserializer, Serializer, StagePair
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

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from payload_stores.buffers import Buffer as Buffer
    from serde_chain.base.foreign import SupportsAsyncClose as SupportsAsyncClose
    from serde_chain.base.foreign import SupportsAsyncClusterId as SupportsAsyncClusterId
    from serde_chain.base.foreign import SupportsBuild as SupportsBuild
    from serde_chain.base.foreign import SupportsClose as SupportsClose
    from serde_chain.base.foreign import SupportsClusterId as SupportsClusterId
    from serde_chain.base.foreign import SupportsConfigure as SupportsConfigure
    from serde_chain.base.kinds import is_same_work as is_same_work
    from serde_chain.base.kinds import is_stage as is_stage
    from serde_chain.base.kinds import removed_headers_of as removed_headers_of
    from serde_chain.base.parts import STREAMED_BYTES as STREAMED_BYTES
    from serde_chain.base.parts import BufferReader as BufferReader
    from serde_chain.base.parts import PartsSerializer as PartsSerializer
    from serde_chain.base.parts import SupportsRead as SupportsRead
    from serde_chain.base.parts import is_stream as is_stream
    from serde_chain.base.payloads import ModelOfRecords as ModelOfRecords
    from serde_chain.base.payloads import MovesFields as MovesFields
    from serde_chain.base.payloads import RecordLimits as RecordLimits
    from serde_chain.base.payloads import SupportsDownloads as SupportsDownloads
    from serde_chain.base.payloads import SupportsFetch as SupportsFetch
    from serde_chain.base.payloads import SupportsModels as SupportsModels
    from serde_chain.base.payloads import SupportsOffload as SupportsOffload
    from serde_chain.base.payloads import SupportsReferences as SupportsReferences
    from serde_chain.base.payloads import SupportsUploads as SupportsUploads
    from serde_chain.base.plain import PlainDeserializer as PlainDeserializer
    from serde_chain.base.plain import PlainSerializer as PlainSerializer
    from serde_chain.base.plain import ShortBytes as ShortBytes
    from serde_chain.base.plain import ShortBytesOnly as ShortBytesOnly
    from serde_chain.base.plain import untouched as untouched
    from serde_chain.base.stage import Data as Data
    from serde_chain.base.stage import DeclaresHeaders as DeclaresHeaders
    from serde_chain.base.stage import DescribesFields as DescribesFields
    from serde_chain.base.stage import Deserializer as Deserializer
    from serde_chain.base.stage import Serializer as Serializer
    from serde_chain.base.stage import Stage as Stage
    from serde_chain.base.stage import StagePair as StagePair
    from serde_chain.base.stage import SupportsArrowType as SupportsArrowType
    from serde_chain.base.stage import SupportsPlainCalls as SupportsPlainCalls
    from serde_chain.base.stage import SupportsTransfers as SupportsTransfers
    from serde_chain.base.values import ANYTHING as ANYTHING
    from serde_chain.base.values import NO_FIELDS as NO_FIELDS
    from serde_chain.base.values import FieldType as FieldType
    from serde_chain.base.values import RemovedHeaders as RemovedHeaders
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "payload_stores.buffers": "Buffer",
            ".foreign": "SupportsAsyncClose SupportsAsyncClusterId SupportsBuild SupportsClose "
            "SupportsClusterId SupportsConfigure",
            ".kinds": "is_same_work is_stage removed_headers_of",
            ".parts": "STREAMED_BYTES BufferReader PartsSerializer SupportsRead is_stream",
            ".payloads": "ModelOfRecords MovesFields RecordLimits SupportsDownloads SupportsFetch "
            "SupportsModels SupportsOffload SupportsReferences SupportsUploads",
            ".plain": "PlainDeserializer PlainSerializer ShortBytes ShortBytesOnly untouched",
            ".stage": "Data DeclaresHeaders DescribesFields Deserializer Serializer Stage StagePair "
            "SupportsArrowType SupportsPlainCalls SupportsTransfers",
            ".values": "ANYTHING NO_FIELDS FieldType RemovedHeaders",
        },
    )
