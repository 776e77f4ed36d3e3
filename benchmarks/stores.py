"""The payload stores side by side, one payload after the other, of 1, 20 and 200 MB; boto3 and obstore alone.

Within a payload, stores and peers use any parallelism. The S3 server is strict, built with Go; it runs
on the same cores, as do the broker and the offload server. Contenders take turns.

The SHA-256 of each payload is computed on upload, and again on download: records carry it, whatever the store.
The peers here compute it too, although they would not by default: boto3's upload_fileobj and download_fileobj, and
obstore's put and get.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from benchmarks.harness import Row, Table, Transfers, sums
from benchmarks.s3_peers import obstore_client
from payload_stores import PublishContext, SupportsDelete, open_store
from payload_stores.ids import sha256_digest
from payload_stores.registry import STORES
from serde_chain.testing.services import KafkaBroker, OffloadServer
from tests.servers.versitygw import VersityGateway

# Payload size in MB, and payloads per turn.
SIZES: Final = {1: 40, 20: 6, 200: 1}
ROUNDS: Final = 3

_TOPIC: Final = "benchmark"
_BOTO3, _OBSTORE = "boto3 alone", "obstore alone"
_LIBRARIES: Final = {"s3": _BOTO3, "objects": _OBSTORE}
_WAYS: Final = ("up", "down")

Times: TypeAlias = dict[tuple[str, int, str], Transfers]


@dataclass(frozen=True)
class Contender:
    """One way to move payloads.

    Attributes:
        name: Its row.
        up: Uploads a payload; returns the input of `down`.
        down: Downloads it.
        delete: Deletes it, if that frees memory.
    """

    name: str
    up: Callable[[bytes], Any]
    down: Callable[[Any], bytes]
    delete: Callable[[Any], object]


def run(*, quick: bool) -> Iterator[Table]:
    """Payloads of each size up and down by each store and library, in turns."""
    times: Times = {}
    with ExitStack() as stack:
        contenders = _contenders(stack)
        for size, count in (dict.fromkeys(SIZES, 1) if quick else SIZES).items():
            payloads = [os.urandom(size * 10**6) for _ in range(count)]
            for number in range((1 if quick else ROUNDS) + 1):
                for each in contenders[:: -1 if number % 2 else 1]:
                    _turn(each, size, payloads, times if number else {})  # the first round warms up
    yield from _tables([each.name for each in contenders], times)


def _turn(contender: Contender, size: int, payloads: list[bytes], times: Times) -> None:
    total = sum(map(len, payloads))
    up, down = (times.setdefault((contender.name, size, way), Transfers(total)) for way in _WAYS)
    with up.turn():
        made = [contender.up(data) for data in payloads]
    with down.turn():
        came = [contender.down(reference) for reference in made]
    if came[-1] != payloads[-1]:
        raise AssertionError(f"{contender.name}: what came back is not what was sent")
    # The next turn takes the same memory. A virtual machine gets other pages from its host, at up to 2 s/GB.
    for reference in made:
        contender.delete(reference)


def _contenders(stack: ExitStack) -> list[Contender]:
    """All stores, and two libraries alone."""
    server = stack.enter_context(VersityGateway())
    bucket = server.create_bucket()
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    configurations: dict[str, dict[str, Any]] = {
        "memory": {},
        "local": {"local.path": folder},
        "s3": server.store_config(bucket),
        "objects": server.objects_config(bucket),
    }
    if "kafka" in STORES.builtins:
        configurations["kafka"] = {**stack.enter_context(KafkaBroker()).client_config()}
    offload = stack.enter_context(OffloadServer(users={"alice": "alice-secret"}))
    configurations["hop"] = {
        "hop.offload.url": offload.url,
        "hop.username": "alice",
        "hop.password": "alice-secret",
        "hop.scram.mechanism": "SCRAM-SHA-256",
    }
    stores = [_store(name, config, stack) for name, config in configurations.items()]
    return [*stores, *_peers(server, bucket)]


def _store(name: str, config: dict[str, Any], stack: ExitStack) -> Contender:
    store = open_store(name, config)
    stack.callback(store.close)

    def up(data: bytes) -> str:
        return store.publish(_TOPIC, data, PublishContext(digest=sha256_digest(data)))

    def down(reference: str) -> bytes:
        data = store.download(reference)
        sha256_digest(data)
        return data

    # A broker's log does not become shorter.
    delete = store.delete if isinstance(store, SupportsDelete) and name != "kafka" else lambda _: None
    return Contender(name, up, down, delete)


def _peers(server: VersityGateway, bucket: str) -> list[Contender]:
    boto3, obstore = server.client(), obstore_client(server.store_config(bucket))

    def boto3_up(data: bytes) -> None:
        sha256_digest(data)
        boto3.upload_fileobj(io.BytesIO(data), bucket, "peers/boto3")

    def boto3_down(_: None) -> bytes:
        file = io.BytesIO()
        boto3.download_fileobj(bucket, "peers/boto3", file)
        data = file.getvalue()
        sha256_digest(data)
        return data

    def obstore_up(data: bytes) -> None:
        sha256_digest(data)
        obstore.put("peers/obstore", data)

    def obstore_down(_: None) -> bytes:
        data = bytes(obstore.get("peers/obstore").bytes())
        sha256_digest(data)
        return data

    return [
        Contender(_BOTO3, boto3_up, boto3_down, lambda _: boto3.delete_object(Bucket=bucket, Key="peers/boto3")),
        Contender(_OBSTORE, obstore_up, obstore_down, lambda _: obstore.delete("peers/obstore")),
    ]


def _tables(names: list[str], times: Times) -> Iterator[Table]:
    sizes = sorted({size for _, size, _ in times})
    for way in _WAYS:
        rows = []
        for name in names:
            library = _LIBRARIES.get(name, "")
            for size in sizes:
                theirs = times[library, size, way].rates() if library else ()
                rows.append(Row(name, times[name, size, way].rates(), library, theirs, f"{size} MB"))
        # The libraries' own lines are the baselines.
        rows = [row for row in rows if row.name not in _LIBRARIES.values()]
        yield Table(f"stores-{way}", f"Payload stores, one after the other, {way}", "MB/s", rows, axis="payload")
    cpu = {(name, size, way): times[name, size, way].cpu_per_gb() for name in names for way in _WAYS for size in sizes}
    rows = [Row(f"{name}, {way}", figures, at=f"{size} MB") for (name, size, way), figures in cpu.items()]
    objects, s3 = (sums(*(figures for (of, *_), figures in cpu.items() if of == name)) for name in ("objects", "s3"))
    rows.append(Row("objects, all of these together", objects, "s3", s3))
    yield Table("stores-cpu", "Payload stores: CPU of the client", "s/GB", rows)
