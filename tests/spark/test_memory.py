"""What a task holds is bounded by bytes, however many payloads a batch of references stands for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

PAYLOAD = 20_000_000
CONFIGURED = 64 << 20  # large.message.downloads.max.bytes


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process's memory from /proc")
@pytest.mark.parametrize("last", ["bytes", "avro"])
def test_memory_of_a_task(tmp_path: Path, last: str) -> None:
    script = Path(__file__).with_name("measure_memory.py")
    done = subprocess.run(
        [sys.executable, str(script), last, str(tmp_path), str(PAYLOAD)],
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )
    measured = json.loads(done.stdout)
    assert measured["rows"] == 12
    assert measured["output"] > 0.9 * PAYLOAD
    # Above the batch that was handed over last and the one that is being made.
    assert measured["taken"] - 2 * measured["output"] < CONFIGURED + (64 << 20)
