"""Models in Spark: columns have the schema that is derived from the class, which the workers import."""

from typing import Any

from pyspark.sql import SparkSession

from serde_chain.spark import decode, deserialize, encode
from tests.models.alerts import Band
from tests.models.crossed import OfDataclasses, OfPydantic, Positive
from tests.spark.records import encoded, kafka, row

STAGES = {"value.serializers": "avro, zstd", "value.deserializers": "zstd, avro"}


def test_columns_of_a_model(spark: SparkSession) -> None:
    config: dict[str, Any] = {**STAGES, "avro.type": "tests.models.crossed.OfPydantic"}
    values = [OfPydantic(id=1, note="x"), OfPydantic(id=-2, band=Band.RED)]
    # Columns have the schema, not the checks of a class.
    reading = {**config, "avro.type": Positive}
    records = kafka(spark, [row(encoded(config, value, []), [], at) for at, value in enumerate(values)])
    decoded = records.transform(decode(reading))
    assert decoded.schema["value"].dataType.simpleString() == "struct<id:bigint,band:string,note:string>"
    given = deserialize("value", None, reading, schema="note string, id bigint")
    again = decoded.select("value", "topic").transform(encode(config)).select("value")
    rows = decoded.select("value.id", "value.band", "value.note").collect()
    assert sorted(map(tuple, rows)) == [(-2, "r", None), (1, "g", "x")]
    assert sorted(found.id for found in records.select(given.alias("v")).select("v.id").collect()) == [-2, 1]
    assert {bytes(found.value) for found in again.collect()} == {encoded(config, value, []) for value in values}


def test_json_of_a_model_with_a_schema(spark: SparkSession) -> None:
    config: dict[str, Any] = {"value.serializers": "json", "value.deserializers": "json", "json.type": OfDataclasses}
    records = kafka(spark, [row(encoded(config, OfDataclasses(1), []), [], 0)])
    given = deserialize("value", None, config, schema="band string, id bigint")
    assert records.select(given.alias("v")).select("v.*").collect() == [("g", 1)]
