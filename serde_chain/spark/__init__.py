"""Chains in Spark: Kafka columns into typed columns and back, in batch and in structured streaming."""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.spark.columns import deserialize as deserialize
    from serde_chain.spark.columns import deserialize_udf as deserialize_udf
    from serde_chain.spark.connectors import packages as packages
    from serde_chain.spark.dataframes import decode as decode
    from serde_chain.spark.dataframes import decode_kafka as decode_kafka
    from serde_chain.spark.explanation import explain as explain
    from serde_chain.spark.field_columns import resolve_fields as resolve_fields
    from serde_chain.spark.metadata import entry_metadata as entry_metadata
    from serde_chain.spark.metrics import observe as observe
    from serde_chain.spark.references import resolve as resolve
    from serde_chain.spark.references import resolve_record as resolve_record
    from serde_chain.spark.sink import encode as encode
    from serde_chain.spark.sink import encode_kafka as encode_kafka
    from serde_chain.spark.sink import offload as offload
    from serde_chain.spark.sink import serialize as serialize
    from serde_chain.spark.sink import serialize_udf as serialize_udf
    from serde_chain.spark.sql import register as register
    from serde_chain.spark.unreadable import dead_letters as dead_letters
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            ".columns": "deserialize deserialize_udf",
            ".connectors": "packages",
            ".dataframes": "decode decode_kafka",
            ".explanation": "explain",
            ".field_columns": "resolve_fields",
            ".metadata": "entry_metadata",
            ".metrics": "observe",
            ".references": "resolve resolve_record",
            ".sink": "encode encode_kafka offload serialize serialize_udf",
            ".sql": "register",
            ".unreadable": "dead_letters",
        },
        needs=("pyspark", "spark"),
    )
