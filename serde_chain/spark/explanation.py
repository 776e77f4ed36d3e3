"""Which engine reads a configuration's chains, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from serde_chain.config import Config
from serde_chain.record import KEY, VALUE
from serde_chain.spark.plan.arguments import as_topics, check_engine, check_mode
from serde_chain.spark.plan.engine import choose
from serde_chain.spark.plan.fields import plan_field
from serde_chain.spark.plan.portable import load

__all__ = ["explain"]


def explain(
    config: Config | str | Path, *, engine: str = "auto", mode: str = "FAILFAST", topics: str | Sequence[str] = ()
) -> str:
    """Say which engine reads a configuration's chains, and why.

    Example:
        >>> print(explain({"value.deserializers": "zstd, json"}))  # doctest: +SKIP
        value: arrow (all records pass through Python for zstd (1 of 2))

    Args:
        config: As in :func:`serde_chain.spark.decode`, as are the others.
        engine: The engine.
        mode: The mode.
        topics: The topics.

    Returns:
        A line each for keys and values that have a chain: ``value: native (Spark's from_avro reads avro (1 of 1))``.

    Raises:
        ConfigError: As in :func:`serde_chain.spark.decode`.
    """
    loaded, mode, engine = load(config), check_mode(mode), check_engine(engine)
    choices = {
        KEY if field.is_key else VALUE: choose(loaded, field, engine=engine, mode=mode, topics=as_topics(topics))
        for field in (plan_field(loaded, is_key=True), plan_field(loaded, is_key=False))
        if field is not None
    }
    lines = [f"{name}: {choice.engine} ({choice.reason})" for name, choice in choices.items()]
    if len({choice.engine for choice in choices.values()}) > 1:
        lines.append("Together, in decode(): arrow, since one of them passes through Python anyway")
    return "\n".join(lines)
