"""Maven coordinates of the jars that Spark needs: its Kafka connector and its Avro functions."""

from __future__ import annotations

from typing import Final

import pyspark

from serde_chain.errors import MissingDependencyError

# The version of Scala that pyspark's own jars are built for: from Spark 4 the only one.
_SCALA: Final = {"3.5": "2.12"}
_ARTIFACTS: Final = ("spark-sql-kafka-0-10", "spark-avro")
# For each minor release of Spark, the tested versions of both jars, including patch releases. Not every release of
# pyspark has its own; a jar of an older release works where it is listed here, and otherwise fails in the middle of a
# streaming query.
_TRIED: Final = {
    "3.5": ("3.5.7", "3.5.7"),
    "4.0": ("4.0.1", "4.0.1"),
    "4.1": ("4.1.1", "4.1.1"),
    "4.2": ("4.2.0", "4.1.1"),
    "4.3": ("4.2.0", "4.1.1"),
}


def packages() -> list[str]:
    """Maven coordinates of Spark's Kafka connector and Avro functions, for the installed pyspark.

    They were tested with this version of Spark. Others may load, but fail in the middle of a streaming
    query.

    Returns:
        The coordinates, for ``spark.jars.packages``: joined by commas.

    Raises:
        MissingDependencyError: pyspark is not installed, or is newer than the tested versions.

    Example:
        >>> SparkSession.builder.config("spark.jars.packages", ",".join(packages()))  # doctest: +SKIP
    """
    return coordinates(pyspark.__version__)


def coordinates(version: str) -> list[str]:
    """Like :func:`packages`, for a version of pyspark.

    Raises:
        MissingDependencyError: The version was not tested.
    """
    line = ".".join(version.split(".")[:2])
    if line not in _TRIED:
        raise MissingDependencyError(
            f"no Kafka connector was tested with pyspark {version}, and that of another version may fail in the "
            "middle of a streaming query",
            hint=f"Install one of pyspark {', '.join(_TRIED)}, or a newer serde-chain; or name your own connector "
            "in spark.jars.packages",
        )
    pairs = zip(_ARTIFACTS, _TRIED[line], strict=True)
    return [f"org.apache.spark:{artifact}_{_SCALA.get(line, '2.13')}:{jar}" for artifact, jar in pairs]
