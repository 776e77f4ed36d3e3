"""The code on the pages for Spark users runs, block after block."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker
from serde_chain.testing.services.ports import free_ports

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[2] / "docs"
# In the order in which their code runs: the later ones continue the first.
PAGES = ("spark.md", "spark-sql.md", "spark-execution.md", "spark-cluster.md")


def test_the_pages(
    spark: SparkSession, broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All code of the pages, in their order: queries, and streams that read and write the broker's topics."""
    # test_pipelines.py and test_sql_clients.py run the others, in processes of their own.
    blocks = [block for block in blocks_of("python") if not re.search("import pipelines|thriftserver", block)]
    assert len(blocks) >= 6
    for topic in ("alerts", "alerts-dead", "numbers", "copies", "marked"):
        broker.create_topic(topic)
    names: dict[str, object] = {}
    for block in blocks:
        code = block.replace("localhost:9092", broker.bootstrap_servers).replace("/data/", f"{tmp_path}/")
        exec(compile(code, "docs/spark.md", "exec"), names)  # noqa: S102, our own text
        if "config = {" in block and "written" not in names:
            names["written"] = write(names["config"], broker)  # type: ignore[arg-type]
            exec(compile(code, "docs/spark.md", "exec"), names)  # noqa: S102, as above
    assert capsys.readouterr().out.count("|  5|") == 5
    assert len(list((tmp_path / "payloads" / "alerts").iterdir())) == 1
    assert [row["id"] for row in spark.read.parquet(str(tmp_path / "table")).collect()] == [5]


def test_the_first_program_ends_soon_with_a_wrong_broker(spark: SparkSession) -> None:
    """It takes 8 s: the page's options. Without them, Spark waits for a minute."""
    (port,) = free_ports(1)
    program = next(block for block in blocks_of("python") if "kafka = {" in block)
    names: dict[str, Any] = {"spark": spark}
    with pytest.raises(Exception, match="Timed out waiting for a node assignment"):
        exec(compile(program.replace("localhost:9092", f"127.0.0.1:{port}"), "docs/spark.md", "exec"), names)  # noqa: S102, our own text
    options = names["kafka"]
    assert int(options["kafka.default.api.timeout.ms"]) * int(options["fetchOffset.numRetries"]) == 8_000
    assert int(options["kafka.request.timeout.ms"]) <= int(options["kafka.default.api.timeout.ms"])


def test_the_readme_has_the_pages_options() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    page = (DOCS / "spark.md").read_text(encoding="utf-8")
    times = re.findall(r'^    ("(?:kafka\..*timeout\.ms|fetchOffset\.numRetries)": .*)$', page, re.MULTILINE)
    assert len(times) == 3
    assert all(time in readme for time in times)


def blocks_of(language: str) -> list[str]:
    """The pages' blocks of code in a language."""
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def write(reading: dict[str, object], broker: KafkaBroker) -> bool:
    kept = {name: value for name, value in reading.items() if "deserializer" not in name}
    chains = {"key.serializer": "string", "value.serializers": "avro, zstd, large-message"}
    # In the store, from which all pages fetch it.
    offloads = {"large.message.threshold.bytes": 1}
    with Producer({**broker.client_config(), **chains, **offloads, **kept}) as producer:
        producer.produce("alerts", {"id": 5}, key="five")
    return True
