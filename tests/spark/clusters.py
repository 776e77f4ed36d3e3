"""Servers of Spark on this machine: clusters, whose tasks are tried again, and Spark Connect.

Executors, and the server of Spark Connect, are processes of their own.
"""

import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

import pyspark
from pyspark.sql import SparkSession

from serde_chain.testing.services.java import QUICK_START, system_java
from serde_chain.testing.services.ports import HOST, port_answers
from serde_chain.testing.services.process import Service
from serde_chain.testing.services.spark import session_settings, spark_environment, spark_session

_PYSPARK = Path(pyspark.__file__).parent
_EXECUTOR = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "768m",
    "spark.executor.extraJavaOptions": " ".join(QUICK_START),
}
_ANSWER_SECONDS = 5


@contextmanager
def local_cluster_session(
    app_name: str = "serde-chain", conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session with two executors, ``local-cluster[2,1,1024]``; ended with them on leaving.

    Args:
        app_name: The application's name.
        conf: Spark settings to add.

    Yields:
        The session.

    Raises:
        ServiceError: As for :func:`~serde_chain.testing.services.spark_session`.
    """
    with tempfile.TemporaryDirectory(prefix="serde-chain-spark-home-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        # Executors write into the folder `work` of Spark's, which is that of the installed package otherwise.
        for entry in _PYSPARK.iterdir():
            (home / entry.name).symlink_to(entry)
        settings = {**_EXECUTOR, **(conf or {})}
        with (
            spark_environment(SPARK_HOME=name),
            spark_session(app_name, settings, master="local-cluster[2,1,1024]") as session,
        ):
            yield session


@contextmanager
def standalone_session(app_name: str = "serde-chain", conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session on a standalone master with two workers of an executor each; all of them end on leaving.

    The workers have different names for this machine, as Spark runs no second copy of a task on the same one.

    Args:
        app_name: The application's name.
        conf: Spark settings to add.

    Yields:
        The session.

    Raises:
        ServiceError: As for :func:`~serde_chain.testing.services.spark_session`.
    """
    with ExitStack() as stack:
        master = stack.enter_context(SparkMaster())
        for host in (HOST, "localhost"):
            stack.enter_context(SparkWorker(master, host))
        yield stack.enter_context(spark_session(app_name, {**_EXECUTOR, **(conf or {})}, master=master.url))


@contextmanager
def connect_server_session(app_name: str = "serde-chain") -> Iterator[SparkSession]:
    """A session on a server of Spark Connect in another process; both end on leaving.

    The client has no JVM, and no files or environment in common with the server's workers but those of the machine.

    Args:
        app_name: The application's name.

    Yields:
        The session.

    Raises:
        ServiceError: The server did not start.
    """
    with ConnectServer() as server:
        session = SparkSession.builder.remote(server.url).appName(app_name).getOrCreate()
        try:
            yield session
        finally:
            session.stop()


class ConnectServer(Service):
    """A server of Spark Connect, as `start-connect-server.sh` starts one."""

    name = "spark-connect-server"

    @property
    def url(self) -> str:
        """What sessions take as its address."""
        return f"sc://{HOST}:{self._port()}"

    def _environment(self) -> Mapping[str, str]:
        # The server takes its workers' interpreter from nowhere else.
        return {"SPARK_LOCAL_IP": HOST, "SPARK_HOME": str(_PYSPARK), "PYSPARK_PYTHON": sys.executable}

    def _prepare(self, folder: Path) -> list[str]:
        system_java()
        settings = {
            **session_settings(folder, "2g"),
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self._port()),
        }
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
        return [str(_PYSPARK / "bin" / "spark-submit"), *main, *conf]

    def _ready(self) -> bool:
        return port_answers(self._port())


class _Daemon(Service):
    port_count: ClassVar[int] = 2

    def _environment(self) -> Mapping[str, str]:
        # Workers hand their environment on to executors, whose interpreters are to have what is theirs alone.
        return {"SPARK_LOCAL_IP": HOST, "SPARK_HOME": str(_PYSPARK), "PYTHONPATH": ""}

    def _class(self, name: str, host: str, *arguments: str) -> list[str]:
        system_java()
        ports = ["--host", host, "--port", str(self._port()), "--webui-port", str(self._port(1))]
        return [str(_PYSPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *ports, *arguments]


class SparkMaster(_Daemon):
    """The master of a standalone cluster."""

    name = "spark-master"

    @property
    def url(self) -> str:
        """What sessions and workers take as its address."""
        return f"spark://{HOST}:{self._port()}"

    def workers(self) -> int:
        """How many workers it has; -1 while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port(1)}/json/", timeout=_ANSWER_SECONDS) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return -1

    def _prepare(self, folder: Path) -> list[str]:
        return self._class("master.Master", HOST)

    def _ready(self) -> bool:
        return self.workers() >= 0


class SparkWorker(_Daemon):
    """A worker of a standalone cluster, with a core.

    Args:
        master: Its master.
        host: Its name for this machine.
    """

    name = "spark-worker"

    def __init__(self, master: SparkMaster, host: str = HOST) -> None:
        super().__init__()
        self._master = master
        self._host = host
        self._before = 0

    def _prepare(self, folder: Path) -> list[str]:
        self._before = self._master.workers()
        room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
        return self._class("worker.Worker", self._host, *room, self._master.url)

    def _ready(self) -> bool:
        return self._master.workers() > self._before
