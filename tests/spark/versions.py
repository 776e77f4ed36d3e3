"""Tries some tests with other versions of pyspark: ``make spark-versions ARGS="4.0.5 4.3.0"``.

Each version gets an environment of its own, with the packages of this one behind it, and the jars that
:func:`serde_chain.spark.packages` names. It prints the table of docs/spark-cluster.md.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path
from xml.etree import ElementTree as ET

from serde_chain.spark.connectors import coordinates
from tests.environments import ROOT, Environment

VERSIONS = ("3.5.9", "4.0.5", "4.1.1", "4.1.4", "4.2.1", "4.3.0")
TESTS = {
    "`decode`, batch": "test_decode.py::test_batch[arrow]",
    "`decode`, streaming": "test_decode.py::test_structured_streaming",
    "`decode`, engine `native`": "reading/test_native.py::test_columns",
    "engine `arrow`, values as `from_avro`'s": "test_random_schemas.py::test_equal_to_from_avro[0-arrow]",
    "`resolve`": "test_resolve.py::test_resolve[arrow]",
    '`deserialize_udf`, `kind="pandas"`': "test_udf_kinds.py::test_deserialize_typed_values[pandas]",
    "`encode` of structs, engine `arrow`": "test_sink.py::test_encode[arrow]",
    "`encode`, engine `native`": "test_sink.py::test_encode[native]",
    "`encode`, streaming": "test_sink.py::test_from_kafka_to_kafka_by_streams",
    "Declarative Pipelines": "test_pipelines.py::test_the_page_as_a_pipeline",
    "functions in SQL, kept in a metastore": "test_sql_clients.py::test_what_a_metastore_keeps",
    "`sweep`": "../jobs/test_sweep.py::test_orphans_go_and_what_is_in_use_stays[spark]",
}
# The default since 4.0; with that of 3.5, to_avro may refuse dates.
DATES = "spark.sql.avro.datetimeRebaseModeInWrite=CORRECTED"
INSTALL_SECONDS = 900
TEST_SECONDS = 900


def main(versions: tuple[str, ...]) -> None:
    """Print the table."""
    passed = {version: tried(version) for version in versions}
    jars = {version: [name.rpartition(":")[2] for name in coordinates(version)] for version in versions}
    rows = [
        ("pyspark", *versions),
        ("-" * 3,) * (len(versions) + 1),
        ("its connector", *(kafka for kafka, _ in jars.values())),
        ("its `spark-avro`", *(avro for _, avro in jars.values())),
        *((name, *("yes" if passed[version][name] else "no" for version in versions)) for name in TESTS),
    ]
    sys.stdout.write("".join(f"| {' | '.join(row)} |\n" for row in rows))


def tried(version: str) -> dict[str, bool]:
    """Which tests pass with a version."""
    with tempfile.TemporaryDirectory(prefix="serde-chain-pyspark-") as name:
        folder = Path(name)
        venv.create(folder / "environment")
        environment = Environment(folder / "environment")
        pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, f"pyspark=={version}"], check=True, timeout=INSTALL_SECONDS)
        (environment.packages / "behind.pth").write_text(sysconfig.get_path("purelib") + "\n")
        report = folder / "report.xml"
        # Old versions warn of what newer Pythons have deprecated.
        options = ["-q", "-W", "default", "-p", "no:cacheprovider", f"--junitxml={report}"]
        tests = [f"{ROOT / 'tests' / 'spark'}/{test}" for test in TESTS.values()]
        done = subprocess.run(
            [str(environment.python), "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": f"--conf {DATES} pyspark-shell"},
            stdout=sys.stderr,
            timeout=TEST_SECONDS,
            check=False,
        )
        if not report.exists():
            raise SystemExit(f"pyspark {version}: pytest ended with exit code {done.returncode} and no report")
        cases = {case.get("name"): len(case) == 0 for case in ET.parse(report).iter("testcase")}  # noqa: S314, our own
    return {name: cases.get(test.rpartition("::")[2], False) for name, test in TESTS.items()}


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or VERSIONS)
