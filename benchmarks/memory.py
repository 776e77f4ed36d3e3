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

from benchmarks.harness import Row, Table
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from tests.memory import peak_bytes, reset_peak

SIZES_MIB = (16, 64, 256)


def run(*, quick: bool) -> Iterator[Table]:
    """Each store with payloads of several sizes."""
    rows = []
    for store, environment in _stores():
        with environment as settings:
            for size in SIZES_MIB[::2] if quick else SIZES_MIB:
                result = subprocess.run(
                    [sys.executable, "-m", "benchmarks.memory", store, str(size << 20)],
                    env={**os.environ, **settings},
                    stdout=subprocess.PIPE,
                    check=True,
                    text=True,
                    timeout=300,
                )
                rows += [
                    Row(f"{store}, {way}", [int(peak) / 2**20], "the payload itself", [size], f"{size} MiB")
                    for way, peak in zip(("publish", "download"), result.stdout.split(), strict=True)
                ]
    yield Table("memory", "Peak memory above one payload", "MiB", rows, axis="payload")


@contextlib.contextmanager
def _local() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="serde-chain-benchmark-") as folder:
        yield {"BENCHMARK_PATH": folder}


@contextlib.contextmanager
def _s3() -> Iterator[dict[str, str]]:
    from serde_chain.testing.services import S3Server

    with S3Server() as server:
        server.create_bucket("benchmark")
        yield {
            "BENCHMARK_S3": server.url,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
        }


def _stores() -> list[tuple[str, contextlib.AbstractContextManager[dict[str, str]]]]:
    return [("local", _local()), ("s3", _s3())]


def _measure(store: str, payload_bytes: int) -> None:
    config: dict[str, object] = {
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": store,
    }
    if store == "local":
        config["local.path"] = os.environ["BENCHMARK_PATH"]
    else:
        config |= {"s3.bucket": "benchmark", "s3.endpoint.url": os.environ["BENCHMARK_S3"], "s3.region": "us-east-1"}
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        # Once with a small payload above the threshold, so that imports and connections do not count.
        warm = RecordContext("benchmark", "value", [])
        read(write(os.urandom(2 << 20), warm), warm)
        payload = os.urandom(payload_bytes)
        before = reset_peak()
        context = RecordContext("benchmark", "value", [])
        reference = write(payload, context)
        published = peak_bytes() - before
        del payload
        before = reset_peak()
        read(reference, context)
        print(published, peak_bytes() - before - payload_bytes)


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]))
