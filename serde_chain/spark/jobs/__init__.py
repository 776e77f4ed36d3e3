"""Jobs on topics and payload stores, with Spark; :mod:`serde_chain.jobs` has them without.

:func:`sweep` deletes orphans, :func:`audit` finds missing payloads, :func:`migrate` moves records and payloads.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from payload_stores.plugins import require

if TYPE_CHECKING:
    from serde_chain.jobs.auditing import AuditReport
    from serde_chain.jobs.migrating import MigrateReport
    from serde_chain.jobs.sweeping import SweepReport
    from serde_chain.spark.jobs.auditing import audit
    from serde_chain.spark.jobs.migrating import migrate
    from serde_chain.spark.jobs.sweeping import sweep

__all__ = ["AuditReport", "MigrateReport", "SweepReport", "audit", "migrate", "sweep"]

_MODULES = {
    "AuditReport": "serde_chain.jobs.auditing",
    "MigrateReport": "serde_chain.jobs.migrating",
    "SweepReport": "serde_chain.jobs.sweeping",
    "audit": "serde_chain.spark.jobs.auditing",
    "migrate": "serde_chain.spark.jobs.migrating",
    "sweep": "serde_chain.spark.jobs.sweeping",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("pyspark", "spark")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
