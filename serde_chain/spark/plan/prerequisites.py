"""The packages and interpreters that Spark needs, checked on the driver: one sentence names what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyspark import SparkFiles
from pyspark.sql import functions

from payload_stores.plugins import require
from serde_chain.errors import MissingDependencyError

__all__ = ["check_packages", "check_worker_python", "has_arrow_udfs", "worker_packages"]

_INSTALL: Final = "pip install 'serde-chain[spark]'"
# (package, lowest major and minor version, version from which on it does not work)
_VERSIONS: Final = (("pyspark", (4, 0), (5, 0)), ("pandas", (2, 2), (3, 0)), ("pyarrow", (15, 0), None))
_PROBE_SECONDS: Final = 60
# Not local-cluster, whose executors are processes of their own.
_LOCAL: Final = re.compile(r"local(\[|$)")


def check_packages() -> None:
    """Check the packages of this interpreter.

    Raises:
        MissingDependencyError: One is missing, too old or too new; the hint says what to install.
    """
    for package, lowest, end in _VERSIONS:
        installed = str(require(package, "spark").__version__)
        version = tuple(int(part) for part in installed.split(".")[:2])
        if version < lowest:
            raise MissingDependencyError(
                f"{package} {installed} is too old, at least {_dotted(lowest)} is needed", hint=f"{_INSTALL} --upgrade"
            )
        if end is not None and version >= end:
            raise MissingDependencyError(
                f"{package} {installed} does not work with {'this version' if package == 'pyspark' else 'pyspark 4'}",
                hint=f"pip install '{package}<{end[0]}'",
            )


def has_arrow_udfs() -> bool:
    """Whether pyspark has functions on Arrow arrays, as from 4.1 on.

    Example:
        >>> has_arrow_udfs() == ("pandas" not in worker_packages())
        True
    """
    return hasattr(functions, "arrow_udf")


def worker_packages() -> tuple[str, ...]:
    """What pyspark needs in the workers for functions on Arrow arrays; where it has none, they are pandas UDFs.

    Example:
        >>> "pyarrow" in worker_packages()
        True
    """
    return ("pyarrow",) if has_arrow_udfs() else ("pyarrow", "pandas")


def check_worker_python(session: Any) -> None:
    """Check the interpreter of the workers, where it is sure to be one of this machine: with a local master.

    Args:
        session: The Spark session.

    Raises:
        MissingDependencyError: It lacks a package; the message names PYSPARK_PYTHON.
    """
    # A Spark Connect session has no context, and its workers run elsewhere, as those of a cluster do, in folders of
    # their own with archives of their own; there the worker itself reports it.
    context = getattr(session, "sparkContext", None)
    if context is None or not _LOCAL.match(str(context.master)):
        return
    python = shutil.which(str(context.pythonExec))
    if python is None or Path(python).absolute() == Path(sys.executable).absolute():
        return
    problem = _probe(python, _python_path(context))
    if problem:
        raise MissingDependencyError(
            f"Spark's workers run {python}, which cannot load what they need ({problem})",
            hint=f"Before the session starts, set PYSPARK_PYTHON to an interpreter that has 'serde-chain[spark]'; "
            f"this one is {sys.executable}",
        )


def _python_path(context: Any) -> str:
    """Where the workers look for modules besides their own packages.

    Args:
        context: The ``SparkContext``.

    Returns:
        A ``PYTHONPATH``: files added by ``addPyFile`` or ``--py-files``, then what the context and this process's
        environment name.
    """
    places = []
    if context.listFiles:
        added = {Path(unquote(urlsplit(file).path)).name for file in context.listFiles}
        packages = sorted(name for name in added if name.lower().endswith(context.PACKAGE_EXTENSIONS))
        # Single modules lie in the folder itself.
        places = [*map(SparkFiles.get, packages), SparkFiles.getRootDirectory()]
    places += [paths["PYTHONPATH"] for paths in (context.environment, os.environ) if paths.get("PYTHONPATH")]
    return os.pathsep.join(places)


@cache
def _probe(python: str, path: str) -> str:
    """Load the worker's modules in an interpreter: the end of its error, or an empty text if it can.

    Args:
        python: The interpreter.
        path: Its ``PYTHONPATH``.
    """
    # Not pyspark, which Spark brings along for its workers.
    modules = ", ".join(("serde_chain.spark.worker.decode", *worker_packages()))
    done = subprocess.run(
        [python, "-c", f"import {modules}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else lines[-1] if lines else f"exit code {done.returncode}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
