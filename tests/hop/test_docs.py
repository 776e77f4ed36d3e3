"""The page for users coming from hop-client: its code runs, with what the page tells to install."""

from collections.abc import Callable
from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker, OffloadServer
from tests.environments import Environment, install_line, python_blocks

pytestmark = pytest.mark.full

PAGE = (Path(__file__).parents[2] / "docs" / "hop.md").read_text(encoding="utf-8")


def test_code_runs(
    broker: KafkaBroker, offload_server: OffloadServer, installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    del offload_server  # it announces itself
    broker.create_topic("hop-alerts")
    (block,) = python_blocks(PAGE)
    code = block.replace("localhost:9092", broker.sasl_bootstrap_servers)
    assert installed(install_line(PAGE)).run(code, tmp_path) == "b'M 51' 2000000 b'blanco'\n"
