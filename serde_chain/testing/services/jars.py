"""Fetches jars with the Ivy in pyspark, so that neither Maven nor an installer is needed.

The jars are compared with the checksums in ``jars.sha256`` before they are run.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

from serde_chain.testing.services.cache import cached
from serde_chain.testing.services.errors import ServiceDownloadError, ServiceMissingError
from serde_chain.testing.services.java import QUICK_START, any_java
from serde_chain.testing.services.tool import run_tool

_DOWNLOAD_SECONDS = 900
_HERE = files("serde_chain.testing.services")
_CHECKSUMS = _HERE / "jars.sha256"
BROKER_VARIABLE = "SERDE_CHAIN_KAFKA"
"""The environment variable with the broker's version, one of `BROKER_VERSIONS`."""

BROKER_VERSIONS = ("4.1.0", "4.2.2", "4.3.1", "4.4.0")
"""Versions of Kafka whose jars are known; the first is the default."""

# A version of each minor release of pyspark, for the checksums of its jars.
_SPARK_VERSIONS = ("3.5.0", "4.0.0", "4.1.0", "4.2.0", "4.3.0")
_WHAT = {
    "kafka": "the Kafka broker (45 MB)",
    "registry": "the schema registry (160 MB)",
    "spark": "Spark's Kafka connector (8 MB)",
}


def jars(part: str, finish: Callable[[Path], None] | None = None, *, broker: str | None = None) -> Path:
    """The folder with the jars of one part, fetched on first use.

    Args:
        part: ``kafka``, ``registry`` or ``spark``: a configuration of ``ivy.xml``.
        finish: Processes the folder, once, after the fetch.
        broker: Version of the part ``kafka``, one of `BROKER_VERSIONS`; by default `broker_version`.

    Raises:
        ServiceMissingError: pyspark or Java is not installed.
        MissingDependencyError: No connector was tested with this version of pyspark.
        ServiceDownloadError: The jars could not be fetched, or differ from the expected ones.
    """
    spark_version, _ = _pyspark()
    module = _module(part, spark_version, broker or broker_version())
    return fetched(part, module, _CHECKSUMS.read_text(), what=_WHAT[part], finish=finish)


def fetched(part: str, module: str, sums: str, *, what: str, finish: Callable[[Path], None] | None = None) -> Path:
    """The folder with the jars of one part of any list, fetched on first use.

    Args:
        part: A configuration of the list.
        module: The list: instructions for Ivy.
        sums: Lines of SHA-256 and file name.
        what: The contents, for messages.
        finish: Processes the folder, once, after the fetch.

    Raises:
        ServiceMissingError: pyspark or Java is not installed.
        ServiceDownloadError: The jars could not be fetched, or differ from the expected ones.
    """
    _, ivy = _pyspark()
    # Named after its contents: another version, of this project or of pyspark, gets another folder.
    digest = hashlib.sha256((module + sums).encode()).hexdigest()[:12]

    def fill(folder: Path) -> None:
        _retrieve(ivy, module, part, folder, what)
        listed = {name: digest for digest, name in (line.split() for line in sums.splitlines())}
        _check(folder, listed)
        if finish is not None:
            finish(folder)

    return cached(f"jars/{part}-{digest}", fill, what=what)


def broker_version() -> str:
    """The version of Kafka that brokers have: the environment variable's, or the default.

    Raises:
        ServiceMissingError: Its jars are unknown.
    """
    version = os.environ.get(BROKER_VARIABLE) or BROKER_VERSIONS[0]
    if version not in BROKER_VERSIONS:
        message = f"{BROKER_VARIABLE} = {version!r} is not one of {', '.join(BROKER_VERSIONS)}"
        raise ServiceMissingError(message)
    return version


