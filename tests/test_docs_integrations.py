"""The code on the page about other clients runs, block after block."""

import re
from pathlib import Path

from serde_chain.testing.services import KafkaBroker

PAGE = Path(__file__).parents[1] / "docs" / "integrations.md"


def test_the_page(broker: KafkaBroker, topic: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    changes = {
        "localhost:9092": broker.bootstrap_servers,
        '"stars"': f'"{topic}"',
        "/tmp/serde-chain-payloads": str(tmp_path),  # noqa: S108, the page's text
    }
    for block in blocks:
        code = block
        for old, new in changes.items():
            code = code.replace(old, new)
        exec(compile(code, "docs/integrations.md", "exec"), names)  # noqa: S102, our own text
