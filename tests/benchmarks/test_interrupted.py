"""A run that is interrupted leaves the report as it was: files are there as a whole, or not at all."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import reports
from benchmarks.harness import Row, Table
from benchmarks.reports import Section, write

ROOT = Path(__file__).parents[2]
TABLE = Table("sizes", "Cost by size", "µs", [Row("ours", [1.0, 2.0], at="1 KB")], axis="size")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_ctrl_c_while_it_measures(tmp_path: Path) -> None:
    write(Section("chain", tables=[TABLE]), tmp_path)
    before = content(tmp_path)
    # A benchmark that says when it is at work, and goes on.
    program = (
        "import sys, time, benchmarks.chain as chain\n"
        "def run(*, quick):\n    print('measuring', flush=True)\n    time.sleep(100)\n"
        "chain.run = run\nimport runpy\nrunpy.run_module('benchmarks', run_name='__main__')"
    )
    command = [sys.executable, "-c", program, "chain", "--quick", "--report", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "measuring\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert errors == "Interrupted: the report has what was measured before\n"
    assert content(tmp_path) == before


@pytest.mark.parametrize("at", ["_as_json", "_markdown"])
def test_ctrl_c_while_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    write(Section("chain", tables=[TABLE]), tmp_path)
    before = content(tmp_path)

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reports, at, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(Section("chain", title="anew", tables=[TABLE]), tmp_path)
    assert content(tmp_path) == before
