"""Maven coordinates of the jars that Spark needs: its Kafka connector and its Avro functions."""

from __future__ import annotations

import pyspark

__all__ = ["packages"]

# Spark 4 is built for this version of Scala alone.
_SCALA = "2.13"
_ARTIFACTS = ("spark-sql-kafka-0-10", "spark-avro")


def packages() -> list[str]:
    """Maven coordinates of Spark's Kafka connector and Avro functions, of the version of the installed pyspark.

    Another version of the connector may load, and fail in the middle of a streaming query.

    Returns:
        The coordinates, for ``spark.jars.packages``: joined by commas.

    Raises:
        MissingDependencyError: pyspark is not installed.

    Example:
        >>> SparkSession.builder.config("spark.jars.packages", ",".join(packages()))  # doctest: +SKIP
    """
    return [f"org.apache.spark:{artifact}_{_SCALA}:{pyspark.__version__}" for artifact in _ARTIFACTS]
