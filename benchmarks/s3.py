"""Large payloads to S3 and back, eight at a time, over a network with latency, compared with boto3 in eight threads.

The chain alone in as many threads shows the store's cost; Producer and Consumer are the full path, with a broker.

The server is strict, built with Go, behind a proxy that adds the latency; both run in separate processes, on
the same cores. Contenders take turns. Ours computes the SHA-256 of each payload, which its record carries, and verifies
it on download. boto3 alone does not: on CPU-bound machines, that alone is a quarter of the
time of a download. So downloads are measured against boto3 with the same hash, beside a row without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import TopicPartition

from benchmarks.harness import Row, Table, Transfers
from benchmarks.s3_peers import kaf_s3_connector, obstore
from payload_stores.ids import sha256_digest
from serde_chain import Consumer, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.testing.services import KafkaBroker
from tests.servers.toxiproxy import Toxiproxy
from tests.servers.versitygw import VersityGateway

PAYLOADS: Final = 16
PAYLOAD_BYTES: Final = 20_000_000
THREADS: Final = 8
LATENCY_MS: Final = 30
ROUNDS: Final = 3

_TOPIC: Final = "benchmark"
_PEERS: Final = ("obstore", "kaf-s3-connector")
_PEERS_TOPIC: Final = "peers"
_DEADLINE_SECONDS: Final = 120
_WAYS: Final = ("up", "down")
_PLAIN, _HASHED = f"boto3, {THREADS} threads", f"boto3, {THREADS} threads, with SHA-256"
_AGAINST: Final = {"up": _PLAIN, "down": _HASHED}

Payloads = list[bytes]
# A record on the wire: its value and its headers.
Record = tuple[Any, list[Any]]


@dataclass(frozen=True)
class Contender:
    """One way to move payloads.

    Attributes:
        name: Its row.
        up: Uploads payloads; returns the input of `down`.
        down: Downloads them.
    """

    name: str
    up: Callable[[Payloads], Any]
    down: Callable[[Any], list[Any]]


def run(*, quick: bool) -> Iterator[Table]:
    """All payloads up and down by each, in turns."""
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(PAYLOADS)]
    with ExitStack() as stack:
        server, toxiproxy = stack.enter_context(VersityGateway()), stack.enter_context(Toxiproxy())
        proxy = toxiproxy.proxy("s3", server.url.removeprefix("http://"))
        stack.enter_context(proxy.toxic("latency", latency=LATENCY_MS))
        config = {**server.store_config(server.create_bucket()), "s3.endpoint.url": f"http://{proxy.address}"}
        contenders = _contenders(config, stack)
        times = {(each.name, way): Transfers(PAYLOADS * PAYLOAD_BYTES) for each in contenders for way in _WAYS}
        for number in range((1 if quick else ROUNDS) + 1):
            for each in contenders[:: -1 if number % 2 else 1]:
                up, down = Transfers(PAYLOADS * PAYLOAD_BYTES), Transfers(PAYLOADS * PAYLOAD_BYTES)
                with up.turn():
                    made = each.up(payloads)
                with down.turn():
                    came = each.down(made)
                if came != payloads:
                    raise AssertionError(f"{each.name}: what came back is not what was sent")
                if number:  # the first round opens connections and loads everything that is loaded once
                    for way, of_turn in (("up", up), ("down", down)):
                        times[each.name, way].wall += of_turn.wall
                        times[each.name, way].cpu += of_turn.cpu
    yield from _tables(contenders, times)


def _contenders(config: dict[str, str], stack: ExitStack) -> list[Contender]:
    """The contenders."""
    threads = stack.enter_context(ThreadPoolExecutor(THREADS))
    settings: dict[str, Any] = {
        "value.serializers": "large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": "s3",
        **config,
    }
    write = stack.enter_context(SerializerChain.from_config(settings))
    read = stack.enter_context(DeserializerChain.from_config(settings))
    client, bucket = _client(config), config["s3.bucket"]
    broker = stack.enter_context(KafkaBroker())
    broker.create_topic(_PEERS_TOPIC)
    peers = obstore(config, threads, THREADS), kaf_s3_connector(config, broker.client_config(), _PEERS_TOPIC)

    def put(number: int, data: bytes) -> str:
        client.put_object(Bucket=bucket, Key=f"plain/{number}", Body=data)
        return f"plain/{number}"

    def get(key: str) -> bytes:
        body: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def put_hashed(number: int, data: bytes) -> str:
        sha256_digest(data)
        return put(number, data)

    def get_hashed(key: str) -> bytes:
        data = get(key)
        sha256_digest(data)
        return data

    return [
        Contender(
            _HASHED,
            lambda payloads: list(threads.map(put_hashed, range(len(payloads)), payloads)),
            lambda keys: list(threads.map(get_hashed, keys)),
        ),
        Contender(
            _PLAIN,
            lambda payloads: list(threads.map(put, range(len(payloads)), payloads)),
            lambda keys: list(threads.map(get, keys)),
        ),
        Contender(
            f"chain, {THREADS} threads",
            lambda payloads: list(threads.map(partial(_write, write), payloads)),
            lambda records: list(threads.map(partial(_read, read), records)),
        ),
        Contender(
            "chain, one at a time",
            lambda payloads: [_write(write, data) for data in payloads],
            lambda records: [_read(read, record) for record in records],
        ),
        _clients(settings, broker, stack),
        *(Contender(*peer) for peer in peers if peer is not None),
    ]


def _clients(settings: dict[str, Any], broker: KafkaBroker, stack: ExitStack) -> Contender:
    """Producer and Consumer, with a real broker."""
    broker.create_topic(_TOPIC)
    common = {**broker.client_config(), **settings, "log_level": 0, "linger.ms": 0}
    producer = stack.enter_context(Producer(common))
    consumer = stack.enter_context(Consumer({**common, "group.id": _TOPIC, "enable.auto.commit": False}))
    records = 0

    def produce(payloads: Payloads) -> int:
        nonlocal records
        start = records
        for data in payloads:
            producer.produce(_TOPIC, data)
        records += len(payloads)
        if producer.flush(_DEADLINE_SECONDS):
            raise TimeoutError("records were not delivered")
        return start

    def consume(start: int) -> list[Any]:
        consumer.assign([TopicPartition(_TOPIC, 0, start)])
        until = time.monotonic() + _DEADLINE_SECONDS
        values: list[Any] = []
        while len(values) < PAYLOADS and time.monotonic() < until:
            if (message := consumer.poll(1)) is not None:
                values.append(message.value())
        consumer.unassign()
        return values

    return Contender("Producer, Consumer.poll", produce, consume)


def _write(chain: SerializerChain, data: bytes) -> Record:
    headers: list[Any] = []
    return chain(data, RecordContext(_TOPIC, "value", headers)), headers


def _read(chain: DeserializerChain, record: Record) -> Any:
    value, headers = record
    return chain(value, RecordContext(_TOPIC, "value", list(headers)))


def _client(config: dict[str, str]) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=config["s3.endpoint.url"],
        aws_access_key_id=config["s3.access.key"],
        aws_secret_access_key=config["s3.secret.key"],
        region_name=config["s3.region"],
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=THREADS),
    )


def _tables(contenders: list[Contender], times: Mapping[tuple[str, str], Transfers]) -> Iterator[Table]:
    title = f"S3: {PAYLOADS} payloads of {PAYLOAD_BYTES // 10**6} MB, {LATENCY_MS} ms of latency"
    rates, cpu = [], []
    for way, against in _AGAINST.items():
        theirs = times[against, way].rates()
        for each in contenders:
            of_row, name = times[each.name, way], f"{way}, {each.name}"
            rates.append(Row(name, of_row.rates(), *(() if each.name == against else (against, theirs))))
            cpu.append(Row(name, of_row.cpu_per_gb()))
    missing = set(_PEERS) - {each.name.partition(",")[0] for each in contenders}
    note = f"Not installed: {', '.join(missing)}." if missing else ""
    yield Table("s3", title, "MB/s", rates, note=note)
    yield Table("s3-cpu", title, "CPU, s/GB", cpu, note=note)
