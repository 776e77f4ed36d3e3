"""Workers with little address space, which ``spark.executor.pyspark.memory`` limits."""

import sys

import pytest

from tests.spark.elsewhere import run_tests

pytestmark = pytest.mark.full


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit it")
@pytest.mark.parametrize(
    ("memory", "tests"),
    [("512m", ["limited_batch.py", "limited.py"]), ("2g", ["limited.py"])],
)
@pytest.mark.timeout(300)
def test_with_limited_memory(memory: str, tests: list[str]) -> None:
    run_tests(f"limited-{memory}", tests, seconds=250)
