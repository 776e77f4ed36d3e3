"""Saves a stream of alerts as Parquet, in two ways: docs/alerts.md."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession, functions

from serde_chain import Consumer
from serde_chain.spark import decode


def with_pyarrow(config: Mapping[str, Any], topic: str, folder: str, version: str, timeout: float = 10) -> None:
    """Save all alerts up to a pause of the stream, in files of up to 1000."""
    with Consumer({**config, "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        while (records := consumer.consume_arrow(1000, timeout)).num_rows:
            alerts = pa.Table.from_struct_array(records["value"].combine_chunks())
            alerts = alerts.append_column("lsst_schema_version", pa.array([version] * len(alerts)))
            name = f"part-{records['partition'][0]}-{records['offset'][0]}"
            pq.write_to_dataset(
                alerts, folder, basename_template=name + "-{i}.parquet", existing_data_behavior="overwrite_or_ignore"
            )
            consumer.commit(asynchronous=False)  # after the file


def with_spark(spark: SparkSession, config: Mapping[str, Any], topic: str, folder: str, version: str) -> None:
    """Save all new alerts, each once: the checkpoint remembers them."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", config["bootstrap.servers"])
    records = source.option("subscribe", topic).option("startingOffsets", "earliest").option("includeHeaders", "true")
    alerts = records.load().transform(decode(config)).select("value.*")
    files = alerts.withColumn("lsst_schema_version", functions.lit(version)).writeStream.format("parquet")
    query = files.option("path", folder).option("checkpointLocation", f"{folder}-checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
