"""The code on the page about Arrow runs, block after block."""

import re
from pathlib import Path

import pytest

from serde_chain.testing.services import KafkaBroker

PAGE = Path(__file__).parents[1] / "docs" / "arrow.md"


def test_the_page(broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    broker.create_topic("arrow-alerts")
    names: dict[str, object] = {}
    for block in blocks:
        code = block.replace("localhost:9092", broker.bootstrap_servers).replace('"alerts"', '"arrow-alerts"')
        exec(compile(code, "docs/arrow.md", "exec"), names)  # noqa: S102, our own text
    columns, values = capsys.readouterr().out.splitlines()
    assert columns == "['topic', 'partition', 'offset', 'timestamp', 'key', 'headers', 'value']"
    assert values == "['key', 'value.id', 'value.band'] g"
