"""How keys and values are written: a chain is built on the driver first, to find its mistakes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from payload_stores.options import Option, integer
from serde_chain.base import SupportsOffload
from serde_chain.chain import SerializerChain
from serde_chain.clients.client_chains import MAX_BLOCK, ClientChains
from serde_chain.clients.limits import ClientLimits

__all__ = ["WritePlan", "open_setup", "plan_offload", "with_defaults"]

# Kafka's producer for Java, which Spark's sink uses, has this limit.
MAX_REQUEST: Final = Option(
    "max.request.size", integer(1), 1_048_576, doc="of Spark's sink: its option kafka.max.request.size"
)
# Its estimate of a record is larger than librdkafka's by this much at most.
_MORE_OVERHEAD: Final = 54


@dataclass(frozen=True)
class WritePlan:
    """The work of a function that writes, in the workers.

    Attributes:
        config: The whole configuration, flat.
        columns: What the function's arguments are, by their names in Spark's Kafka sink.
        gives: The fields of the struct that it returns, out of ``key``, ``value``, ``headers`` and ``serde_retries``.
        first: The first stage of the value chain that is run; those before it were run by Spark.
        python: The driver's interpreter, for messages.
    """

    config: Mapping[str, object] = field(repr=False)
    columns: tuple[str, ...]
    gives: tuple[str, ...]
    first: int = 0
    python: str = field(default_factory=lambda: sys.executable)


def with_defaults(config: Mapping[str, object]) -> dict[str, object]:
    """A configuration with what is right for Spark where it says nothing: ids of the content.

    A task that is tried again, or runs twice, then writes the same objects, and not others beside them.
    """
    from serde_chain.catalogue import StageItem, find_format
    from serde_chain.stages.large_message.options import FORMAT, ID

    of_values = StageItem("large-message", {}).settings(config, is_key=False)
    if of_values.get(ID.name) is None and "content" in find_format(FORMAT.read(of_values)).id_strategies:
        return {**config, ID.name: "content"}
    return dict(config)


def open_setup(config: Mapping[str, object]) -> ClientChains[SerializerChain]:
    """Open the chains of a configuration, under the limits of Spark's sink.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: A package is not installed.
    """
    setup = ClientChains.of(config, SerializerChain, MAX_BLOCK)
    try:
        return setup.with_limits(partial(_limits, MAX_REQUEST.read(setup.config)))
    except BaseException:
        setup.close()
        raise


def _limits(max_request: int, _stage: SupportsOffload, overhead: int, is_key: bool) -> ClientLimits:
    return ClientLimits(max_request - _MORE_OVERHEAD, overhead, None, is_key=is_key, setting=MAX_REQUEST.name)


def plan_offload(setup: ClientChains[SerializerChain]) -> tuple[int, int] | None:
    """Where the value chain begins to offload, and how large a value may be that does not pass through Python.

    Returns:
        The position of ``large-message``, and bytes; 0 where all values do. None if the chain does not offload.
    """
    stages = setup.value.stages if setup.value is not None else ()
    for at, stage in enumerate(stages):
        if isinstance(stage, SupportsOffload):
            return at, stage.most_alone if at == len(stages) - 1 else 0
    return None
