"""The code of the pages about stores that need no server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from payload_stores.memory import MemoryStore
from payload_stores.registry import STORES
from tests.environments import ROOT, python_blocks, section

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


@pytest.mark.parametrize(
    ("page", "heading", "printed"),
    [
        ("stores.md", "Store middleware", ["53"]),
        ("services.md", "The store `memory`", ["b'memory:///images/' 200", "[200]"]),
        ("stores.md", "The store `local`", ["b'901'", "b'9'", "[10000]", "0"]),
    ],
)
def test_the_code_of_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, page: str, heading: str, printed: list[str]
) -> None:
    code = "\n".join(python_blocks(section((DOCS / page).read_text(encoding="utf-8"), heading)))
    exec(code.replace("/tmp/serde-chain-payloads", str(tmp_path)), {})  # noqa: S102, S108  a page of ours
    assert capsys.readouterr().out.splitlines() == printed


def test_the_overview_names_every_store() -> None:
    overview = (DOCS / "stores.md").read_text(encoding="utf-8")
    assert [name for name in STORES.builtins if f"`{name}`" not in overview] == []
    assert [name for name in STORES.builtins if f"`{name}`" not in (ROOT / "README.md").read_text("utf-8")] == []
