"""Plans for reading with chains: made by the driver, and pickled for the workers, which need no pyspark for them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from serde_chain.base import RemovedHeaders
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import FAILFAST


@dataclass(frozen=True)
class FieldPlan:
    """The plan for reading keys or values.

    Attributes:
        is_key: Whether the plan is for keys.
        arrow_type: The ``pyarrow.DataType`` of the column.
        needs_headers: Whether a stage requires the record's headers.
        stages: Number of stages to run; None for all.
        given: Whether the user passed the type: values are matched to it by field names.
        restores: Whether references may stand for whole records, with headers, key and timestamp.
        markers: Headers of which every record that the stages change has at least one; None if they may change any
            record.
        removes: The headers that the stages remove; None if they may change headers in other ways.
        adds_headers: Whether a stage hands headers to the reader.
    """

    is_key: bool
    arrow_type: Any
    needs_headers: bool
    stages: int | None = None
    given: bool = False
    restores: bool = False
    markers: frozenset[str] | None = None
    removes: tuple[RemovedHeaders, ...] | None = None
    adds_headers: bool = False

    @property
    def changes_headers(self) -> bool:
        """Whether the stages may change the record's headers."""
        return self.restores or self.adds_headers or self.removes != ()


@dataclass(frozen=True)
class ReadPlan:
    """The work of a reading function in the workers.

    Attributes:
        config: The whole configuration, flat.
        columns: The function's arguments, by their names in Spark's Kafka source; ``timestamp`` is in ms.
        value: The plan for values; None leaves them unchanged.
        key: The plan for keys; None leaves them unchanged.
        gives: The fields of the returned struct, out of ``value``, ``key``, ``headers``, ``timestamp`` (µs, UTC),
            ``error`` and ``serde_retries``; empty for the value alone, or for the key if only keys are read.
        mode: ``FAILFAST``, ``PERMISSIVE`` or ``DROPMALFORMED``.
        python: The driver's interpreter, for messages.
        leaves_empty: Return null instead of a struct if neither value nor key is present.
        skips: Whether the JVM reads some rows itself, and passes only nulls for them.
    """

    config: Mapping[str, object] = field(repr=False)
    columns: tuple[str, ...]
    value: FieldPlan | None
    key: FieldPlan | None
    gives: tuple[str, ...]
    mode: str
    python: str = field(default_factory=lambda: sys.executable)
    leaves_empty: bool = False
    skips: bool = False

    @property
    def alone(self) -> str:
        """The field that is returned if none are named."""
        return KEY if self.value is None and self.key is not None else VALUE


def reads_apart(fields: Iterable[FieldPlan | None], mode: str, *, counts: bool) -> bool:
    """Whether keys, values and headers are columns of their own, so that a query fetches payloads only for its columns.

    Args:
        fields: The plans for keys and values.
        mode: The mode; all but ``FAILFAST`` report the errors of a whole record.
        counts: Whether the requests for a record are counted with it.
    """
    plans = [field for field in fields if field is not None]
    # Without payloads to fetch, one pass through Python for both is cheaper.
    fetches = any(plan.needs_headers for plan in plans)
    return mode == FAILFAST and not counts and fetches and all(plan.removes is not None for plan in plans)


def changed_columns(
    columns: Collection[str], value: FieldPlan | None, key: FieldPlan | None, mode: str
) -> tuple[str, ...]:
    """The columns of a DataFrame that the workers may change, and ``error`` in modes that continue after an error.

    Args:
        columns: The DataFrame's columns.
        value: The plan for values; None if they are not read.
        key: The plan for keys; None if they are not read.
        mode: The mode.
    """
    read = {name for name, plan in ((KEY, key), (VALUE, value)) if plan is not None}
    restored = {KEY, "timestamp"} if value is not None and value.restores else set()
    if any(plan.changes_headers for plan in (key, value) if plan is not None):
        restored.add("headers")
    changed = [name for name in (KEY, VALUE, "headers", "timestamp") if name in read | restored]
    return (*(name for name in changed if name in columns), *(() if mode == FAILFAST else ("error",)))
