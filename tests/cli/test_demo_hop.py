"""``serde-chain demo --hop`` does what it says."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from serde_chain.cli.commands import commands


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = CliRunner().invoke(commands, ["demo", "--hop"], env={"COLUMNS": "140"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "Both messages came back unchanged" in said
    assert "alice-secret" not in said
    assert '{"url": "http://127.0.0.1:' in said
