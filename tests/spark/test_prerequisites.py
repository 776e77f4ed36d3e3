"""What is missing is said in a sentence: on the driver where it can be seen there, otherwise by the workers."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyspark
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession, functions

from serde_chain.errors import ConfigError, MissingDependencyError
from serde_chain.spark import decode, deserialize, explain, register
from serde_chain.spark.prerequisites import check_worker_python
from tests.environments import Environment

CONFIG = {"value.deserializer": "string"}


def test_pandas_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pd, "__version__", "3.0.1")
    with pytest.raises(
        MissingDependencyError, match=r"pandas 3\.0\.1 does not work with pyspark\. pip install 'pandas<3'"
    ):
        decode(CONFIG)


def test_an_old_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    with pytest.raises(MissingDependencyError, match=r"pyspark 3\.4\.4 is too old, it must be 3.5 or newer"):
        decode(CONFIG)


def test_before_pyspark_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """``make spark-versions`` runs the rest with 3.5 itself."""
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(MissingDependencyError, match=r"pyspark 3\.5\.9 has no SQL functions with optional arguments"):
        register(None, "text", CONFIG)  # type: ignore[arg-type]
    assert explain(CONFIG).startswith("value: native")
    monkeypatch.delattr(functions, "is_valid_utf8")
    assert explain(CONFIG) == "value: arrow (this version of Spark cannot check text for string (1 of 1))"


def test_no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pyarrow is not installed. pip install 'serde-chain\[spark\]'"):
        decode(CONFIG)


def test_a_configuration_of_a_producer_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"names neither value\.deserializers .* Set value\.deserializers, for"):
        decode({"value.serializers": "json"})


def session(python: str, master: str = "local[2]") -> SimpleNamespace:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python, listFiles=[], environment={}))


def interpreter(tmp_path: Path, script: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_without_the_packages(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo \"ModuleNotFoundError: No module named 'serde_chain'\" >&2; exit 1")
    with pytest.raises(MissingDependencyError, match=f"{python}.*No module named 'serde_chain'.*PYSPARK_PYTHON"):
        check_worker_python(session(python))


def test_an_interpreter_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    check_worker_python(session(interpreter(tmp_path, f'echo "$2" > {asked}; exit 0')))
    assert asked.read_text() == "import serde_chain.spark.reading.worker, pyarrow\n"
    # pyspark 4.0, whose functions are pandas UDFs.
    monkeypatch.delattr(functions, "arrow_udf")
    (tmp_path / "4.0").mkdir()
    check_worker_python(session(interpreter(tmp_path / "4.0", f'echo "$2" > {asked}; exit 0')))
    assert asked.read_text() == "import serde_chain.spark.reading.worker, pyarrow, pandas\n"


def test_interpreters_that_are_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *command, **_: asked.append(command))
    check_worker_python(session(sys.executable))  # the driver's own
    # A cluster's interpreter is not on this machine, and Spark Connect says nothing about it.
    for master in ("spark://host:7077", "local-cluster[2,1,1024]"):
        check_worker_python(session(interpreter(tmp_path, "exit 1"), master=master))
    check_worker_python(SimpleNamespace())
    assert asked == []


def test_modules_that_the_workers_find_by_their_environment(tmp_path: Path) -> None:
    there = session(interpreter(tmp_path, 'test "${PYTHONPATH%%:*}" = /there'))
    with pytest.raises(MissingDependencyError):
        check_worker_python(there)
    there.sparkContext.environment["PYTHONPATH"] = "/there"  # of spark.executorEnv.PYTHONPATH
    check_worker_python(there)


# Decodes in workers of another interpreter; what is named after it is added when these have said what they lack.
PROGRAM = """
import sys
from serde_chain.spark import decode, deserialize
from serde_chain.testing.services import spark_session

CONFIG = {"value.deserializer": "string"}

def read(change):
    try:
        print(change(spark.createDataFrame([(b"it is read",)], "value binary")).first().value)
    except Exception as error:
        print(str(error).replace("\\n", " "))

with spark_session() as spark:
    spark.sparkContext.pythonExec = sys.argv[1]
    for path in sys.argv[2:]:
        read(decode(CONFIG, engine="arrow"))
        read(lambda frame: frame.select(deserialize("value", None, CONFIG, engine="arrow").alias("value")))
        spark.sparkContext.addPyFile(path)
    read(decode(CONFIG, engine="arrow"))
"""


@pytest.fixture
def archive(wheel: Path, tmp_path: Path) -> Path:
    path = tmp_path / "serde chain.zip"
    path.write_bytes(wheel.read_bytes())
    return path


def printed(environment: Environment, folder: Path, *added: Path, submit: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(environment.python), *map(str, added)],
        cwd=folder,  # not the repository's, where workers would find what they are to lack
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


# The files are those of test_files_of_the_command_line, added by another way.
@pytest.mark.nightly
def test_added_files(installed: Callable[[str], Environment], archive: Path, tmp_path: Path) -> None:
    """A process that starts Spark."""
    workers = installed("pyarrow")
    on_the_driver, in_the_workers, read = printed(workers, tmp_path, archive)
    lacks = f"{workers.python}, .*No module named 'serde_chain'"
    assert re.search(f"Spark's workers run {lacks}.*set PYSPARK_PYTHON", on_the_driver)
    assert re.search(f"ImportError: the interpreter of Spark's workers, {lacks}.*set PYSPARK_PYTHON", in_the_workers)
    assert read == "it is read"


@pytest.mark.full
def test_files_of_the_command_line(installed: Callable[[str], Environment], archive: Path, tmp_path: Path) -> None:
    """A process that starts Spark."""
    submit = shlex.join(["--py-files", str(archive)])
    assert printed(installed("pyarrow"), tmp_path, submit=submit) == ["it is read"]


@pytest.mark.full
def test_workers_without_pyarrow(
    spark: SparkSession, installed: Callable[[str], Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment is made for the workers."""
    python = str(installed("'serde-chain[avro]' 'pandas<3'").python)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    frame = spark.createDataFrame([(b"it is read",)], "value binary")
    # No interpreter can be looked at from here, as on a cluster.
    with pytest.raises(PythonException) as raised:
        frame.select(deserialize("value", None, CONFIG, engine="arrow")).collect()
    [said] = [line for line in str(raised.value).splitlines() if line.startswith("ImportError")]
    assert re.search(rf"{python}, cannot load .*No module named 'pyarrow'", said)
    assert "pip install 'serde-chain[spark-worker]' there, or set PYSPARK_PYTHON" in said
    assert re.search(r"--archives .*--py-files.*image", said)
    assert f"the driver's is {sys.executable}" in said
