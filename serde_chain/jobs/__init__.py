"""Jobs on topics and payload stores, in one process.

:func:`sweep` deletes orphans, :func:`audit` finds missing payloads, :func:`migrate` moves records and payloads.
:mod:`serde_chain.spark.jobs` has the same for Spark, with the same results.
"""

from typing import TYPE_CHECKING

from payload_stores.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from serde_chain.jobs.auditing import AuditReport as AuditReport
    from serde_chain.jobs.auditing import Problem as Problem
    from serde_chain.jobs.local.auditing import Problems as Problems
    from serde_chain.jobs.local.auditing import audit as audit
    from serde_chain.jobs.local.migrating import migrate as migrate
    from serde_chain.jobs.local.sweeping import sweep as sweep
    from serde_chain.jobs.migrating import MigrateReport as MigrateReport
    from serde_chain.jobs.sweeping import SweepReport as SweepReport
else:
    __all__, __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            ".auditing": "AuditReport Problem",
            ".local.auditing": "Problems audit",
            ".local.migrating": "migrate",
            ".local.sweeping": "sweep",
            ".migrating": "MigrateReport",
            ".sweeping": "SweepReport",
        },
        needs=("confluent_kafka", "kafka"),
    )
