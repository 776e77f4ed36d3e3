"""Producer and Consumer against confluent_kafka's own: CPU time per record of 200 bytes, and start-up cost.

The broker is real. Consumers read prefetched records, so the broker's pace does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import confluent_kafka

import serde_chain
from benchmarks.harness import Row, Table, in_turns, per_second
from serde_chain.testing.services import KafkaBroker

_BYTES: Final = 200
_RECORDS: Final = 20_000  # per turn
_ROUNDS: Final = 7
_CONSUMED: Final = 5_000  # per turn
# Of the idempotent producer, in four times the rounds: librdkafka's threads vary by more than the check costs.
_CHECKED: Final = 5_000
_PREFETCH_SECONDS: Final = 6
_TOPIC: Final = "benchmark"
_STORE: Final = {"large.message.payload.store.class": "memory"}
_CHAINS: Final[dict[str, str | None]] = {"none": None, "bytes": "bytes", "bytes, large-message": "bytes, large-message"}
_PLAIN: Final = "confluent_kafka"
_UNIT: Final = "records per ms of CPU"

Times = Mapping[str, list[float]]


def run(*, quick: bool) -> Iterator[Table]:
    """The same records through a plain client and through ours with several chains."""
    rounds = 2 if quick else _ROUNDS
    with KafkaBroker() as broker:
        broker.create_topic(_TOPIC)
        common: dict[str, Any] = {**broker.client_config(), "log_level": 0}
        producing = _produce(common, rounds)
        yield Table("producer", "Producer: produce and flush", _UNIT, _rows(producing, _RECORDS))
        yield _check_reports(common, rounds)
        polling, consuming = _consume(common, rounds)
        yield Table("consumer-poll", "Consumer: poll", _UNIT, _rows(polling, _CONSUMED))
        yield Table("consumer-consume", "Consumer: consume(500)", _UNIT, _rows(consuming, _CONSUMED))
    yield _start(6 * rounds)  # of 60 ms each


def _rows(times: Times, records: int) -> list[Row]:
    rates = {name: per_second(records / 1000, seconds) for name, seconds in times.items()}
    return [Row(f"chain: {name}", rates[name], _PLAIN, rates[_PLAIN]) for name in _CHAINS]


def _produce(common: Mapping[str, Any], rounds: int) -> Times:
    settings = {**common, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    clients: dict[str, Any] = {_PLAIN: confluent_kafka.Producer(settings)}
    for name, chain in _CHAINS.items():
        more = {} if chain is None else {"value.serializers": chain, **(_STORE if "large" in chain else {})}
        clients[name] = serde_chain.Producer({**settings, **more})
    value = bytes(_BYTES)

    def turn(client: Any) -> None:
        for _ in range(_RECORDS):
            client.produce(_TOPIC, value)
        client.flush()

    # Of this process, including librdkafka's threads.
    times = in_turns({name: partial(turn, client) for name, client in clients.items()}, rounds, time.process_time)
    for client in clients.values():
        client.close()
    return times


def _check_reports(common: Mapping[str, Any], rounds: int) -> Table:
    """What the check of an idempotent producer's delivery reports adds."""
    settings = {**common, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "enable.idempotence": True}
    clients: dict[str, Any] = {_PLAIN: confluent_kafka.Producer(settings), "ours": serde_chain.Producer(settings)}
    callbacks: dict[str, dict[str, Any]] = {"none": {}, "one": {"on_delivery": lambda _error, _message: None}}
    value = bytes(_BYTES)

    def turn(client: Any, more: Mapping[str, Any]) -> None:
        for _ in range(_CHECKED):
            client.produce(_TOPIC, value, **more)
        client.flush()

    ways = {f"{of} {name}": partial(turn, clients[of], more) for name, more in callbacks.items() for of in clients}
    times = in_turns(ways, rounds * _RECORDS // _CHECKED, time.process_time)
    for client in clients.values():
        client.close()
    rows = []
    for name in callbacks:
        pairs = zip(times[f"ours {name}"], times[f"{_PLAIN} {name}"], strict=True)
        rows.append(Row(f"on_delivery: {name}", [1e6 * (ours - plain) / _CHECKED for ours, plain in pairs]))
    return Table("idempotent", f"Idempotent producer: added to {_PLAIN}'s", "µs of CPU per record", rows)


def _consume(common: Mapping[str, Any], rounds: int) -> tuple[Times, Times]:
    settings = {
        **common,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 500_000,
    }
    clients: dict[str, Any] = {_PLAIN: confluent_kafka.Consumer({**settings, "group.id": "plain"})}
    for name, chain in _CHAINS.items():
        reading = None if chain is None else ", ".join(reversed(chain.split(", ")))
        more = {} if reading is None else {"value.deserializers": reading, **(_STORE if "large" in reading else {})}
        clients[name] = serde_chain.Consumer({**settings, "group.id": name.replace(", ", "-"), **more})
    for client in clients.values():
        client.subscribe([_TOPIC])
        while client.poll(1) is None:
            pass
    time.sleep(_PREFETCH_SECONDS)

    polls = {name: partial(_poll, client) for name, client in clients.items()}
    consumes = {name: partial(_consume_several, client) for name, client in clients.items()}
    polling, consuming = (in_turns(ways, rounds, time.process_time) for ways in (polls, consumes))
    for client in clients.values():
        client.close()
    return polling, consuming


def _poll(client: Any) -> None:
    for _ in range(_CONSUMED):
        if client.poll(10) is None:
            raise TimeoutError("there are no more records")


def _consume_several(client: Any) -> None:
    for _ in range(_CONSUMED // 500):
        if len(client.consume(500, 10)) < 500:
            raise TimeoutError("there are no more records")


def _start(rounds: int) -> Table:
    """Import and construction."""
    ours, plain = "import serde_chain; serde_chain.Producer", "import confluent_kafka"
    # Compiled, like installed packages: the first round ensures this.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def start(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)

    seconds = in_turns({program: partial(start, program) for program in (ours, plain)}, rounds)
    ms = {program: [1e3 * each for each in taken] for program, taken in seconds.items()}
    return Table("start", "Start of a process", "ms", [Row(ours, ms[ours], plain, ms[plain])])
