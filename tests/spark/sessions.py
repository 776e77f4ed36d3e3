"""The Spark session that tests have: a process has one kind only."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from serde_chain.testing.services import spark_connect_session, spark_session
from tests.spark.clusters import connect_server_session, local_cluster_session, standalone_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task runs twice if it takes longer than others.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "2s",
}


@contextmanager
def event_log_session(app_name: str) -> "Iterator[SparkSession]":
    """A session that writes its event log, as those of clusters do."""
    with TemporaryDirectory() as folder:
        log = {"enabled": "true", "compress": "false", "dir": f"file:{folder}"}
        with spark_session(app_name, {f"spark.eventLog.{name}": value for name, value in log.items()}) as session:
            yield session


SESSIONS: "dict[str, Callable[[str], AbstractContextManager[SparkSession]]]" = {
    "local": spark_session,
    "connect": spark_connect_session,
    "connect-server": connect_server_session,
    "local-cluster": local_cluster_session,
    "event-log": event_log_session,
    "standalone": partial(standalone_session, conf=SPECULATION),
    **{
        f"limited-{memory}": partial(spark_session, conf={"spark.executor.pyspark.memory": memory})
        for memory in ("512m", "1g", "2g")
    },
}


def session_of_tests() -> "AbstractContextManager[SparkSession]":
    """The kind that ``SERDE_CHAIN_TESTS_SPARK`` names, as tests/spark/elsewhere.py does for other processes."""
    return SESSIONS[os.environ.get("SERDE_CHAIN_TESTS_SPARK", "local")]("tests")
