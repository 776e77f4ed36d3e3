"""Memory that publishing and downloading one large payload costs, above the payload itself.

Each case runs in a process of its own and reports how far its peak resident memory rose, so that allocations outside
Python's own accounting count too. The kernel is asked for the peak of that process alone: what ``getrusage`` says is
inherited from the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.testing.memory import peak_bytes, reset_peak

PAYLOAD_BYTES = 256 << 20
WANTED = 0.2


def run() -> bool:
    """Print the table; returns whether the target is reached."""
    table = Table(title=f"Peak memory above one payload of {PAYLOAD_BYTES >> 20} MiB", title_justify="left")
    for heading in ("", "publish, MiB", "in payloads", "wanted", "download, MiB", "in payloads"):
        table.add_column(heading, justify="left" if not heading else "right")
    reached = True
    for store, environment in _stores():
        with environment as settings:
            result = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", store, str(PAYLOAD_BYTES)],
                env={**os.environ, **settings},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
                timeout=300,
            )
        published, downloaded = (int(number) for number in result.stdout.split())
        ratio = published / PAYLOAD_BYTES
        reached &= ratio <= WANTED
        table.add_row(
            store,
            f"{published / 2**20:.1f}",
            f"[{'green' if ratio <= WANTED else 'bold red'}]{ratio:.3f}[/]",
            f"≤ {WANTED}",
            f"{downloaded / 2**20:.1f}",
            f"{downloaded / PAYLOAD_BYTES:.3f}",
        )
    Console().print(table)
    return reached


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
