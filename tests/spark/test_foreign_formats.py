"""Records of other systems in Spark."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from serde_chain.spark import decode
from serde_chain.testing.services import S3Server
from tests.spark.records import kafka, row
from tests.stages.large_message.test_foreign_formats import FORMATS, records


@pytest.mark.parametrize("engine", ["arrow", "auto"])
def test_one_topic_with_all_of_them(spark: SparkSession, s3_server: S3Server, engine: str) -> None:
    bucket = s3_server.create_bucket()

    def put(data: bytes, key: str = "2026/a b/1") -> str:
        s3_server.client().put_object(Bucket=bucket, Key=key, Body=data)
        return key

    given = records(bucket, put)
    config: dict[str, Any] = {
        **s3_server.store_config(bucket),
        "value.deserializers": "large-message, bytes",
        "large.message.accept": f"kip1159, {FORMATS}",
        "large.message.payload.store.class": "s3",
    }
    rows = [row(value, headers, at, key=key) for at, (key, value, headers, _) in enumerate(given)]
    found = kafka(spark, rows).transform(decode(config, engine=engine)).orderBy("offset").collect()
    assert [bytes(each.value) for each in found] == [value for *_, value in given]
    assert [each.key for each in found] == [*[None] * 4, b"k", b"k", None, b"k"]
    assert [[tuple(header) for header in each.headers or ()] for each in found] == [
        *([], [], [("ce_id", b"1")], [("ce_id", b"1"), ("ce_specversion", b"1.0")]),
        *([], [], [], [("user", b"1")]),
    ]
