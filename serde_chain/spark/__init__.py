"""Chains in Spark: Kafka columns into typed columns and back, in batch and in structured streaming."""

from importlib import import_module
from typing import TYPE_CHECKING

from payload_stores.plugins import require

if TYPE_CHECKING:
    from serde_chain.spark.columns import deserialize, deserialize_udf
    from serde_chain.spark.connectors import packages
    from serde_chain.spark.dataframes import decode
    from serde_chain.spark.dataframes import decode as decode_kafka
    from serde_chain.spark.explanation import explain
    from serde_chain.spark.field_columns import resolve_fields
    from serde_chain.spark.metadata import entry_metadata
    from serde_chain.spark.metrics import observe
    from serde_chain.spark.references import resolve, resolve_record
    from serde_chain.spark.sink import encode, offload, serialize, serialize_udf
    from serde_chain.spark.sink import encode as encode_kafka
    from serde_chain.spark.sql import register
    from serde_chain.spark.unreadable import dead_letters

__all__ = [
    "dead_letters",
    "decode",
    "decode_kafka",
    "deserialize",
    "deserialize_udf",
    "encode",
    "encode_kafka",
    "entry_metadata",
    "explain",
    "observe",
    "offload",
    "packages",
    "register",
    "resolve",
    "resolve_fields",
    "resolve_record",
    "serialize",
    "serialize_udf",
]

_MODULES = {
    "dead_letters": "unreadable",
    "decode": "dataframes",
    "deserialize": "columns",
    "deserialize_udf": "columns",
    "encode": "sink",
    "entry_metadata": "metadata",
    "explain": "explanation",
    "observe": "metrics",
    "offload": "sink",
    "packages": "connectors",
    "register": "sql",
    "resolve": "references",
    "resolve_fields": "field_columns",
    "resolve_record": "references",
    "serialize": "sink",
    "serialize_udf": "sink",
}

# Names that `from pyspark.sql.functions import *` does not hide.
_ALIASES = {"decode_kafka": "decode", "encode_kafka": "encode"}


def __getattr__(name: str) -> object:
    name = _ALIASES.get(name, name)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("pyspark", "spark")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
