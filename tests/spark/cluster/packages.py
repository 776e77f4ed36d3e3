"""How packages come to executors whose interpreter lacks them. Run by ``test_cluster.py``, on a cluster."""

import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import struct

from serde_chain.spark import encode
from tests.environments import Environment

SCHEMA = {"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}
CONFIG = {"value.serializers": "avro, zstd", "avro.schema": json.dumps(SCHEMA)}


@pytest.fixture(autouse=True)
def interpreter(spark: SparkSession) -> Iterator[None]:
    """Put the interpreter of the workers back."""
    before = spark.sparkContext.pythonExec
    yield
    spark.sparkContext.pythonExec = before


def encoded(spark: SparkSession) -> DataFrame:
    return spark.range(2, numPartitions=2).select(struct("id").alias("value")).transform(encode(CONFIG, topic="t"))


def loaded_from(spark: SparkSession) -> set[str]:
    """Where the executors' interpreters have loaded this package from."""

    def place(_: int) -> str:
        import serde_chain

        return str(serde_chain.__file__)

    return set(spark.sparkContext.parallelize(range(2), 2).map(place).collect())


def compiled(spark: SparkSession) -> set[bool]:
    """Whether the executors' interpreters have the compiled part."""

    def used(_: int) -> bool:
        from serde_chain.stages.avro.native import library

        return library() is not None

    return set(spark.sparkContext.parallelize(range(2), 2).map(used).collect())


def test_an_archive(spark: SparkSession, installed: Callable[[str], Environment], wheel: Path, tmp_path: Path) -> None:
    environment = installed("'serde-chain[spark-worker,avro,compression]'")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
        archive.add(environment.folder, ".")
    spark.sparkContext.addArchive(f"{tmp_path / 'env.tar.gz'}#environment")
    spark.sparkContext.pythonExec = "./environment/bin/python"
    assert encoded(spark).count() == 2
    assert encoded(spark).select(functions.length("value").alias("n")).where("n > 0").count() == 2
    assert all("/environment/" in place for place in loaded_from(spark))
    assert compiled(spark) == {"-abi3-" in wheel.name}


def test_a_zip(spark: SparkSession, installed: Callable[[str], Environment], wheel: Path, tmp_path: Path) -> None:
    spark.sparkContext.pythonExec = str(installed("pyarrow fastavro zstandard").python)
    with pytest.raises(PythonException) as raised:
        encoded(spark).collect()
    [said] = [line for line in str(raised.value).splitlines() if line.startswith("ImportError")]
    assert re.search(r"No module named 'serde_chain'.*--archives .*--py-files.*image", said)
    archive = tmp_path / "serde_chain.zip"
    archive.write_bytes(wheel.read_bytes())
    spark.sparkContext.addPyFile(str(archive))
    assert len(encoded(spark).collect()) == 2
    assert all("serde_chain.zip" in place for place in loaded_from(spark))
    # Python loads no compiled modules from a zip.
    assert compiled(spark) == {False}
