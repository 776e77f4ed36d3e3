"""The documentation says what is true: its code runs, and its list of keys is that of the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from payload_stores.base import PayloadStore
from payload_stores.plugins import import_object
from payload_stores.registry import STORES
from serde_chain.registry import DESERIALIZERS, SERIALIZERS
from serde_chain.testing.services import KafkaBroker

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", PYTHON_BLOCKS, ids=lambda block: block.splitlines()[0])
def test_readme_code_runs(block: str, broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "localhost:9092" in block:
        broker.create_topic("images")
    code = block.replace("localhost:9092", broker.bootstrap_servers).replace("/tmp/serde-chain-payloads", str(tmp_path))  # noqa: S108, the README's text
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102, our own text
    if "images" in block:
        assert capsys.readouterr().out == "M 51 5000000 None\n"


def test_authors_guide_passes_the_suites(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "authors.md").read_text(encoding="utf-8")
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", guide, re.DOTALL)
    assert [name for name, _ in files] == ["reverse.py", "test_reverse.py", "shelf.py", "test_shelf.py"]
    for name, code in files:
        (tmp_path / name).write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=prepend", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout


def test_readme_has_code_to_run() -> None:
    assert len(PYTHON_BLOCKS) >= 2


def test_configuration_page_lists_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9_.*]+)` \| ([^|]*?) *\|", page, re.MULTILINE))
    paths = {*SERIALIZERS.builtins.values(), *DESERIALIZERS.builtins.values(), *STORES.builtins.values()}
    classes = [PayloadStore, *(import_object(path) for path in paths)]
    for option in {option for cls in classes for option in getattr(cls, "options")}:  # noqa: B009, for mypy
        assert option.name in listed
        default = option.default
        if isinstance(default, (bool, int, str)) and default != "":
            assert listed[option.name].strip("`") == str(default).lower()
