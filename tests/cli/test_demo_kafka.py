"""``serde-chain demo --store kafka`` needs nothing but the broker: payloads come back from it, also in Spark."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_demo(tmp_path: Path) -> None:
    # In a process of its own, since the session of Spark is one of the whole process.
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from serde_chain.cli import main; main()",
            "demo",
            "--store",
            "kafka",
            "--records",
            "20",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "All 20 records came back unchanged" in said
    assert "The payloads are in the topic alerts.payloads:" in said
    assert "kafka://" in said
    assert list(tmp_path.iterdir()) == []
