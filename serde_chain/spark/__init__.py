"""Chains in Spark: Kafka columns into typed columns and back, in batch and in structured streaming."""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.spark.connectors import packages as packages
    from serde_chain.spark.explanation import explain as explain
    from serde_chain.spark.fields.columns import resolve_fields as resolve_fields
    from serde_chain.spark.metrics import observe as observe
    from serde_chain.spark.reading.columns import deserialize as deserialize
    from serde_chain.spark.reading.columns import deserialize_udf as deserialize_udf
    from serde_chain.spark.reading.dataframes import decode as decode
    from serde_chain.spark.reading.dataframes import decode_kafka as decode_kafka
    from serde_chain.spark.reading.metadata import entry_metadata as entry_metadata
    from serde_chain.spark.reading.resolve import resolve as resolve
    from serde_chain.spark.reading.resolve import resolve_record as resolve_record
    from serde_chain.spark.reading.sql import register as register
    from serde_chain.spark.reading.unreadable import dead_letters as dead_letters
    from serde_chain.spark.writing.sink import encode as encode
    from serde_chain.spark.writing.sink import encode_kafka as encode_kafka
    from serde_chain.spark.writing.sink import offload as offload
    from serde_chain.spark.writing.sink import serialize as serialize
    from serde_chain.spark.writing.sink import serialize_udf as serialize_udf
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            ".connectors": "packages",
            ".explanation": "explain",
            ".fields.columns": "resolve_fields",
            ".metrics": "observe",
            ".reading.columns": "deserialize deserialize_udf",
            ".reading.dataframes": "decode decode_kafka",
            ".reading.metadata": "entry_metadata",
            ".reading.resolve": "resolve resolve_record",
            ".reading.sql": "register",
            ".reading.unreadable": "dead_letters",
            ".writing.sink": "encode encode_kafka offload serialize serialize_udf",
        },
        needs=("pyspark", "spark"),
    )
