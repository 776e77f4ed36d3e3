"""Numbers of JSON in Spark: as the stage reads them, in typed columns and as text."""

import json
import math
from decimal import Decimal

from pyspark.sql import SparkSession

from serde_chain.spark import deserialize

LARGE = 12345678901234567891234567
CONFIG: dict[str, object] = {"value.deserializer": "json"}


def test_numbers_are_exact_or_the_record_cannot_be_read(spark: SparkSession) -> None:
    values = [{"mag": math.nan, "id": LARGE}, {"mag": -math.inf, "id": 1}, {"mag": 1.5, "id": 2**63}]
    frame = spark.createDataFrame([(json.dumps(value).encode(),) for value in values], "value binary")
    typed = deserialize("value", None, CONFIG, schema="mag double, id decimal(30,0)")
    found = [row.v for row in frame.select(typed.alias("v")).collect()]
    assert [row.id for row in found] == [Decimal(LARGE), Decimal(1), Decimal(2**63)]
    assert math.isnan(found[0].mag)
    assert [row.mag for row in found[1:]] == [-math.inf, 1.5]
    text = frame.select(deserialize("value", None, CONFIG).alias("v")).collect()
    assert [row.v for row in text] == [json.dumps(value) for value in values]
    # What a long does not hold is not made into another number.
    narrow = deserialize("value", None, CONFIG, schema="id long", mode="PERMISSIVE")
    assert [row.v and row.v.id for row in frame.select(narrow.alias("v")).collect()] == [None, 1, None]
