"""Fetches jars with Ivy, which pyspark ships, so that neither Maven nor an installer is needed."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from serde_chain.testing.services.cache import cached
from serde_chain.testing.services.errors import ServiceDownloadError, ServiceMissingError
from serde_chain.testing.services.java import system_java

_DOWNLOAD_SECONDS = 900
_WHAT = {
    "kafka": "the Kafka broker (45 MB)",
    "registry": "the schema registry (160 MB)",
    "spark": "Spark's Kafka connector (8 MB)",
}


def jars(part: str, finish: Callable[[Path], None] | None = None) -> Path:
    """The folder with the jars of one part, fetched the first time.

    Args:
        part: ``kafka``, ``registry`` or ``spark``: a configuration of ``ivy.xml``.
        finish: What to do to the folder, once, after its contents were fetched.

    Raises:
        ServiceMissingError: pyspark or Java is not installed.
        ServiceDownloadError: The jars could not be fetched.
    """
    spark_version, ivy = _pyspark()
    module = files("serde_chain.testing.services").joinpath("ivy.xml").read_text()
    if part == "spark":
        module = module.replace("@spark@", spark_version)
    # Named after what is fetched: another version, in this project or of pyspark, is another folder.
    digest = hashlib.sha256(module.encode()).hexdigest()[:12]

    def fill(folder: Path) -> None:
        _retrieve(ivy, module, part, folder)
        if finish is not None:
            finish(folder)

    return cached(f"jars/{part}-{digest}", fill, what=_WHAT[part])


def _pyspark() -> tuple[str, Path]:
    """The version of pyspark, and the Ivy jar that it ships."""
    try:
        import pyspark
    except ImportError as error:
        message = "jars are fetched with the Ivy that pyspark ships: pip install 'serde-chain[services]'"
        raise ServiceMissingError(message) from error
    folder = Path(pyspark.__file__).parent / "jars"
    found = sorted(folder.glob("ivy-*.jar"))
    if not found:
        message = f"there is no ivy-*.jar in {folder}: install pyspark 4.x from its wheel or source archive"
        raise ServiceMissingError(message)
    return pyspark.__version__, found[-1]


def _retrieve(ivy: Path, module: str, part: str, folder: Path) -> None:
    work = folder / ".ivy"
    work.mkdir()
    (work / "ivy.xml").write_text(module)
    # Ivy's own cache lies in the user's home and is not safe for several processes: it gets a new one.
    command = [system_java(), "-jar", str(ivy), "-ivy", str(work / "ivy.xml"), "-confs", part]
    command += ["-cache", str(work / "cache"), "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(
            command,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"fetching {_WHAT[part]} took more than {_DOWNLOAD_SECONDS} s; check the network and try again"
        raise ServiceDownloadError(message) from error
    if done.returncode != 0 or not any(path.is_file() for path in folder.iterdir()):
        tail = "\n".join(done.stdout.splitlines()[-15:])
        message = (
            f"{_WHAT[part]} could not be fetched; check the network and try again. The end of Ivy's output:\n{tail}"
        )
        raise ServiceDownloadError(message)
    shutil.rmtree(work)
