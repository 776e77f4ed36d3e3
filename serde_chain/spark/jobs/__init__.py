"""Jobs on topics and payload stores, with Spark; :mod:`serde_chain.jobs` has them without.

:func:`sweep` deletes orphans, :func:`audit` finds missing payloads, :func:`migrate` moves records and payloads.
"""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.jobs.auditing import AuditReport as AuditReport
    from serde_chain.jobs.migrating import MigrateReport as MigrateReport
    from serde_chain.jobs.sweeping import SweepReport as SweepReport
    from serde_chain.spark.jobs.auditing import audit as audit
    from serde_chain.spark.jobs.migrating import migrate as migrate
    from serde_chain.spark.jobs.sweeping import sweep as sweep
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "serde_chain.jobs.auditing": "AuditReport",
            "serde_chain.jobs.migrating": "MigrateReport",
            "serde_chain.jobs.sweeping": "SweepReport",
            ".auditing": "audit",
            ".migrating": "migrate",
            ".sweeping": "sweep",
        },
        needs=("pyspark", "spark"),
    )
