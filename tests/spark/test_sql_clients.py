"""SQL clients that have no Python session: the page's code runs in their own programs, with a metastore in a folder."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker
from serde_chain.testing.services.ports import HOST, free_ports
from serde_chain.testing.services.spark import spark_environment, spark_jars
from tests.spark.test_docs import blocks_of

pytestmark = [pytest.mark.full, pytest.mark.timeout(500)]

SECONDS = 200
HOME = Path(pyspark.__file__).parent
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
}
CONFIG = {
    "value.serializers": "avro, large-message",
    "value.deserializers": "large-message, avro",
    "avro.schema": json.dumps(
        {
            "type": "record",
            "name": "Alert",
            "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
        }
    ),
    "large.message.payload.store.class": "local",
    "large.message.threshold.bytes": 100,
}


@pytest.fixture
def config(broker: KafkaBroker, topic: str, tmp_path: Path) -> dict[str, object]:
    """A chain, with three records in the topic, two of them in the store."""
    config: dict[str, object] = {**CONFIG, "local.path": str(tmp_path / "payloads")}
    with Producer({**broker.client_config(), **config}) as producer:
        for at, size in enumerate((1, 300, 500)):
            producer.produce(topic, {"id": at, "note": "x" * size})
    return config


def of_the_page(code: str, broker: KafkaBroker, topic: str) -> str:
    code = code.replace("localhost:9092", broker.bootstrap_servers)
    return code.replace("'subscribe' 'alerts'", f"'subscribe' '{topic}'")


def run(command: list[str], folder: Path, **more: str) -> str:
    with spark_environment(SPARK_HOME=str(HOME), **more):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def spark_sql(statements: str, folder: Path) -> list[str]:
    """The rows that ``spark-sql`` prints; its metastore is in the folder."""
    settings = {**SETTINGS, "spark.jars": ",".join(map(str, spark_jars()))}
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [str(HOME / "bin" / "spark-sql"), "--master", "local[1]", *options, "-e", statements]
    return run(command, folder).splitlines()


@pytest.mark.nightly  # two minutes: each statement's program starts a JVM
@pytest.mark.usefixtures("config")
def test_what_a_metastore_keeps(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    """Two processes with Spark and a metastore."""
    [statements] = blocks_of("sql")
    spark_sql(of_the_page(statements, broker, topic), tmp_path)
    again = """
        SELECT records, references, payload_bytes FROM overview;
        SELECT schema_id(X'0000000102AA'), schema_id(X'00FFFFFFFF02'), schema_id(X'01'), is_reference(NULL);
    """
    assert spark_sql(again, tmp_path) == ["3\t2\t806", "258\t4294967295\tNULL\tfalse"]


@pytest.mark.nightly  # this server runs what a session with Python runs
def test_a_thriftserver_of_a_python_session(
    broker: KafkaBroker, topic: str, config: dict[str, object], tmp_path: Path
) -> None:
    """A process with Spark and its server for SQL clients."""
    [statements] = blocks_of("sql")
    [code] = [block for block in blocks_of("python") if "thriftserver" in block]
    [beeline] = [block for block in blocks_of("console") if "beeline" in block]
    [port] = free_ports(1)
    code = code.replace("10000", str(port)).replace("spark.jars.packages", "spark.jars")
    code = code.replace('",".join(packages())', repr(",".join(map(str, spark_jars()))))
    [table] = re.findall(r"CREATE TABLE.*?\)(?=;)", of_the_page(statements, broker, topic), re.DOTALL)
    [address, query] = re.findall(r"-u (\S+) -e \"(.*)\"", beeline)[0]
    client = [
        str(HOME / "bin" / "beeline"),
        "--silent=true",
        "--outputformat=csv2",
        "-u",
        address.replace("10000", str(port)),
    ]
    script = f"""
import subprocess, sys
config = {config!r}
{code}
spark.sql({table!r})
done = subprocess.run({[*client, "-e", query]!r}, capture_output=True, text=True, timeout={SECONDS})
print(done.stdout, done.stderr if done.returncode else "")
server.stop()
"""
    options = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
    printed = run([sys.executable, "-c", script], tmp_path, PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell")
    assert sorted(line.strip() for line in printed.splitlines() if line.strip().isdigit()) == ["0", "1", "2"]
