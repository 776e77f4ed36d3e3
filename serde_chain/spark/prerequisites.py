"""The packages and interpreters that Spark needs, checked on the driver: one sentence names a missing one."""

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

import pyspark
from pyspark import SparkFiles
from pyspark.sql import functions

from payload_stores.plugins import require
from serde_chain.errors import MissingDependencyError
from serde_chain.spark.arguments import ARROW, PANDAS, check_kind

_INSTALL: Final = "pip install 'serde-chain[spark]'"
# (package, minimum major and minor version, first incompatible version)
_VERSIONS: Final = (("pyspark", (3, 5), (5, 0)), ("pandas", (2, 2), (3, 0)), ("pyarrow", (15, 0), None))
_PROBE_SECONDS: Final = 60
# Not local-cluster, whose executors are separate processes.
_LOCAL: Final = re.compile(r"local(\[|$)")


def check_packages() -> None:
    """Check the packages of this interpreter.

    Raises:
        MissingDependencyError: A package is missing, too old or too new; the hint says what to install.
    """
    for package, lowest, end in _VERSIONS:
        installed = str(require(package, "spark").__version__)
        version = _version(installed)
        if version < lowest:
            raise MissingDependencyError(
                f"{package} {installed} is too old, it must be {_dotted(lowest)} or newer", hint=f"{_INSTALL} --upgrade"
            )
        if end is not None and version >= end:
            raise MissingDependencyError(
                f"{package} {installed} does not work with {'this version' if package == 'pyspark' else 'pyspark'}",
                hint=f"pip install '{package}<{end[0]}'",
            )


def has_arrow_udfs() -> bool:
    """Whether pyspark supports functions on Arrow arrays, as since 4.1.

    Example:
        >>> has_arrow_udfs() == (kind_of_udf(None) == "arrow")
        True
    """
    return hasattr(functions, "arrow_udf")


def kind_of_udf(kind: str | None) -> str:
    """The kind of user-defined function that pyspark makes.

    Args:
        kind: ``pandas`` or ``arrow``; None for ``arrow`` if pyspark has it, and ``pandas`` otherwise.

    Returns:
        ``pandas`` or ``arrow``.

    Raises:
        ConfigError: The kind is unknown.
        MissingDependencyError: It is ``arrow``, and pyspark is older than 4.1.

    Example:
        >>> kind_of_udf("pandas")
        'pandas'
    """
    if kind is None:
        return ARROW if has_arrow_udfs() else PANDAS
    if check_kind(kind) == ARROW and not has_arrow_udfs():
        raise MissingDependencyError(
            f"pyspark {pyspark.__version__} has no Arrow UDFs; 4.1 introduced them",
            hint="Use kind='pandas', or leave kind out",
        )
    return kind


def check_sql_functions() -> None:
    """Refuse a pyspark without functions written in SQL, which 4.0 introduced.

    Raises:
        MissingDependencyError: pyspark is older.
    """
    if _version(pyspark.__version__) < (4, 0):
        raise MissingDependencyError(
            f"pyspark {pyspark.__version__} has no SQL functions with optional arguments; 4.0 introduced them",
            hint="Use deserialize() in Python, and make its result a view",
        )


def worker_packages(kind: str | None = None) -> tuple[str, ...]:
    """The packages that pyspark needs in workers for a kind of user-defined function.

    Args:
        kind: As for :func:`kind_of_udf`.

    Example:
        >>> worker_packages("pandas")
        ('pyarrow', 'pandas')
    """
    return ("pyarrow",) if kind_of_udf(kind) == ARROW else ("pyarrow", "pandas")


def check_worker_python(session: Any) -> None:
    """Check the workers' interpreter, if it is known to be on this machine: with a local master.

    Args:
        session: The Spark session.

    Raises:
        MissingDependencyError: The interpreter lacks a package; the message names PYSPARK_PYTHON.
    """
    # A Spark Connect session has no context, and its workers run elsewhere, as in a cluster, with their own folders and
    # archives; there the worker itself reports missing packages.
    context = getattr(session, "sparkContext", None)
    if context is None or not _LOCAL.match(str(context.master)):
        return
    python = shutil.which(str(context.pythonExec))
    if python is None or Path(python).absolute() == Path(sys.executable).absolute():
        return
    problem = _probe(python, _python_path(context))
    if problem:
        raise MissingDependencyError(
            f"Spark's workers run {python}, which cannot load the required packages ({problem})",
            hint=f"Before the session starts, set PYSPARK_PYTHON to an interpreter that has 'serde-chain[spark]'; "
            f"this one is {sys.executable}",
        )


def _python_path(context: Any) -> str:
    """The workers' search path for modules outside their own packages.

    Args:
        context: The ``SparkContext``.

    Returns:
        A ``PYTHONPATH``: files added by ``addPyFile`` or ``--py-files``, then the entries in the context and in
        this process's environment.
    """
    places = []
    if context.listFiles:
        added = {Path(unquote(urlsplit(file).path)).name for file in context.listFiles}
        packages = sorted(name for name in added if name.lower().endswith(context.PACKAGE_EXTENSIONS))
        # Single modules are in the folder itself.
        places = [*map(SparkFiles.get, packages), SparkFiles.getRootDirectory()]
    places += [paths["PYTHONPATH"] for paths in (context.environment, os.environ) if paths.get("PYTHONPATH")]
    return os.pathsep.join(places)


@cache
def _probe(python: str, path: str) -> str:
    """Load the worker's modules in an interpreter; returns the end of its error, or an empty text on success.

    Args:
        python: The interpreter.
        path: Its ``PYTHONPATH``.
    """
    # Not pyspark, which Spark ships to its workers.
    modules = ", ".join(("serde_chain.spark.reading.worker", *worker_packages()))
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


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
