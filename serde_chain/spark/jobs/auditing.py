"""Finds references to missing or different payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.spark.jobs.topics import Topics, spark_errors
from serde_chain.spark.plan.arguments import as_topics
from serde_chain.spark.plan.portable import load
from serde_chain.spark.plan.prerequisites import check_packages, check_worker_python
from serde_chain.spark.plan.references import END, WHOLE, plan_reading

__all__ = ["AuditReport", "audit"]

_COLUMNS: Final = ("topic", "partition", "offset", "reference", "kind", "message")


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        references: Number of references in the records.
        problems: A DataFrame of the references that a reader cannot follow: ``topic``, ``partition``, ``offset``,
            ``reference`` (null if the placeholder itself is unreadable), ``kind`` (the error's class) and
            ``message``.
    """

    references: int
    problems: DataFrame


def audit(
    spark: SparkSession, config: Config | str | Path, topics: str | Sequence[str], *, payloads: bool = True
) -> AuditReport:
    """Check that every reference in some topics leads to its payload.

    Reads committed records, up to the first open transaction. Each executor task downloads up to
    ``large.message.downloads.in.flight`` payloads concurrently, and holds up to ``large.message.downloads.max.bytes``
    of them, or a single larger one.

    Args:
        spark: As in :func:`~serde_chain.spark.jobs.sweep`.
        config: As in :func:`~serde_chain.spark.jobs.sweep`.
        topics: The topics.
        payloads: Download each payload, and compare its size and digest with those in the record, if present;
            otherwise read only the last byte, which shows whether the payload exists and has the right size.

    Raises:
        ConfigError: The configuration is wrong.
        JobError: A topic does not exist, or is not readable to its end.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = audit(spark, "consumer.toml", "alerts")  # doctest: +SKIP
        >>> report.problems.groupBy("kind").count().show()  # doctest: +SKIP
    """
    check_packages()
    check_worker_python(spark)
    loaded = load(config)
    named = tuple(dict.fromkeys(as_topics(topics)))
    if not named:
        raise ConfigError("no topic is given")
    plan = replace(plan_reading(loaded, named), check=WHOLE if payloads else END)
    reading = Topics(spark, loaded, plan, "read_committed")
    first, ends = reading.bounds()
    rows = reading.read(first, ends).rows
    with spark_errors("the references cannot be counted"):
        references = rows.where("reference is not null").count()
    return AuditReport(references, rows.where("kind is not null").select(*_COLUMNS))
