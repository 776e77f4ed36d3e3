"""Plans for writing keys and values: the driver builds each chain first, to find mistakes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from payload_stores.options import Option, integer
from serde_chain.base import SupportsOffload
from serde_chain.chain import SerializerChain
from serde_chain.clients.client_chains import ClientChains
from serde_chain.clients.limits import JAVA_OVERHEAD
from serde_chain.clients.topic_limits import LearntLimits
from serde_chain.spark.writing.topic_limits import NOT_ASKED, Asking, SinkLimits, admin_of
from serde_chain.stages.large_message.options import with_content_ids

# Java's Kafka producer, which Spark's sink uses, has this limit.
MAX_REQUEST: Final = Option(
    "max.request.size", integer(1), 1_048_576, doc="of Spark's sink: its option kafka.max.request.size"
)


@dataclass(frozen=True)
class WritePlan:
    """The work of a writing function in the workers.

    Attributes:
        config: The whole configuration, flat.
        columns: The function's arguments, by their names in Spark's Kafka sink.
        gives: The fields of the returned struct, out of ``key``, ``value``, ``headers`` and ``serde_retries``.
        first: The first stage of the value chain to run; Spark ran those before it.
        end: The stage before which it ends, as Spark runs the others; None for all. The value's column keeps its type.
        python: The driver's interpreter, for messages.
        limits: What is known of the limits of topics.
    """

    config: Mapping[str, object] = field(repr=False)
    columns: tuple[str, ...]
    gives: tuple[str, ...]
    first: int = 0
    end: int | None = None
    python: str = field(default_factory=lambda: sys.executable)
    limits: SinkLimits = NOT_ASKED


def with_defaults(config: Mapping[str, object]) -> dict[str, object]:
    """A configuration with Spark's defaults: content ids.

    Retried and speculative tasks then write the same objects instead of duplicates.
    """
    return with_content_ids(config)


def open_setup(config: Mapping[str, object], limits: SinkLimits = NOT_ASKED) -> ClientChains[SerializerChain]:
    """Open the chains of a configuration, under the limits of Spark's sink.

    Args:
        config: Flat configuration.
        limits: What is known of the limits of topics.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: A package is not installed.
    """
    setup = ClientChains.of_writer(config)
    try:
        return limited(setup, limits)
    except BaseException:
        setup.close()
        raise


def limited(setup: ClientChains[SerializerChain], limits: SinkLimits) -> ClientChains[SerializerChain]:
    """Chains under the limits of Spark's sink; those of topics replace the ones before.

    Args:
        setup: The chains.
        limits: What is known of the limits of topics.

    Raises:
        ConfigError: A threshold is above the sink's limit.
    """
    admin = partial(admin_of, _client_of(setup)) if limits.asks else None
    max_bytes = MAX_REQUEST.read(setup.config) - JAVA_OVERHEAD
    return setup.with_limits(
        LearntLimits(admin, max_bytes, setting=MAX_REQUEST.name, answers=limits.answers, only=limits.only)
    )


def asking(setup: ClientChains[SerializerChain]) -> Asking:
    """Asks for the limits of topics on the driver.

    Args:
        setup: The chains.
    """
    setting = f"{MAX_REQUEST.name} ({MAX_REQUEST.read(setup.config)})"
    return Asking(setup.offloading, _client_of(setup), setting)


def _client_of(setup: ClientChains[SerializerChain]) -> dict[str, Any]:
    """The settings of the client that asks, without those of Spark's sink."""
    return {name: value for name, value in setup.client.items() if name != MAX_REQUEST.name}


def plan_offload(setup: ClientChains[SerializerChain]) -> tuple[int, int] | None:
    """The position where the value chain begins to offload, and the maximum size of values that bypass Python.

    Returns:
        The position of ``large-message``, and bytes; 0 if no values bypass Python. None if the chain does not offload.
    """
    stages = setup.value.stages if setup.value is not None else ()
    for at, stage in enumerate(stages):
        if isinstance(stage, SupportsOffload):
            return at, stage.most_alone if at == len(stages) - 1 else 0
    return None
