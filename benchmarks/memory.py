"""Memory cost of publishing and downloading one large payload, above the payload itself.

Each case runs in a separate process and reports how far its peak resident memory rose, so allocations outside
Python's own accounting count too. The kernel reports the peak of that process alone: ``getrusage`` inherits the
peak of the parent process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import Row, Table
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from tests.memory import peak_bytes, reset_peak
from tests.servers.versitygw import VersityGateway

SIZES_MIB = (16, 64, 256)
TENSOR_MIB = 1024


def run(*, quick: bool) -> Iterator[Table]:
    """Each store with payloads of several sizes."""
    rows = []
    for store, environment in _stores():
        with environment as settings:
            sizes = [("bytes", size) for size in (SIZES_MIB[::2] if quick else SIZES_MIB)]
            if store == "s3":
                sizes.append(("npy", SIZES_MIB[-1] if quick else TENSOR_MIB))
            for stage, size in sizes:
                result = subprocess.run(
                    [sys.executable, "-m", "benchmarks.memory", store, stage, str(size << 20)],
                    env={**os.environ, **settings},
                    stdout=subprocess.PIPE,
                    check=True,
                    text=True,
                    timeout=300,
                )
                rows += [
                    Row(
                        f"{store}, {way}" if stage == "bytes" else f"{store}, {stage}, {way}",
                        [int(peak) / 2**20],
                        "the payload itself",
                        [size],
                        f"{size} MiB",
                    )
                    for way, peak in zip(("publish", "download"), result.stdout.split(), strict=True)
                ]
    yield Table("memory", "Peak memory above one payload", "MiB", rows, axis="payload")


@contextlib.contextmanager
def _local() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="serde-chain-benchmark-") as folder:
        yield {"BENCHMARK_PATH": folder}


@contextlib.contextmanager
def _s3() -> Iterator[dict[str, str]]:
    # moto copies a whole object for each range.
    with VersityGateway() as server:
        server.create_bucket("benchmark")
        yield {
            "BENCHMARK_S3": server.url,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
        }


def _stores() -> list[tuple[str, contextlib.AbstractContextManager[dict[str, str]]]]:
    return [("local", _local()), ("s3", _s3())]


def _payload(stage: str, size: int) -> Any:
    if stage == "bytes":
        return os.urandom(size)
    import numpy as np

    return np.random.default_rng(0).random(size >> 2, dtype="f4")


def _measure(store: str, stage: str, payload_bytes: int) -> None:
    config: dict[str, object] = {
        "value.serializers": f"{stage}, large-message",
        "value.deserializers": f"large-message, {stage}",
        "large.message.payload.store.class": store,
        "large.message.max.payload.bytes": 2 << 30,
    }
    if store == "local":
        config["local.path"] = os.environ["BENCHMARK_PATH"]
    else:
        config |= {"s3.bucket": "benchmark", "s3.endpoint.url": os.environ["BENCHMARK_S3"], "s3.region": "us-east-1"}
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        # Once with a small payload above the threshold, so that imports and connections do not count.
        warm = RecordContext("benchmark", "value", [])
        read(write(_payload(stage, 2 << 20), warm), warm)
        payload = _payload(stage, payload_bytes)
        before = reset_peak()
        context = RecordContext("benchmark", "value", [])
        reference = write(payload, context)
        published = peak_bytes() - before
        del payload
        before = reset_peak()
        read(reference, context)
        print(published, peak_bytes() - before - payload_bytes)


if __name__ == "__main__":
    _measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))
