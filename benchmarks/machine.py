"""Machine and versions of a run: without them, figures are meaningless."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Final

from serde_chain.stages.avro.native import library

__all__ = ["commit", "machine", "versions"]

_ROOT: Final = Path(__file__).parents[1]
# The measured packages, and their peers.
_LIBRARIES: Final = (
    "serde-chain", "confluent-kafka", "fastavro", "zstandard", "protobuf", "cryptography",
    "pyarrow", "boto3", "obstore", "httpx2", "pymongo", "pyspark", "pandas", "kaf-s3-connector",
)  # fmt: skip


def machine() -> dict[str, str]:
    """Processor, cores, memory, system, Python, how busy the machine is now, and what reads and writes Avro."""
    return {
        "CPU": _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
        "Avro": "compiled" if library() else "by fastavro",
    }


def versions() -> dict[str, str]:
    """Versions of the libraries involved; empty if one is not installed."""
    return {name: _version(name) for name in _LIBRARIES}


def commit() -> str:
    """The checked-out commit, marked if the packages differ from it; empty outside of a checkout."""
    try:
        name = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--", "serde_chain", "payload_stores")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{name}, changed" if changed else name


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _line(file: str, name: str) -> str:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
