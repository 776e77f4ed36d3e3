"""A local Spark session with the Kafka connector."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from serde_chain.testing.services.errors import ServiceStartError
from serde_chain.testing.services.jars import jars
from serde_chain.testing.services.java import system_java
from serde_chain.testing.services.ports import HOST

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
# Spark sets the root logger to the level of this one, and says so, when Python starts it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def spark_jars() -> list[Path]:
    """Jars of Spark's Kafka source and sink and of its Avro functions, for the installed pyspark.

    Raises:
        ServiceMissingError: Java is not installed.
        ServiceDownloadError: The jars could not be fetched.
    """
    return sorted(jars("spark").glob("*.jar"))


@contextmanager
def spark_session(
    app_name: str = "serde-chain",
    conf: Mapping[str, str] | None = None,
    *,
    master: str = "local[2]",
    memory: str = "2g",
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """A Spark session in this process; leaving the context ends it and its JVM.

    Args:
        app_name: The application's name.
        conf: Spark settings that extend or override those chosen here.
        master: The master; by default two threads of its own JVM.
        memory: Maximum heap of its JVM.
        log: A file for the output of Spark's JVM and workers; by default this process's stderr.

    Yields:
        The session.

    Raises:
        ServiceMissingError: Java is not installed.
        ServiceDownloadError: The connector's jars could not be fetched.
        ServiceStartError: A session already exists, or Spark did not start.
    """
    if SparkSession.getActiveSession() is not None:
        message = "this process already has a Spark session, with other jars and settings: stop it first"
        raise ServiceStartError(message)
    system_java()
    with tempfile.TemporaryDirectory(prefix="serde-chain-spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settings: dict[str, str | float | bool | None] = {**session_settings(folder, memory), **(conf or {})}
        builder = SparkSession.builder.master(master).appName(app_name).config(map=settings)
        with spark_environment(), _stderr_to(log), interrupted_later() as interrupts:
            try:
                session = builder.getOrCreate()
            except Exception as error:
                message = f"Spark did not start: {error}"
                raise ServiceStartError(message) from error
        is_asked = True
        try:
            if interrupts:
                raise KeyboardInterrupt
            yield session
        except CapturedException as error:
            # Its text comes from the JVM, which has ended by the time the traceback is printed.
            error.add_note(str(error))
            raise
        except KeyboardInterrupt:
            is_asked = False
            raise
        finally:
            if is_asked:
                session.stop()
            stop_jvm(is_asked=is_asked)


def session_settings(folder: Path, memory: str) -> dict[str, str]:
    """Settings of a local session with its files in a folder."""
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    return {
        "spark.jars": ",".join(str(path) for path in spark_jars()),
        "spark.driver.memory": memory,
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging} -Djava.io.tmpdir={folder}",
        # The workers need the interpreter with the packages.
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        # The default, 200, is for clusters.
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def spark_environment(**more: str) -> Iterator[None]:
    """Set variables that Spark's launcher reads only from the environment; restore them afterwards."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST, **more}
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


@contextmanager
def interrupted_later() -> Iterator[list[int]]:
    """Defer Ctrl-C while Spark starts: pyspark would leave an orphaned JVM. A second Ctrl-C takes effect at once.

    Yields:
        A list that is not empty afterwards if Ctrl-C was pressed.
    """
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield came
        return

    def note(number: int, _frame: object) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        # pyspark's handler, now installed, asks the JVM to cancel while another answer is pending, which fails.
        signal.signal(signal.SIGINT, before)


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """Start child processes with their stderr in a file: the JVM inherits it, and keeps it."""
    if log is None:
        yield
        return
    stderr = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def stop_jvm(*, is_asked: bool = True) -> None:
    """End the JVM to free its memory; pyspark keeps it until the interpreter exits.

    Args:
        is_asked: Whether to request it from the JVM; not after Ctrl-C, while another answer is pending.
    """
    # pyspark has no public call for this.
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is None:
        return
    if is_asked:
        gateway.shutdown()
    else:
        SparkContext._active_spark_context = None  # noqa: SLF001
        SparkSession._instantiatedSession = None  # noqa: SLF001
    process = gateway.proc
    # The JVM ends when its standard input is closed.
    process.stdin.close()
    process.wait()
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
