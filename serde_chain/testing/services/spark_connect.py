"""A local Spark Connect server, and a session on it."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from serde_chain.testing.services.errors import ServiceStartError
from serde_chain.testing.services.java import system_java
from serde_chain.testing.services.spark import session_settings, spark_environment, stop_jvm


@contextmanager
def spark_connect_session(app_name: str = "serde-chain", *, memory: str = "2g") -> Iterator[SparkSession]:
    """A Spark Connect session on a server with two worker threads; leaving the context ends both.

    pyspark decides once per process whether its functions are those of Spark Connect, so no session of the other kind
    can exist beside it, or after it.

    Args:
        app_name: The application's name.
        memory: Maximum heap of the server.

    Yields:
        The session.

    Raises:
        ServiceMissingError: Java is not installed.
        ServiceDownloadError: The jars could not be fetched.
        ServiceStartError: Spark did not start.
    """
    system_java()
    with tempfile.TemporaryDirectory(prefix="serde-chain-spark-", ignore_cleanup_errors=True) as name:
        settings = session_settings(Path(name), memory)
        builder = SparkSession.builder.remote("local[2]").appName(app_name)
        for key, value in settings.items():
            builder = builder.config(key, value)
        # Makes the server listen on a free port, which pyspark then finds.
        with spark_environment(), patch.dict(os.environ, SPARK_TESTING="1"):
            try:
                # The client tries to set server-only settings on the session again, and warns.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    session = builder.getOrCreate()
            except Exception as error:
                message = f"Spark Connect did not start: {error}"
                raise ServiceStartError(message) from error
            try:
                yield session
            finally:
                session.stop()
                stop_jvm()
