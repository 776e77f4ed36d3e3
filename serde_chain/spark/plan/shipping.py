"""Ways to ship packages to Spark's workers, for error messages."""

from __future__ import annotations

import sys

__all__ = ["remedy"]


def remedy(install: str = "pip install 'serde-chain[spark-worker]'", *, driver: str = sys.executable) -> str:
    """The remedy for an executor's interpreter that lacks a package.

    Args:
        install: The command that installs it.
        driver: The driver's interpreter.

    Example:
        >>> remedy(driver="/usr/bin/python3")  # doctest: +ELLIPSIS
        "pip install 'serde-chain[spark-worker]' there, or set PYSPARK_PYTHON to an interpreter that has it; the ...
    """
    return (
        f"{install} there, or set PYSPARK_PYTHON to an interpreter that has it; the driver's is {driver}. On a "
        "cluster, ship an environment with --archives (and PYSPARK_PYTHON=./environment/bin/python), pure-Python "
        "packages with --py-files, or all of them in the executors' image: docs/spark-cluster.md"
    )
