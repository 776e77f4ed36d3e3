"""The stage contract: serializers and deserializers (KIP-1159, "Serializer chain").

A stage's author needs ``stage.py`` alone. Any callable ``(data, ctx)`` can be a stage too, Confluent's serializers
included; deriving from these classes adds configuration and order checks. Further capabilities are Protocols
(``Supports…``), one file each: a chain and its clients look for nothing else.

=================  =========================================================================================
``stage.py``       what every stage has
``plain.py``       works on the data alone, so that small records need no context
``streams.py``     takes files as values
``arrow_type.py``  knows the type of the column of its results; whole columns are in ``serde_chain.arrow``
``transfers.py``   has to publish, fetch or ask before some records can go on
``offload.py``     puts payloads elsewhere, and placeholders in their place
``references.py``  follows such placeholders, or says what they refer to
``foreign.py``     callables that are not stages: what they may have
=================  =========================================================================================
"""

from payload_stores.buffers import Buffer
from serde_chain.base.arrow_type import SupportsArrowType
from serde_chain.base.foreign import (
    SupportsAsyncClose,
    SupportsAsyncClusterId,
    SupportsBuild,
    SupportsClose,
    SupportsClusterId,
    SupportsConfigure,
)
from serde_chain.base.offload import RecordLimits, SupportsOffload
from serde_chain.base.plain import PlainDeserializer, PlainSerializer, SupportsPlainCalls, untouched
from serde_chain.base.references import SupportsFetch, SupportsReferences
from serde_chain.base.stage import Data, Deserializer, Serializer, Stage, StagePair, is_stage
from serde_chain.base.streams import SupportsRead, is_stream
from serde_chain.base.transfers import SupportsTransfers

__all__ = [
    "Buffer",
    "Data",
    "Deserializer",
    "PlainDeserializer",
    "PlainSerializer",
    "RecordLimits",
    "Serializer",
    "Stage",
    "StagePair",
    "SupportsArrowType",
    "SupportsAsyncClose",
    "SupportsAsyncClusterId",
    "SupportsBuild",
    "SupportsClose",
    "SupportsClusterId",
    "SupportsConfigure",
    "SupportsFetch",
    "SupportsOffload",
    "SupportsPlainCalls",
    "SupportsRead",
    "SupportsReferences",
    "SupportsTransfers",
    "is_stage",
    "is_stream",
    "untouched",
]
