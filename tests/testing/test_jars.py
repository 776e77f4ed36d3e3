"""What is fetched and run is what the project was tested with."""

import hashlib
import sys
from pathlib import Path

import pytest

from serde_chain.errors import MissingDependencyError
from serde_chain.spark import packages
from serde_chain.spark.connectors import coordinates
from serde_chain.testing.services import ServiceDownloadError, ServiceMissingError, jars
from serde_chain.testing.services import __main__ as ahead
from serde_chain.testing.services.spark import spark_jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERDE_CHAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetches(monkeypatch: pytest.MonkeyPatch, **contents: bytes) -> None:
    """Let Ivy fetch files of these contents; underscores of their names are dots."""

    def retrieve(_ivy: Path, _module: str, _part: str, folder: Path, _what: str) -> None:
        for name, content in contents.items():
            (folder / name.replace("_", ".")).write_bytes(content)

    monkeypatch.setattr(jars, "_retrieve", retrieve)


def lists(monkeypatch: pytest.MonkeyPatch, path: Path, **contents: bytes) -> None:
    sums = {name.replace("_", "."): hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    path.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    monkeypatch.setattr(jars, "_CHECKSUMS", path)


@pytest.mark.parametrize("listed", [{"a_jar": b"right"}, {"b_jar": b"changed"}], ids=["changed", "not listed"])
def test_a_jar_that_is_another_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: dict[str, bytes]
) -> None:
    fetches(monkeypatch, a_jar=b"changed")
    lists(monkeypatch, tmp_path / "sums", **listed)
    with pytest.raises(ServiceDownloadError, match=r"a\.jar is not the file that the project was tested with"):
        jars.jars("kafka")
    assert not list(cache.rglob("*.jar"))
    fetches(monkeypatch, a_jar=b"right")
    lists(monkeypatch, tmp_path / "sums", a_jar=b"right")
    assert [path.name for path in jars.jars("kafka").iterdir()] == ["a.jar"]


def test_a_pyspark_that_was_never_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_pyspark", lambda: ("4.9.9", tmp_path))
    with pytest.raises(MissingDependencyError, match=r"with pyspark 4\.9\.9.*Install one of pyspark 3\.5, 4\.0, 4\.1"):
        jars.jars("spark")


def test_what_was_fetched_before_a_checksum_changed_is_fetched_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches(monkeypatch, a_jar=b"old")
    lists(monkeypatch, tmp_path / "sums", a_jar=b"old")
    old = jars.jars("kafka")
    fetches(monkeypatch, a_jar=b"new")
    lists(monkeypatch, tmp_path / "sums", a_jar=b"new")
    assert jars.jars("kafka") != old
    assert old.is_relative_to(cache)


def test_the_connector_is_that_of_the_installed_pyspark() -> None:
    names = {path.name for path in spark_jars()}
    found = [coordinate.split(":") for coordinate in packages()]
    assert {f"{artifact}-{version}.jar" for _, artifact, version in found} <= names


@pytest.mark.parametrize(
    ("version", "scala", "kafka", "avro"),
    [
        ("3.5.9", "2.12", "3.5.7", "3.5.7"),
        ("4.0.5", "2.13", "4.0.1", "4.0.1"),
        ("4.1.4", "2.13", "4.1.1", "4.1.1"),
        ("4.2.1", "2.13", "4.2.0", "4.1.1"),
        ("4.3.0", "2.13", "4.2.0", "4.1.1"),
    ],
)
def test_the_jars_of_a_version_are_those_that_it_was_tried_with(
    version: str, scala: str, kafka: str, avro: str
) -> None:
    prefix = "org.apache.spark:spark-"
    assert coordinates(version) == [f"{prefix}sql-kafka-0-10_{scala}:{kafka}", f"{prefix}avro_{scala}:{avro}"]
    listed = (Path(jars.__file__).parent / "jars.sha256").read_text()
    for name in (f"spark-sql-kafka-0-10_{scala}-{kafka}.jar", f"spark-avro_{scala}-{avro}.jar"):
        assert f"  {name}\n" in listed


def test_versions_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(jars.BROKER_VARIABLE, raising=False)
    assert jars.broker_version() == "4.1.0"
    listed = (Path(jars.__file__).parent / "jars.sha256").read_text()
    for version in jars.BROKER_VERSIONS:
        monkeypatch.setenv(jars.BROKER_VARIABLE, version)
        assert jars.broker_version() == version
        assert f"  kafka_2.13-{version}.jar\n" in listed
    monkeypatch.setenv(jars.BROKER_VARIABLE, "3.9.0")
    with pytest.raises(ServiceMissingError, match=r"'3\.9\.0' is not one of 4\.1\.0, "):
        jars.broker_version()


def test_parts_are_fetched_ahead(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetches(monkeypatch, a_jar=b"right")
    lists(monkeypatch, tmp_path / "sums", a_jar=b"right")
    monkeypatch.setattr(sys, "argv", ["services", "kafka", "spark"])
    ahead.main()
    assert sorted(path.parent.name.partition("-")[0] for path in cache.rglob("a.jar")) == ["kafka", "spark"]
    lists(monkeypatch, tmp_path / "sums", a_jar=b"another")
    with pytest.raises(SystemExit, match=r"a\.jar is not the file that the project was tested with"):
        ahead.main()
    monkeypatch.setattr(sys, "argv", ["services", "zookeeper"])
    with pytest.raises(SystemExit):
        ahead.main()
    assert "invalid choice: 'zookeeper'" in capsys.readouterr().err


def test_fetching_ahead_ends_without_a_traceback_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> Path:
        raise KeyboardInterrupt

    monkeypatch.setitem(ahead._FETCH, "kafka", interrupted)
    monkeypatch.setattr(sys, "argv", ["services", "kafka"])
    with pytest.raises(SystemExit) as ended:
        ahead.main()
    assert ended.value.code == 130
