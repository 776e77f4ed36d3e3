"""``serde-chain demo`` does what it says, with payloads in a folder, and with nothing but the broker."""

import ast
import html
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from serde_chain.cli.commands import commands
from serde_chain.cli.demo import alerts, sweep

PLACES = {
    "local": (r"The payloads are in \S+/payloads: 2 files\.", "file://"),
    "kafka": (r"The payloads are in the topic alerts\.payloads: \d+ chunks\.", "kafka://"),
}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", PLACES)
def test_demo(store: str, tmp_path: Path) -> None:
    """The whole demo: a broker and Spark in a process of its own."""
    place, scheme = PLACES[store]
    program = "from serde_chain.cli import main; main()"
    # In a process of its own, since the session of Spark is one of the whole process.
    done = subprocess.run(
        [sys.executable, "-c", program, "demo", "--store", store, "--records", "20"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "All 20 records came back unchanged" in said
    assert re.search(place, said)
    assert scheme in said
    # What a killed producer has left, and no more.
    assert re.search(
        rf"2 payloads are in use, and are still there; 1 was in no record and was deleted, [\d,]+ bytes: {scheme}", said
    )
    assert "the grace period of" not in said  # told in other words
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("others", [["--hop"], ["--store", "kafka"]], ids=" ".join)
def test_what_ends_with_the_servers_is_not_kept(others: list[str]) -> None:
    done = CliRunner().invoke(commands, ["demo", "--keep", *others])
    assert done.exit_code == 2
    assert "--keep requires --store local" in done.output


def test_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_demo(console: Console, records: int, **options: object) -> dict[str, object]:
        console.print("the story")
        return {"records": records, **options}

    monkeypatch.setattr("serde_chain.cli.demo.alerts.run_demo", run_demo)
    done = CliRunner().invoke(commands, ["demo", "--records", "2", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == {"records": 2, "keep": False, "store": "local"}


def test_the_picture_of_the_demo_has_its_words() -> None:
    """If not: python examples/terminal.py docs/pictures/demo.svg serde-chain demo."""
    drawn = (Path(__file__).parents[2] / "docs" / "pictures" / "demo.svg").read_text(encoding="utf-8")
    shown = " ".join(html.unescape(" ".join(re.findall(r"<text[^>]*>(.*?)</text>", drawn))).split())
    words = [
        " ".join(re.sub(r"\[/?[a-z ]*\]", "", part.value).split())
        for module in (alerts, sweep)
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "console.print"
        for text in call.args[:1]
        for part in (text.values if isinstance(text, ast.JoinedStr) else [text])
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) > 5
    ]
    assert len(words) > 10
    assert [part for part in words if part not in shown] == ["The payloads are in the topic", ".payloads:", "chunks."]
