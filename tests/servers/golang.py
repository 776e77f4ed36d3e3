"""Builds servers that are written in Go."""

import os
import shutil
import subprocess
from pathlib import Path

from serde_chain.testing.services.cache import cached
from serde_chain.testing.services.errors import ServiceDownloadError, ServiceMissingError

_BUILD_SECONDS = 900


def go_program(package: str, version: str) -> Path:
    """The program of a Go package, built the first time.

    Args:
        package: Import path of the package, such as ``example.org/module/cmd/server``.
        version: The module's version, such as ``v1.2.3``.

    Raises:
        ServiceMissingError: Go is not installed.
        ServiceDownloadError: The program could not be built.
    """
    name = "-".join(package.split("/")[1:])
    folder = cached(
        f"go/{name}-{version}", lambda target: _build(package, version, target), what=f"{name}, built with Go"
    )
    [program] = folder.iterdir()
    return program


def _build(package: str, version: str, target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        message = f"{package} is built with Go, which is not installed; install it and put it on PATH"
        raise ServiceMissingError(message)
    try:
        done = subprocess.run(
            [go, "install", f"{package}@{version}"],
            env={**os.environ, "GOBIN": str(target)},
            # Away from any go.mod of the caller's.
            cwd=target,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"building {package} took more than {_BUILD_SECONDS} s; check the network and try again"
        raise ServiceDownloadError(message) from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        message = f"{package} could not be built; check the network and try again. The end of Go's output:\n{tail}"
        raise ServiceDownloadError(message)
