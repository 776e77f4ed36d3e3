"""Explains which engine reads or writes with a configuration's chains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame

from serde_chain.config import Config
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import ARROW, NATIVE, as_topics, check_engine, check_mode
from serde_chain.spark.chains.opened import OpenedChain
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.frame import types_of
from serde_chain.spark.fields.planning import FieldsPlan
from serde_chain.spark.reading.engine import why_not_compiled
from serde_chain.spark.reading.planning import plan_records
from serde_chain.spark.writing.engine import choose_writing
from serde_chain.spark.writing.plan import open_setup, with_defaults
from serde_chain.stages.avro.stage import AvroDeserializer


def explain(
    config: Config | str | Path,
    *,
    engine: str = "auto",
    mode: str = "FAILFAST",
    topics: str | Sequence[str] = (),
    writes: DataFrame | None = None,
) -> str:
    """Say which engine reads with a configuration's chains, or writes a DataFrame with them, and why.

    Example:
        >>> print(explain({"value.deserializers": "zstd, json"}))  # doctest: +SKIP
        value: arrow (all records pass through Python for zstd (1 of 2))
        >>> print(explain({"value.serializers": "json"}, writes=alerts))  # doctest: +SKIP
        value: arrow (Spark has no function for json (1 of 1))

    Args:
        config: As in :func:`serde_chain.spark.decode`, like the other arguments; with ``writes``, as in
            :func:`serde_chain.spark.encode`.
        engine: The engine.
        mode: The mode.
        topics: The topics; with ``writes``, the topic passed to ``encode``.
        writes: The DataFrame for ``encode`` to write.

    Returns:
        A line for each field that has a chain: ``value: native (Spark's from_avro reads avro (1 of 1))``; with
        ``large-fields``, one for the fields in :func:`serde_chain.spark.decode`; and one for the reader of the stage
        ``avro``, if Python reads: ``avro: compiled``, or ``avro: fastavro``, and why: the compiled reader refuses the
        configured schema, is switched off, or is not there.

    Raises:
        ConfigError: As in :func:`serde_chain.spark.decode` and :func:`serde_chain.spark.encode`.
    """
    mode, engine, named = check_mode(mode), check_engine(engine), as_topics(topics)
    loaded = load(config, () if writes is not None else named)
    if writes is not None:
        return _explain_writing(loaded, writes, engine, named)
    plan = plan_records(loaded, mode=mode, engine=engine, topics=named)
    choices = plan.choices()
    together = None if plan.reads_apart else "decode"
    words = _in_words({name: (choice.engine, choice.reason) for name, choice in choices.items()}, together)
    if plan.fields is not None:
        words = f"{words}\nfields: {_of_fields(plan.fields)}"
    in_python = [plan.chains[name] for name, choice in choices.items() if choice.engine == ARROW]
    return "\n".join([words, *dict.fromkeys(_compiled(in_python))])


def _of_fields(fetched: FieldsPlan | str) -> str:
    if isinstance(fetched, str):
        return f"fetched with the value ({fetched})"
    names = ", ".join(column.name for column in fetched.columns) or "none"
    return "; ".join((f"each fetched by the queries that use it ({names})", *fetched.unknown))


def _compiled(chains: Iterable[OpenedChain]) -> Iterator[str]:
    """What reads the Avro of each chain."""
    for stage in (stage for chain in chains for stage in chain.stages):
        if isinstance(stage, AvroDeserializer):
            why = why_not_compiled(stage)
            yield "avro: compiled" if why is None else f"avro: fastavro, record by record ({why})"


def _explain_writing(config: Mapping[str, object], frame: DataFrame, engine: str, topics: tuple[str, ...]) -> str:
    types = types_of(frame, (KEY, VALUE))
    topic = topics[0] if len(topics) == 1 else None
    with closing(open_setup(with_defaults(config))) as setup:
        choice = choose_writing(setup, types, topic=topic, engine=engine, session=frame.sparkSession)
    return _in_words(
        {
            name: (NATIVE if name in choice.writers else ARROW, choice.reasons[name])
            for name in (KEY, VALUE)
            if name in choice.reasons
        },
        "encode",
    )


def _in_words(choices: Mapping[str, tuple[str, str]], together: str | None) -> str:
    """A line for each field, and one for the function that handles both together."""
    lines = [f"{name}: {engine} ({reason})" for name, (engine, reason) in choices.items()]
    if together is not None and len({engine for engine, _ in choices.values()}) > 1:
        lines.append(f"Together, in {together}(): arrow, since one of them passes through Python anyway")
    return "\n".join(lines)
