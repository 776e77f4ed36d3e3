"""``avro.native = on`` where Spark's workers lack the compiled part that the driver has, or have another build."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from serde_chain.spark import decode
from serde_chain.stages.avro.native import library
from tests.spark.records import encoded, kafka, row
from tests.spark.test_fetched import SCHEMA, alert

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(library() is None, reason="the driver has no compiled part either"),
]
CONFIG = {"value.serializers": "avro", "value.deserializers": "avro", "avro.schema": json.dumps(SCHEMA)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("build", ["none", "other"])
def test_workers_without_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, build: str) -> None:
    """Required, the error names what is missing, and where; otherwise rows are the same."""
    if build == "none":
        change, problem = {"SERDE_CHAIN_NATIVE": "off"}, "serde-chain is run with SERDE_CHAIN_NATIVE = off"
    else:
        # As if the driver's environment was updated, and that of the workers was not.
        fake = "import sys, types\nsys.modules['serde_chain._native'] = types.SimpleNamespace(INTERFACE=0)\n"
        (tmp_path / "sitecustomize.py").write_text(fake)
        change, problem = {"PYTHONPATH": str(tmp_path)}, "serde-chain is beside a compiled part of other sources"
    for name, value in change.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    records = kafka(spark, [row(encoded(CONFIG, alert(1), []), [], 1)])
    required = records.transform(decode(CONFIG | {"avro.native": "on"}, engine="arrow"))
    with pytest.raises(PythonException, match=r"avro\.native = on, but") as caught:
        required.select("value.flux").collect()
    [line] = [each for each in str(caught.value).splitlines() if each.startswith("payload_stores.errors.")]
    assert line.startswith(f"payload_stores.errors.MissingDependencyError: avro.native = on, but {problem}")
    assert "in the interpreter of Spark's workers" in line
    assert [
        each["flux"] for each in records.transform(decode(CONFIG, engine="arrow")).select("value.flux").collect()
    ] == [1.0]
