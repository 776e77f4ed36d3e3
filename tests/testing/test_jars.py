"""What is fetched and run is what the project was tested with."""

import hashlib
from pathlib import Path

import pytest

from serde_chain.testing.services import ServiceDownloadError, jars
from serde_chain.testing.services.spark import spark_jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERDE_CHAIN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fetches(monkeypatch: pytest.MonkeyPatch, **contents: bytes) -> None:
    """Let Ivy fetch files of these contents; underscores of their names are dots."""

    def retrieve(_ivy: Path, _module: str, _part: str, folder: Path) -> None:
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


def test_a_connector_of_another_pyspark_is_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def retrieve(_ivy: Path, _module: str, _part: str, folder: Path) -> None:
        (folder / "spark-avro_2.13-4.9.9.jar").write_bytes(b"new")

    monkeypatch.setattr(jars, "_retrieve", retrieve)
    monkeypatch.setattr(jars, "_pyspark", lambda: ("4.9.9", tmp_path))
    assert jars.jars("spark").is_relative_to(cache)
    assert "spark-avro_2.13-4.9.9.jar is not checked" in capsys.readouterr().err


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
    from serde_chain.spark import packages

    names = {path.name for path in spark_jars()}
    coordinates = [coordinate.split(":") for coordinate in packages()]
    assert {f"{artifact}-{version}.jar" for _, artifact, version in coordinates} <= names
