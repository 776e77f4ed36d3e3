"""CPU time of process families."""

import subprocess
import sys

import pytest

from benchmarks.spark_queries import FamilyClock


@pytest.mark.timeout(60)
def test_the_time_of_ended_processes_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        clock = FamilyClock(busy.pid)
        while not clock():
            pass
        used = clock()
        busy.kill()
    assert clock() == used
