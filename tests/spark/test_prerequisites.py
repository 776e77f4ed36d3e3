"""What is missing is said on the driver, in a sentence."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyspark
import pytest

from serde_chain.errors import MissingDependencyError
from serde_chain.spark import decode
from serde_chain.spark.prerequisites import check_worker_python

CONFIG = {"value.deserializer": "string"}


def test_pandas_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd, "__version__", "3.0.1")
    with pytest.raises(
        MissingDependencyError, match=r"pandas 3\.0\.1 does not work with pyspark 4. pip install 'pandas<3'"
    ):
        decode(CONFIG)


def test_an_old_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.4")
    with pytest.raises(MissingDependencyError, match=r"pyspark 3\.5\.4 is too old, at least 4\.0 is needed"):
        decode(CONFIG)


def test_no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pyarrow is not installed. pip install 'serde-chain\[spark\]'"):
        decode(CONFIG)


def session(python: str, master: str = "local[2]") -> object:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python))


def interpreter(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_without_the_packages(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo \"ModuleNotFoundError: No module named 'serde_chain'\" >&2; exit 1")
    with pytest.raises(MissingDependencyError, match=f"{python}.*No module named 'serde_chain'.*PYSPARK_PYTHON"):
        check_worker_python(session(python))


def test_interpreters_that_will_do(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    check_worker_python(session(sys.executable))
    check_worker_python(session(interpreter(tmp_path, "exit 0")))
    # A cluster's interpreter is not on this machine, and Spark Connect says nothing about it.
    check_worker_python(session(interpreter(bad, "exit 1"), master="spark://host:7077"))
    check_worker_python(SimpleNamespace())
