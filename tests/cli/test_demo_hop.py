"""``serde-chain demo --hop`` does what it says."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from serde_chain.cli.commands import commands

pytestmark = pytest.mark.full


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker and an offload server start, and hop's client."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = CliRunner().invoke(commands, ["demo", "--hop"], env={"COLUMNS": "140"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "Both messages came back unchanged" in said
    assert "alice-secret" not in said
    assert '{"url": "http://127.0.0.1:' in said


def test_its_figures_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker and an offload server start, and hop's client."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = CliRunner().invoke(commands, ["demo", "--hop", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    messages = json.loads(done.stdout)["messages"]
    assert messages["small"]["bytes"] == messages["small"]["record_bytes"]
    assert messages["oversized"]["record_bytes"] < 1000 < messages["oversized"]["bytes"]
