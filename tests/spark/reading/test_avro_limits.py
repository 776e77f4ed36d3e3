"""Avro's own limits, as in docs/spark-cluster.md: records that claim more memory than there is cannot be read."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[3] / "docs" / "spark-cluster.md"

# Java's options are those of a process.
PROGRAM = """
import json
import sys

from serde_chain.spark import decode
from serde_chain.testing.services import spark_session

options, *kinds = json.loads(sys.argv[1])
with spark_session("limits", {"spark.driver.extraJavaOptions": options}) as spark:
    for kind in kinds:
        fields = [{"name": "id", "type": "long"}, {"name": "claim", "type": kind}]
        schema = {"type": "record", "name": "R", "fields": fields}
        reading = decode({"value.deserializer": "avro", "avro.schema": schema}, mode="PERMISSIVE", engine="native")
        # An id of 1, and then a length of 2,000,000,000.
        records = spark.createDataFrame([(bytes.fromhex("0280d0acf30e"),)], "value binary")
        [row] = records.transform(reading).collect()
        assert "not a record of the schema" in row["serde_error"], (kind, row)
print("all of them were refused")
"""


@pytest.mark.timeout(300)  # a process with a Spark session of its own
def test_claims_above_the_limits_are_records_that_cannot_be_read() -> None:
    """A process with a Spark session of its own."""
    page = PAGE.read_text().replace("\\\n", "")
    [options] = re.findall(r"^spark\.executor\.extraJavaOptions = (.*)$", page, re.MULTILINE)
    kinds = ["string", "bytes", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([options, *kinds])],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.endswith("all of them were refused\n"), done.stderr[-3000:]
