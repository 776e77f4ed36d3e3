"""Jobs on topics and payload stores, in one process.

:func:`sweep` deletes orphans, :func:`audit` finds missing payloads, :func:`migrate` moves records and payloads.
:mod:`serde_chain.spark.jobs` has the same for Spark, with the same results.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from payload_stores.plugins import require

if TYPE_CHECKING:
    from serde_chain.jobs.auditing import AuditReport, Problem
    from serde_chain.jobs.local.auditing import Problems, audit
    from serde_chain.jobs.local.migrating import migrate
    from serde_chain.jobs.local.sweeping import sweep
    from serde_chain.jobs.migrating import MigrateReport
    from serde_chain.jobs.sweeping import SweepReport

__all__ = [
    "AuditReport",
    "MigrateReport",
    "Problem",
    "Problems",
    "SweepReport",
    "audit",
    "migrate",
    "sweep",
]

_MODULES = {
    "AuditReport": "auditing",
    "MigrateReport": "migrating",
    "Problem": "auditing",
    "Problems": "local.auditing",
    "SweepReport": "sweeping",
    "audit": "local.auditing",
    "migrate": "local.migrating",
    "sweep": "local.sweeping",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("confluent_kafka", "kafka")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
