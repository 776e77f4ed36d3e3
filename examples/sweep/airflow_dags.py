"""A daily sweep and a weekly audit as DAGs of Airflow 3, by the command line in its own environment."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

COMMAND = "/opt/serde-chain/bin/serde-chain"
CONFIG = "/etc/serde-chain/client.toml"
TOPICS = "images"
# An existing folder for the lists of deletions: the working folder that Airflow itself creates ends with the task.
MANIFESTS = "/srv/sweeps"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

with DAG("serde_chain_sweep", schedule="15 3 * * *", start_date=BEGIN, catchup=False, max_active_runs=1):
    # The last line of its output, a JSON object, is the result of the task (XCom).
    BashOperator(
        task_id="sweep",
        bash_command=f"{COMMAND} sweep {CONFIG} {TOPICS} --delete --json",
        cwd=MANIFESTS,
        retries=2,
        retry_delay=timedelta(minutes=10),
        execution_timeout=timedelta(hours=3),
    )

with DAG("serde_chain_audit", schedule="15 5 * * 0", start_date=BEGIN, catchup=False, max_active_runs=1):
    BashOperator(
        task_id="audit",
        bash_command=f"{COMMAND} audit {CONFIG} {TOPICS} --json",
        retries=2,
        retry_delay=timedelta(minutes=10),
        execution_timeout=timedelta(hours=6),
    )
