"""The page for users coming from hop-client: its code runs."""

import re
from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker, OffloadServer

PAGE = (Path(__file__).parents[2] / "docs" / "hop.md").read_text(encoding="utf-8")


def test_code_runs(broker: KafkaBroker, offload_server: OffloadServer, capsys: pytest.CaptureFixture[str]) -> None:
    del offload_server  # it announces itself
    broker.create_topic("hop-alerts")
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = block.replace("localhost:9092", broker.sasl_bootstrap_servers)
    exec(compile(code, "hop.md", "exec"), {})  # noqa: S102, our own text
    assert capsys.readouterr().out == "b'M 51' 2000000 b'blanco'\n"
