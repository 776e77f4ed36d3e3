"""The Spark session that tests have: a process has one kind only. How all JVMs of Spark start cheaply."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from serde_chain.testing.services import spark_connect_session, spark_session
from serde_chain.testing.services.java import QUICK_START
from tests.spark.clusters import connect_server_session, local_cluster_session, standalone_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What tests run is compiled once and seldom run again: the optimizing compiler and the threads of the default garbage
# collector take a third of the CPU time.
JVM = " ".join(QUICK_START)

# A task runs twice if it takes longer than others.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "2s",
}


def start_cheaply() -> None:
    """Set the variables that Spark's scripts give to each JVM of this process and of those that it starts."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(name, JVM)


@contextmanager
def logged_standalone_session(app_name: str) -> "Iterator[SparkSession]":
    """A session on a standalone cluster that writes its event log."""
    with TemporaryDirectory() as folder:
        log = {"enabled": "true", "compress": "false", "dir": f"file:{folder}"}
        settings = SPECULATION | {f"spark.eventLog.{name}": value for name, value in log.items()}
        with standalone_session(app_name, settings) as session:
            yield session


SESSIONS: "dict[str, Callable[[str], AbstractContextManager[SparkSession]]]" = {
    "local": spark_session,
    "connect": spark_connect_session,
    "connect-server": connect_server_session,
    "local-cluster": local_cluster_session,
    "standalone": logged_standalone_session,
    **{
        f"limited-{memory}": partial(spark_session, conf={"spark.executor.pyspark.memory": memory})
        for memory in ("512m", "1g", "2g")
    },
}


def session_of_tests() -> "AbstractContextManager[SparkSession]":
    """The kind that ``SERDE_CHAIN_TESTS_SPARK`` names, as tests/spark/elsewhere.py does for other processes."""
    return SESSIONS[os.environ.get("SERDE_CHAIN_TESTS_SPARK", "local")]("tests")
