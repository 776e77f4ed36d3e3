"""Builds servers that are written in Go."""

import os
import shutil
from pathlib import Path

from serde_chain.testing.services.cache import cached
from serde_chain.testing.services.errors import ServiceMissingError
from serde_chain.testing.services.tool import run_tool

_BUILD_SECONDS = 900
# Inlining and tables for debuggers take two fifths of a build's CPU time.
_QUICK = ("-gcflags=all=-l -dwarf=false", "-ldflags=-s -w")


def go_program(package: str, version: str, *, is_measured: bool = False) -> Path:
    """The program of a Go package, built the first time.

    Args:
        package: Import path of the package, such as ``example.org/module/cmd/server``.
        version: The module's version, such as ``v1.2.3``.
        is_measured: Whether benchmarks use it: then it is built as its users build it, which takes longer.

    Raises:
        ServiceMissingError: Go is not installed.
        ServiceDownloadError: The program could not be built.
    """
    name = "-".join(package.split("/")[1:])
    folder = cached(
        f"go/{name}-{version}",
        lambda target: _build(package, version, target, () if is_measured else _QUICK),
        what=f"{name}, built with Go",
    )
    [program] = folder.iterdir()
    return program


def _build(package: str, version: str, target: Path, flags: tuple[str, ...]) -> None:
    go = shutil.which("go")
    if go is None:
        message = f"{package} is built with Go, which is not installed; install it and put it on PATH"
        raise ServiceMissingError(message)
    run_tool(
        [go, "install", *flags, f"{package}@{version}"],
        what=f"building {package}",
        folder=target,  # away from any go.mod of the caller's
        seconds=_BUILD_SECONDS,
        environment={**os.environ, "CGO_ENABLED": "0", "GOBIN": str(target)},
    )
