"""What users write passes mypy in strict mode, and their mistakes do not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))

# Each line that says so must be refused, with that error.
MISTAKES = """\
import serde_chain
from serde_chain import Consumer, Producer, RecordContext, Serializer, SerializerChain
from serde_chain.record import Context

serde_chain.SerialiserChain  # error: attr-defined
Producer(1)  # error: arg-type
Producer({}).produce("alerts", {"id": 1}, header=[])  # error: call-arg
Consumer({}).poll("1")  # error: arg-type
Producer[str]({}).produce("alerts", 1)  # error: arg-type
Consumer[str]({}).consume()[0].value().bit_length()  # error: union-attr
SerializerChain.from_config({}, True)  # error: call-arg
RecordContext(topic=1, field="value")  # error: arg-type

class Wrong(Serializer[str]):
    def __call__(self, data: str | None, ctx: Context | None = None, /) -> str | None:  # error: override
        return data

class Unfinished(Serializer[str]):
    pass

Unfinished()  # error: abstract
"""


def errors(*paths: Path) -> tuple[set[tuple[str, int, str]], str]:
    """File, line and code of what mypy finds in some files, and what it prints."""
    # A cache of its own: its settings are not those of `make lint`.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache/users'}"]
    done = subprocess.run(
        [*command, "--explicit-package-bases", *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    found = re.findall(r"^(.*?):(\d+): error: .*\[(\S+)\]$", done.stdout, re.MULTILINE)
    return {(Path(name).name, int(at), code) for name, at, code in found}, done.stdout


def test_programs_of_users_pass() -> None:
    found, output = errors(*PROGRAMS)
    assert not {name for name, _, _ in found} & {path.name for path in PROGRAMS}, output


def test_mistakes_of_users_are_found(tmp_path: Path) -> None:
    path = tmp_path / "mistakes.py"
    path.write_text(MISTAKES)
    lines = enumerate(MISTAKES.splitlines(), 1)
    wanted = {(path.name, at, said[1]) for at, line in lines if (said := re.search(r"# error: (\S+)$", line))}
    found, output = errors(path)
    assert {error for error in found if error[0] == path.name} == wanted, output
