"""The instructions of jobs to the workers, which find references, list payloads and copy partitions."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from serde_chain.jobs.migration_plan import MigratePlan
from serde_chain.jobs.payload_folders import IdRange
from serde_chain.jobs.reference_plan import ReferencePlan

LISTED: Final = "name bigint, reference string, size bigint, modified bigint, folder int"
"""The columns of a :class:`~serde_chain.jobs.payload_folders.ListedPayload`."""


@dataclass(frozen=True)
class FindPlan:
    """The instructions for workers that find references.

    Attributes:
        reading: The plan for reading references.
        columns: As in :class:`~serde_chain.spark.chains.plan.ReadPlan`.
        python: The driver's interpreter, for messages.
    """

    reading: ReferencePlan
    columns: tuple[str, ...] = ("value", "headers", "topic", "partition", "offset", "key")
    python: str = field(default_factory=lambda: sys.executable)


@dataclass(frozen=True)
class ListingPlan:
    """The instructions for workers that list payloads.

    Attributes:
        reading: The plan for reading references, which determines stores and topics.
        parts: The ranges of folders to list, by one task each.
        before: List only payloads written before this time.
        python: The driver's interpreter, for messages.
    """

    reading: ReferencePlan
    parts: tuple[IdRange, ...]
    before: datetime
    python: str = field(default_factory=lambda: sys.executable)


@dataclass(frozen=True)
class CopyPlan:
    """The instructions for workers that copy partitions.

    Attributes:
        copying: The way to copy a partition.
        columns: The function's arguments: the partition, and the end of its copy.
        python: The driver's interpreter, for messages.
    """

    copying: MigratePlan
    columns: tuple[str, ...] = ("partition", "offset")
    python: str = field(default_factory=lambda: sys.executable)