def _module(part: str, spark_version: str, broker: str) -> str:
    """Instructions for Ivy; the part ``spark`` depends on the version of pyspark, ``kafka`` on the broker's."""
    text = (_HERE / "ivy.xml").read_text()
    if part == "kafka":
        return text.replace("@broker@", broker)
    if part != "spark":
        return text
    from serde_chain.spark.connectors import coordinates

    named = coordinates(spark_version)
    kafka, avro = (coordinate.rpartition(":")[2] for coordinate in named)
    scala = named[0].split(":")[1].rpartition("_")[2]
    token = "4.0.0" if scala == "2.13" else kafka
    for name, version in {"kafka": kafka, "avro": avro, "scala": scala, "token": token}.items():
        text = text.replace(f"@{name}@", version)
    return text


def _check(folder: Path, sums: Mapping[str, str]) -> None:
    """Compare the files in a folder with their checksums.

    Args:
        folder: The folder.
        sums: SHA-256 in hexadecimal digits, by the file's name.

    Raises:
        ServiceDownloadError: A file differs, or is not listed.
    """
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        digest, expected = _sha256(path), sums.get(path.name)
        if digest != expected:
            message = (
                f"{path.name} is not the file that the project was tested with: its SHA-256 is {digest}, not "
                f"{expected or 'one of those in jars.sha256'}; check the connection between this machine and the "
                "jar repository"
            )
            raise ServiceDownloadError(message)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock() -> None:
    """Write the checksums of all parts: ``make lock-jars``."""
    installed, ivy = _pyspark()
    default = BROKER_VERSIONS[0]
    wanted = [*(("kafka", installed, version) for version in BROKER_VERSIONS), ("registry", installed, default)]
    wanted += [("spark", version, default) for version in _SPARK_VERSIONS]
    sums: dict[str, str] = {}
    for part, version, broker in wanted:
        with tempfile.TemporaryDirectory(prefix="serde-chain-jars-") as name:
            _retrieve(ivy, _module(part, version, broker), part, Path(name), _WHAT[part])
            sums |= {path.name: _sha256(path) for path in Path(name).iterdir()}
    Path(str(_CHECKSUMS)).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def _pyspark() -> tuple[str, Path]:
    """The version of pyspark, and its Ivy jar."""
    try:
        import pyspark
    except ImportError as error:
        message = "jars are fetched with pyspark's Ivy: pip install 'serde-chain[services]'"
        raise ServiceMissingError(message) from error
    folder = Path(pyspark.__file__).parent / "jars"
    archives = sorted(folder.glob("ivy-*.jar"))
    if not archives:
        message = f"{folder} has no ivy-*.jar: install pyspark 4.x from its wheel or source archive"
        raise ServiceMissingError(message)
    return pyspark.__version__, archives[-1]


def retrieve(module: str, part: str, folder: Path, what: str) -> None:
    """Fetch the jars of one part of a list, without comparing them.

    Args:
        module: The list: instructions for Ivy.
        part: A configuration of the list.
        folder: An empty folder.
        what: The contents, for messages.

    Raises:
        ServiceMissingError: pyspark or Java is not installed.
        ServiceDownloadError: The jars could not be fetched.
    """
    _retrieve(_pyspark()[1], module, part, folder, what)


def _retrieve(ivy: Path, module: str, part: str, folder: Path, what: str) -> None:
    work = folder / ".ivy"
    work.mkdir()
    (work / "ivy.xml").write_text(module)
    # Ivy's default cache is in the user's home and not safe for several processes, so it gets a new one.
    # Ivy's own checksums, SHA-1 from the same server, take as many requests as the jars: ours are compared afterwards.
    command = [any_java(), *QUICK_START, "-Divy.checksums=", "-jar", str(ivy), "-ivy", str(work / "ivy.xml")]
    command += ["-confs", part, "-cache", str(work / "cache"), "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    run_tool(command, what=f"fetching {what}", folder=work, seconds=_DOWNLOAD_SECONDS)
    shutil.rmtree(work)
    if not any(folder.iterdir()):
        message = f"fetching {what} returned no files; check the network and try again"
        raise ServiceDownloadError(message)


if __name__ == "__main__":
    _lock()
