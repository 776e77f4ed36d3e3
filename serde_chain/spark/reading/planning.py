"""The plan for reading records, made once from a configuration: all that the columns of a query depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from serde_chain.catalogue import DESERIALIZE
from serde_chain.config import stages_of
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import FAILFAST
from serde_chain.spark.chains.opened import OpenedChain, open_chain
from serde_chain.spark.chains.plan import FieldPlan, reads_apart
from serde_chain.spark.fields.planning import FieldsPlan, plan_fields
from serde_chain.spark.reading.engine import Choice, choose
from serde_chain.spark.udfs.retries import RETRIES


@dataclass(frozen=True)
class RecordsPlan:
    """How keys and values are read. Each chain was opened once.

    Attributes:
        config: Flat configuration.
        chains: The chains of ``key`` and ``value``, in this order; without those that the configuration does not name.
        plans: What workers read of them, likewise.
        fields: The columns of the value to fetch by themselves; the reason if fields can only be fetched with the rest
            of the value; None if no stage fetches fields.
        mode: The mode.
        engine: The engine, as requested.
        topics: The topics whose subjects in the registry determine the schemas.
        counts: Whether the requests for a record are counted with it.
    """

    config: dict[str, object] = field(repr=False)
    chains: Mapping[str, OpenedChain]
    plans: Mapping[str, FieldPlan]
    fields: FieldsPlan | str | None
    mode: str
    engine: str
    topics: tuple[str, ...]
    counts: bool

    @property
    def reads_apart(self) -> bool:
        """As :func:`~serde_chain.spark.chains.plan.reads_apart`."""
        return reads_apart(self.plans.values(), self.mode, counts=self.counts)

    @property
    def counted(self) -> tuple[str, ...]:
        """The columns of numbers that are added."""
        return (RETRIES,) if self.counts else ()

    def choices(self, session: SparkSession | None = None) -> dict[str, Choice]:
        """The engines of ``key`` and ``value``.

        Args:
            session: As for :func:`~serde_chain.spark.reading.engine.choose`, like the errors.

        Raises:
            ConfigError: The requested engine cannot read a chain.
            SchemaRegistryError: It needs the registry, which does not answer.
        """
        engine, mode, topics = self.engine, self.mode, self.topics
        return {
            name: choose(chain, self.plans[name], engine=engine, mode=mode, topics=topics, session=session)
            for name, chain in self.chains.items()
        }


def plan_records(
    config: dict[str, object], *, mode: str, engine: str, topics: Sequence[str], counts: bool = False
) -> RecordsPlan:
    """Open the chains of a configuration, and plan how keys and values are read.

    Args:
        config: Flat configuration.
        mode: The mode.
        engine: The engine.
        topics: The topics.
        counts: Whether the requests for a record are counted with it.

    Raises:
        ConfigError: The configuration is wrong, or a type is unknown.
        MissingDependencyError: A package is not installed.
    """
    # Opening the first one checks all keys of the configuration.
    value = open_chain(config, is_key=False)
    key = open_chain(config, is_key=True) if stages_of(config, DESERIALIZE, is_key=True) else None
    chains = {name: chain for name, chain in ((KEY, key), (VALUE, value)) if chain is not None}
    plans = {name: chain.whole for name, chain in chains.items()}
    fields = None
    if value is not None:
        fields = _apart(plan_fields(value), mode, counts=counts)
        if isinstance(fields, FieldsPlan):
            plans[VALUE] = fields.value
    return RecordsPlan(config, chains, plans, fields, mode, engine, tuple(topics), counts)


def _apart(fields: FieldsPlan | str | None, mode: str, *, counts: bool) -> FieldsPlan | str | None:
    """A plan for fields, or the reason why it does not apply: first what no other configuration changes."""
    if fields is None:
        return None
    if mode != FAILFAST:
        return f"{mode} checks all fields of a record"
    if counts:
        return "their requests are counted"
    if isinstance(fields, FieldsPlan) and fields.value.removes is None:
        return "an earlier stage may change any header"
    return fields
