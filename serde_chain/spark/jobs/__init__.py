"""Jobs on topics and payload stores.

:func:`sweep` deletes orphans, :func:`audit` finds missing payloads, :func:`migrate` moves records and payloads.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from payload_stores.plugins import require

if TYPE_CHECKING:
    from serde_chain.spark.jobs.auditing import AuditReport, audit
    from serde_chain.spark.jobs.migrating import MigrateReport, migrate
    from serde_chain.spark.jobs.sweeping import SweepReport, sweep

__all__ = ["AuditReport", "MigrateReport", "SweepReport", "audit", "migrate", "sweep"]

_MODULES = {
    "AuditReport": "auditing",
    "MigrateReport": "migrating",
    "SweepReport": "sweeping",
    "audit": "auditing",
    "migrate": "migrating",
    "sweep": "sweeping",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("pyspark", "spark")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
