"""Creates a virtual environment of locked packages: ``python requirements/install.py .venv requirements/dev.txt``.

uv needs a third of pip's time. pip installs it, pinned like the rest; where uv is not available, or fails, pip does the
rest as well. Runs before anything is installed, so it uses the standard library alone.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# Jars are fetched by the Ivy in pyspark, which is half of all bytes: the other packages come beside the jars.
FIRST = ("pyspark", "py4j")
# pip's options, and the variables of uv for the same.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
COMMAS = ("UV_FIND_LINKS", "UV_INSECURE_HOST")


def options_of_pip(listed: str) -> dict[str, str]:
    """What applies to ``pip install``, by option.

    Args:
        listed: The output of ``pip config list``: a line for each option, such as ``global.index-url='https://…'``.
    """
    options: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        level, _, option = name.rpartition(".")
        if level in options:
            options[level][option] = str(ast.literal_eval(value))
    return {**options["global"], **options["install"], **options[":env:"]}


def uv_environment(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for uv, which reads neither pip's files nor pip's variables.

    Args:
        options: pip's.
        environment: The variables of this process. Those of uv's own win.
    """
    found = {
        variable: ("," if variable in COMMAS else " ").join(options[option].split())
        for option, variable in VARIABLES.items()
        if option in options
    }
    # Of all indexes, as pip does: the hashes say which file is the right one.
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **found, **environment}


def part_of(lock: str, names: Sequence[str]) -> str:
    """The lines of some packages of a lock, with their hashes."""
    packages = re.findall(r"^[\w.-]+.*(?:\n .*)*", lock, re.MULTILINE)
    return "".join(f"{package}\n" for package in packages if re.split(r"[^\w.-]", package)[0] in names)


class Installer:
    """Installs into one virtual environment.

    Args:
        venv: Its folder.
    """

    def __init__(self, venv: Path) -> None:
        # Not resolved: the link's place says which environment it is.
        self.python = str(venv.absolute() / "bin" / "python")
        self._pip = [self.python, "-m", "pip"]
        self._uv: list[str] | None = None
        self._environment: dict[str, str] = {}

    def get_uv(self) -> None:
        """Install uv; without it, pip goes on."""
        install = [*self._pip, "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        if run("uv", [*install, "-r", str(HERE / "lock.txt")]) != 0:
            sys.stderr.write("  uv could not be installed: pip goes on, which takes three times as long\n")
            return
        listed = subprocess.run([*self._pip, "config", "list"], capture_output=True, text=True, check=True).stdout
        options = options_of_pip(listed)
        self._environment = uv_environment(options, os.environ)
        self._uv = [str(Path(self.python).parent / "uv"), "pip", "install", "--quiet", "--python", self.python]
        if options.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
            self._uv.append("--no-index")
        # The wheel that is made of pyspark's source archive is unpacked at once.
        self._uv.append("--config-settings-package=pyspark:--build-option=--compression=stored")

    def install(self, what: str, *arguments: str) -> None:
        """Install by uv, or by pip.

        Args:
            what: The packages, for the progress.
            arguments: Those that pip and uv have in common.
        """
        if self._uv is not None:
            if run(what, [*self._uv, *arguments], self._environment) == 0:
                return
            sys.stderr.write("  uv failed, see above: pip goes on\n")
            self._uv = None
        code = run(what, [*self._pip, "install", "--quiet", "--disable-pip-version-check", *arguments])
        if code != 0:
            sys.exit(code)


def run(what: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a program, with a line that shows how long it takes; returns its exit code."""
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        return wait_for(process, what)


def wait_for(process: subprocess.Popen[bytes], what: str) -> int:
    """Wait for a program, and show how long it takes: each second in a terminal, otherwise every ten."""
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()
    while True:
        try:
            code = process.wait(1 if is_terminal else 10)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"  {what} … {time.monotonic() - started:.0f} s{chr(13) if is_terminal else chr(10)}")
            sys.stderr.flush()
        else:
            sys.stderr.write(f"  {what}: {time.monotonic() - started:.0f} s  \n")
            return code


def main() -> None:
    """Create the environment; the last thing is this project itself, in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path, help="the folder of the environment")
    parser.add_argument("lock", type=Path, help="the locked requirements")
    parser.add_argument("--jars", nargs="+", default=[], help="jars to fetch beside: kafka, registry, spark")
    given = parser.parse_args()
    try:
        set_up(given.venv, given.lock.absolute(), given.jars)
    except KeyboardInterrupt:
        sys.exit("Interrupted; the next `make` continues")


def set_up(venv: Path, lock: Path, jars_to_fetch: Sequence[str]) -> None:
    """Create the environment.

    Args:
        venv: Its folder.
        lock: The locked requirements.
        jars_to_fetch: Names of jars to fetch beside.
    """
    sys.stderr.write(f"Setting up {venv} with Python {sys.version.split()[0]}; about a minute ...\n")
    locked = ("--require-hashes", "--no-deps", "--no-build-isolation", "-r")
    with ExitStack() as stack:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        installer = Installer(venv)
        installer.get_uv()
        # The build tools first: source archives, and this project, are built without fetching others unpinned.
        installer.install("build tools", "--require-hashes", "--no-deps", "-r", str(HERE / "build.txt"))
        # One core is busy with that, while packages are fetched and unpacked.
        compiled = stack.enter_context(subprocess.Popen([installer.python, "hatch_build.py"], cwd=ROOT))
        jars = None
        if jars_to_fetch:
            first = Path(stack.enter_context(tempfile.TemporaryDirectory()), "first.txt")
            first.write_text(part_of(lock.read_text(), FIRST))
            installer.install("pyspark", *locked, str(first))
            fetch = [installer.python, "-m", "serde_chain.testing.services", *jars_to_fetch]
            jars = stack.enter_context(subprocess.Popen(fetch, cwd=ROOT))
        installer.install(f"the packages of {lock.name}", *locked, str(lock))
        if wait_for(compiled, "compiled part") != 0:
            sys.exit(1)
        installer.install("this project", "--no-deps", "--no-build-isolation", "--editable", ".")
        if jars is not None and wait_for(jars, "jars") != 0:
            sys.stderr.write("  jars could not be fetched now, see above: the first use tries again\n")


if __name__ == "__main__":
    main()
