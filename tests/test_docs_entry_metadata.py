"""The code of docs/entry-metadata.md runs."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "entry-metadata.md").read_text(encoding="utf-8")


def test_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/entry-metadata.md", "exec"), {})  # noqa: S102, our own text
