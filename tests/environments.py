"""Environments that hold what an install line brings, and nothing else, made without a network.

The wheel is installed by pip; what it requires, for the extras that the line names, is linked from the environment in
which the tests run, file by file. So packages that the line leaves out cannot be imported, and entry points are those
of the line.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib import metadata
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
# kafka-python's way to its own files, on Python 3.11 and 3.12.
IGNORED = [part for name in ("open", "read") for part in ("-W", f"ignore:{name}_text is deprecated:DeprecationWarning")]


@dataclass(frozen=True)
class Environment:
    """A virtual environment.

    Attributes:
        folder: Where it is.
    """

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder)}))

    def run(self, program: str, folder: Path) -> str:
        """Run a program away from the repository.

        Args:
            program: Its text.
            folder: Where it runs.

        Returns:
            What it printed.
        """
        return self._finish(["-W", "error", *IGNORED, "-c", program], folder)

    def serde_chain(self, *arguments: str, folder: Path) -> str:
        """Run the command ``serde-chain``; gives what it printed."""
        return self._finish(["-c", "from serde_chain.cli import main; main()", *arguments], folder)

    def pytest(self, folder: Path) -> None:
        """Run the tests in a folder."""
        self._finish(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=prepend", "."], folder)

    def _finish(self, arguments: list[str], folder: Path) -> str:
        command = [str(self.python), "-I", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this repository into a folder."""
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    [found] = folder.glob("serde_chain-*.whl")
    return found


def install_wheel(folder: Path, wheel: Path) -> Environment:
    """Make an environment with the wheel and nothing else, not even pip."""
    venv.create(folder)
    environment = Environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python)]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", "--quiet", str(wheel)], check=True)
    return environment


def make_environment(folder: Path, bare: Environment, line: str) -> Environment:
    """Make an environment with what ``pip install <line>`` would bring.

    Args:
        folder: Where.
        bare: The environment that has the wheel alone.
        line: Requirements as a shell takes them: ``'serde-chain[kafka,avro]' pandas``.
    """
    venv.create(folder)
    environment = Environment(folder)
    # What the wheel says, not what the development environment was once installed from.
    (own,) = metadata.Distribution.discover(name="serde-chain", path=[str(bare.packages)])
    for found in _closure(shlex.split(line), own):
        _link(found, environment.packages)
    return environment


def _closure(requirements: list[str], own: metadata.Distribution) -> list[metadata.Distribution]:
    """The distributions that requirements bring, by the rules of pip: extras add to each other, markers decide."""
    waiting = [Requirement(text) for text in requirements]
    found: dict[str, metadata.Distribution] = {}
    extras: dict[str, set[str]] = {}
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name not in found:
            found[name] = own if name == "serde-chain" else metadata.distribution(wanted.name)
        new = {"", *wanted.extras} - extras.setdefault(name, set())
        extras[name] |= new
        for text in found[name].requires or ():
            needed = Requirement(text)
            if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in new):
                waiting.append(needed)
    return list(found.values())


def _link(found: metadata.Distribution, site: Path) -> None:
    for file in found.files or ():
        # Commands lie elsewhere; uv does not list compiled modules, which each environment would compile again.
        if ".." not in file.parts and file.suffix != ".pyc":
            source, target = Path(str(found.locate_file(file))), site / file
            _link_file(source, target)
            if file.suffix == ".py" and (compiled := Path(cache_from_source(str(source)))).exists():
                _link_file(compiled, Path(cache_from_source(str(target))))


def _link_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source)


def install_line(page: str) -> str:
    """What the page tells its reader to install: the arguments of its first ``pip install``, in a checkout too."""
    found = re.search(r"pip install ((?:'[^']+'|[\w-]+)(?: (?:'[^']+'|[\w-]+))*)", page)
    assert found is not None, "the page does not say what to install"
    return found[1].replace("'.[", "'serde-chain[")


def python_blocks(page: str) -> list[str]:
    """The code of a page that is to be run."""
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def section(page: str, heading: str) -> str:
    """A section of a page, down to the next heading of its level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", page, re.MULTILINE)
    assert found is not None, f"no heading {heading!r}"
    rest = re.sub(r"^```.*?^```", lambda code: " " * len(code[0]), page[found.end() :], flags=re.DOTALL | re.MULTILINE)
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return page[found.start() : found.end() + end.start() if end else len(page)]


def parts(page: str) -> list[str]:
    """The page's beginning, and each section of the second level that tells its reader to install something else."""
    beginning, *others = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    own = [part for part in others if "$ pip install" in part]
    return ["".join([beginning, *(part for part in others if part not in own)]), *own]
