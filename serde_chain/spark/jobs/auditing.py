"""Finds references to missing or different payloads, with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from serde_chain.config import Config
from serde_chain.jobs.auditing import AuditReport, Problem, plan_audit
from serde_chain.jobs.topic_bounds import READ_COMMITTED, TopicBounds
from serde_chain.spark.chains.portable import load
from serde_chain.spark.jobs.topic_records import TopicReader, spark_errors
from serde_chain.spark.prerequisites import check_packages, check_worker_python


def audit(
    spark: SparkSession, config: Config | str | Path, topics: str | Sequence[str], *, payloads: bool = True
) -> AuditReport[DataFrame]:
    """Check that every reference in some topics leads to its payload, with Spark.

    Like :func:`serde_chain.jobs.audit`, but each executor task has the limits for downloads.

    Args:
        spark: As in :func:`~serde_chain.spark.jobs.sweep`.
        config: As in :func:`serde_chain.jobs.audit`, like the other arguments.
        topics: The topics.
        payloads: Download each payload; otherwise read only its last byte.

    Returns:
        The report; its ``problems`` are a DataFrame with the columns ``topic``, ``partition``, ``offset``,
        ``reference``, ``kind`` and ``message``.

    Raises:
        ConfigError: As in :func:`serde_chain.jobs.audit`.
        JobError: As in :func:`serde_chain.jobs.audit`; or Spark failed.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = audit(spark, "consumer.toml", "alerts")  # doctest: +SKIP
        >>> report.problems.groupBy("kind").count().show()  # doctest: +SKIP
    """
    check_packages()
    check_worker_python(spark)
    loaded = load(config)
    plan = plan_audit(loaded, topics, payloads=payloads)
    reading = TopicReader(spark, loaded, plan, READ_COMMITTED)
    with TopicBounds(loaded, plan.topics, READ_COMMITTED) as bounds:
        first, ends = bounds.bounds()
        rows = reading.read(first, ends).rows
        bounds.check_ends(ends)
    with spark_errors("the references cannot be counted"):
        references = rows.where("reference is not null").count()
    columns = [field.name for field in fields(Problem)]
    return AuditReport(references, rows.where("kind is not null").select(*columns))
