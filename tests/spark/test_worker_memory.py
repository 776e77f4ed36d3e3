"""Workers with little address space, which ``spark.executor.pyspark.memory`` limits."""

import sys

import pytest

from tests.spark.elsewhere import run_tests

pytestmark = pytest.mark.full


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit it")
@pytest.mark.parametrize(
    ("memory", "tests"),
    [
        ("512m", ["limited_batch.py", "limited.py"]),
        # More than the least, which is less to ask of the same tests.
        pytest.param("2g", ["limited.py"], marks=pytest.mark.nightly),
    ],
)
@pytest.mark.timeout(300)
def test_with_limited_memory(memory: str, tests: list[str]) -> None:
    """A process with a Spark session of its own, whose workers read a gigabyte in half of that."""
    run_tests(f"limited-{memory}", tests, seconds=250)
