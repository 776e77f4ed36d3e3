"""Memory of a child is the child's own, also when its parent is large; the benchmark's table depends on it."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.memory import peak_bytes, reset_peak, resident_bytes

ROOT = Path(__file__).parents[1]
MIB = 1 << 20

COPYING = """
import benchmarks.memory
from payload_stores.local import LocalStore
publish = LocalStore.publish
LocalStore.publish = lambda self, topic, data, context=None: publish(self, topic, bytes(bytearray(data)), context)
benchmarks.memory._measure("local", "bytes", 32 << 20)
"""


def test_the_peak_of_a_process() -> None:
    before = reset_peak()
    # Of its own pages: the allocator may have as much in hand.
    with mmap.mmap(-1, 40 * MIB) as block:
        block.write(b"x" * len(block))
    assert peak_bytes() - before > 39 * MIB
    assert reset_peak() <= resident_bytes() + MIB
    assert peak_bytes(os.getpid()) == peak_bytes()


@pytest.mark.full
def test_the_benchmark_sees_a_store_that_copies(tmp_path: Path) -> None:
    """Started from a process that is larger than the child will ever be."""
    ballast = b"x" * (300 * MIB)
    done = subprocess.run(
        [sys.executable, "-c", COPYING],
        cwd=ROOT,
        env={**os.environ, "BENCHMARK_PATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    del ballast
    published, downloaded = (int(number) for number in done.stdout.split())
    assert published > 60 * MIB  # the store's copy, and the one on the way to it
    assert downloaded < 8 * MIB
