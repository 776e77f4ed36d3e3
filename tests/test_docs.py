"""The documentation says what is true: its code runs, and its list of keys is that of the code."""

import re
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


def test_readme_has_code_to_run() -> None:
    assert len(PYTHON_BLOCKS) >= 2


def test_configuration_page_lists_every_key_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9.*]+)` \| ([^|]*?) *\|", page, re.MULTILINE))
    paths = {*SERIALIZERS.builtins.values(), *DESERIALIZERS.builtins.values(), *STORES.builtins.values()}
    classes = [PayloadStore, *(import_object(path) for path in paths)]
    for option in {option for cls in classes for option in getattr(cls, "options")}:  # noqa: B009, for mypy
        assert option.name in listed
        default = option.default
        if isinstance(default, (bool, int, str)) and default != "":
            assert listed[option.name].strip("`") == str(default).lower()
