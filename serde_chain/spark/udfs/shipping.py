"""Instructions to the workers: checked once per call, pickled into the function that Spark ships.

Only they contain the configuration with its secrets: a query's plan shows column names only. Workers import this module
and report themselves what their interpreter lacks: it does not need pyspark.
"""

from __future__ import annotations

import sys
from typing import Protocol

from payload_stores.plugins import require
from serde_chain.errors import ConfigError


class Plan(Protocol):
    """The instructions to a function in the workers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The function's arguments, by name."""

    @property
    def python(self) -> str:
        """The driver's interpreter, for messages."""


def pickled(plan: object) -> bytes:
    """Pickle a plan for the workers.

    Raises:
        ConfigError: A part of the configuration cannot be pickled.
    """
    try:
        data: bytes = require("pyspark.cloudpickle", "spark").dumps(plan)
    except Exception as error:
        raise ConfigError(
            f"the configuration cannot be sent to Spark's workers: {error}",
            hint="Give stages and stores by name or class, not as instances that hold connections",
        ) from error
    return data


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
