"""Producer and Consumer against confluent_kafka's own, in CPU time per record of 200 bytes; and what a start costs.

The broker is a real one. Consumers read what they have prefetched, so that the broker's pace does not count.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import confluent_kafka
from rich.console import Console
from rich.table import Table

import serde_chain
from serde_chain.testing.services import KafkaBroker

_BYTES: Final = 200
_RECORDS: Final = 20_000  # of a turn
_ROUNDS: Final = 7
_CONSUMED: Final = 5_000  # of a turn
_PREFETCH_SECONDS: Final = 6
_TOPIC: Final = "benchmark"
_STORE: Final = {"large.message.payload.store.class": "memory"}
_CHAINS: Final[dict[str, str | None]] = {"none": None, "bytes": "bytes", "bytes, large-message": "bytes, large-message"}
# Of the plain client's rate.
_WANTED_OF_PRODUCER: Final = {"none": 0.95, "bytes": 0.78, "bytes, large-message": 0.74}
_WANTED_OF_CONSUMER: Final = {"poll": 0.50, "consume(500)": 0.40}

Times = dict[str, list[float]]


def run() -> bool:
    """Print the tables; returns whether the targets are reached."""
    with KafkaBroker() as broker:
        broker.create_topic(_TOPIC)
        common: dict[str, Any] = {**broker.client_config(), "log_level": 0}
        producing = _produce(common)
        polling, consuming = _consume(common)
    reached = [
        _print("Producer: produce and flush", producing, _WANTED_OF_PRODUCER),
        _print("Consumer: poll", polling, dict.fromkeys(_CHAINS, _WANTED_OF_CONSUMER["poll"])),
        _print("Consumer: consume(500)", consuming, dict.fromkeys(_CHAINS, _WANTED_OF_CONSUMER["consume(500)"])),
        _print_start(),
    ]
    return all(reached)


def _produce(common: Mapping[str, Any]) -> Times:
    settings = {**common, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    clients: dict[str, Any] = {"plain": confluent_kafka.Producer(settings)}
    for name, chain in _CHAINS.items():
        more = {} if chain is None else {"value.serializers": chain, **(_STORE if "large" in chain else {})}
        clients[name] = serde_chain.Producer({**settings, **more})
    value = bytes(_BYTES)

    def turn(client: Any) -> None:
        for _ in range(_RECORDS):
            client.produce(_TOPIC, value)
        client.flush()

    times = _in_turns({name: partial(turn, client) for name, client in clients.items()}, _RECORDS)
    for client in clients.values():
        client.close()
    return times


def _consume(common: Mapping[str, Any]) -> tuple[Times, Times]:
    settings = {
        **common,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 500_000,
    }
    clients: dict[str, Any] = {"plain": confluent_kafka.Consumer({**settings, "group.id": "plain"})}
    for name, chain in _CHAINS.items():
        reading = None if chain is None else ", ".join(reversed(chain.split(", ")))
        more = {} if reading is None else {"value.deserializers": reading, **(_STORE if "large" in reading else {})}
        clients[name] = serde_chain.Consumer({**settings, "group.id": name.replace(", ", "-"), **more})
    for client in clients.values():
        client.subscribe([_TOPIC])
        while client.poll(1) is None:
            pass
    time.sleep(_PREFETCH_SECONDS)

    polling = _in_turns({name: partial(_poll, client) for name, client in clients.items()}, _CONSUMED)
    consuming = _in_turns({name: partial(_consume_several, client) for name, client in clients.items()}, _CONSUMED)
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


def _in_turns(contenders: Mapping[str, Callable[[], None]], records: int) -> Times:
    """Seconds of CPU per record, of this process with librdkafka's threads, round by round."""
    times: Times = {name: [] for name in contenders}
    for _ in range(_ROUNDS):
        for name, contender in contenders.items():
            with _cpu(times[name], records):
                contender()
    return times


@contextmanager
def _cpu(times: list[float], records: int) -> Iterator[None]:
    started = time.process_time()
    yield
    times.append((time.process_time() - started) / records)


def _print(title: str, times: Times, wanted: Mapping[str, float]) -> bool:
    table = Table(title=title, title_justify="left")
    table.add_column("chain")
    for heading in ("µs a record", "of the plain rate", "wanted"):
        table.add_column(heading, justify="right")
    plain = statistics.median(times["plain"])
    table.add_row("plain confluent_kafka", f"{plain * 1e6:.2f}", "", "")
    reached = True
    for name, least in wanted.items():
        ours = statistics.median(times[name])
        good = plain / ours >= least
        reached = reached and good
        rate = f"[{'green' if good else 'bold red'}]{plain / ours:.2f}[/]"
        table.add_row(name, f"{ours * 1e6:.2f}", rate, f"≥ {least:.2f}")
    Console().print(table)
    return reached


def _print_start() -> bool:
    """Import and construction; milliseconds differ from machine to machine, so the floor stands beside them."""
    programs = {
        "import confluent_kafka": "import confluent_kafka",
        "import serde_chain; serde_chain.Producer": "import serde_chain; serde_chain.Producer",
    }
    times: Times = {name: [] for name in programs}
    # As installed packages are, compiled: the first round sees to it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for round_ in range(_ROUNDS + 1):
        for name, program in programs.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            if round_:
                times[name].append(time.perf_counter() - started)
    medians = [statistics.median(taken) for taken in times.values()]
    table = Table(title="Start of a process", title_justify="left")
    table.add_column("program")
    table.add_column("ms", justify="right")
    for name, median in zip(programs, medians, strict=True):
        table.add_row(name, f"{median * 1e3:.0f}")
    Console().print(table)
    return medians[1] <= 1.25 * medians[0]
