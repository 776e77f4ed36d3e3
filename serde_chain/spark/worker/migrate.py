"""Migration in Spark's Python workers: a task copies one partition.

A retried or speculative task continues where the other one stopped.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from payload_stores.plugins import require
from serde_chain.jobs.copying import Copied, copy_partition
from serde_chain.spark.plan.jobs import CopyPlan
from serde_chain.spark.worker.memory import give_back_at_once

__all__ = ["copy_partitions"]


def copy_partitions(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Copy partitions for a while, at most up to their ends.

    Args:
        pickled: A :class:`~serde_chain.spark.plan.jobs.CopyPlan`.
        batches: For each batch a tuple of ``pyarrow.Array``: partitions, and their ends.

    Yields:
        ``pyarrow.StringArray`` of JSON: the fields of a :class:`~serde_chain.jobs.copying.Copied`. The task itself
        succeeds, even if an error ended the copy: a retry would fail again.
    """
    give_back_at_once()
    plan: CopyPlan = pickle.loads(pickled)  # noqa: S301, the driver's own bytes
    arrow = require("pyarrow", "spark")
    for partitions, ends in batches:
        pairs = zip(partitions.to_pylist(), ends.to_pylist(), strict=True)
        copied = (copy_partition(plan.copying, partition, end) for partition, end in pairs)
        yield arrow.array(map(_shown, copied), arrow.string())


def _shown(copied: Copied) -> str:
    done, error = (None if part is None else asdict(part) for part in (copied.done, copied.error))
    return json.dumps({"partition": copied.partition, "done": done, "error": error})
