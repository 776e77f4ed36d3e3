"""The rounds: what is done to clients, and what must be true then."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from serde_chain.clients.confluent.producer import Producer
from serde_chain.errors import SerializationError
from serde_chain.stamp import check, stamp
from serde_chain.testing.services import OffloadServer
from tests.chaos import children
from tests.chaos.cluster import SECONDS, ChaosError, Child, Cluster, Outcome, Record, payload

__all__ = ["ROUNDS"]

Round: TypeAlias = Callable[[Cluster, int], Outcome]

# About as many points as the process of a round has, so that it is killed anywhere in it, or just not.
_PRODUCER_POINTS: Final = 12_000
_TRANSACTION_POINTS: Final = 16_000
_MEMBER_POINTS: Final = 6_000
_RELAY_POINTS: Final = 6_000
_NEVER: Final = 1 << 62
_RECORDS: Final = 40
# More records than a producer writes before it is fenced; the number of the one that the other producer writes.
_UNFENCED: Final = 100_000


def _killed_producer(cluster: Cluster, seed: int) -> Outcome:
    """A producer is killed; the next one with its journal deletes what it has not sent."""
    source = random.Random(seed)
    topic = cluster.new_topic()
    config = cluster.config(topic, **{"large.message.journal.path": str(cluster.folder / f"{topic}.journal")})
    point = source.randrange(1, _PRODUCER_POINTS)
    child = Child(children.produce, config, topic, seed, _RECORDS, point)
    delivered = {number for kind, number in child.end() if kind == "delivered"}
    _check_ended(child)
    outcome = Outcome(killed=child.was_killed, acknowledged=len(delivered))
    before = len(cluster.stored(topic))
    Producer(config).close()
    records = cluster.read(topic)
    _check_once_and_in_order(records)
    if missing := delivered - {record.number for record in records}:
        raise ChaosError(f"acknowledged records are not in the topic: {sorted(missing)}")
    _count_payloads(cluster, topic, before, outcome)
    outcome.records = len(records)
    return outcome


def _killed_broker(cluster: Cluster, seed: int) -> Outcome:
    """The broker is killed while records and payloads are on their way, and comes back."""
    if cluster.broker is None:
        raise ValueError("a broker that can be killed is needed: Cluster(..., broker=...)")
    source = random.Random(seed)
    topic = cluster.new_topic()
    config = cluster.config(topic, **{"large.message.journal.path": str(cluster.folder / f"{topic}.journal")})
    child = Child(children.produce, config, topic, seed, _RECORDS, _NEVER)
    child.listen(source.random())
    cluster.broker.kill()
    child.listen(source.random())
    cluster.broker.restart()
    delivered = {number for kind, number in child.end() if kind == "delivered"}
    _check_ended(child)
    records = cluster.read(topic)
    _check_once_and_in_order(records)
    if missing := set(range(_RECORDS)) - (delivered & {record.number for record in records}):
        raise ChaosError(f"records were not delivered, though the broker came back: {sorted(missing)}")
    outcome = Outcome(records=len(records), acknowledged=len(delivered))
    _count_payloads(cluster, topic, len(cluster.stored(topic)), outcome)
    return outcome


def _changing_limit(cluster: Cluster, seed: int) -> Outcome:
    """The topic's limit is lowered and raised under a producer that follows it."""
    source = random.Random(seed)
    topic = cluster.new_topic()
    more = {"large.message.threshold.bytes": "auto", "large.message.threshold.ttl.ms": 50}
    child = Child(children.produce, cluster.config(topic, **more), topic, seed, _RECORDS, _NEVER)
    while child.listen(source.random() / 5):
        cluster.set_limit(topic, source.choice([3_000, 20_000, 1_000_000]))
    delivered = {number for kind, number in child.end() if kind == "delivered"}
    _check_ended(child)
    numbers = Counter(record.number for record in cluster.read(topic))
    if twice := [number for number, count in numbers.items() if count > 1]:
        raise ChaosError(f"records came twice: {twice}")
    if missing := delivered - numbers.keys():
        raise ChaosError(f"acknowledged records are not in the topic: {sorted(missing)}")
    outcome = Outcome(records=len(numbers), acknowledged=len(delivered))
    _count_payloads(cluster, topic, len(cluster.stored(topic)), outcome)
    return outcome


def _killed_transactions(cluster: Cluster, seed: int) -> Outcome:
    """A producer is killed in its transactions; the next one ends them."""
    source = random.Random(seed)
    topic = cluster.new_topic()
    config = cluster.config(
        topic,
        **{"large.message.journal.path": str(cluster.folder / f"{topic}.journal"), "transactional.id": topic},
    )
    point = source.randrange(1, _TRANSACTION_POINTS)
    child = Child(children.produce_in_transactions, config, topic, seed, _RECORDS, point)
    told: defaultdict[str, list[set[int]]] = defaultdict(list)
    for kind, *numbers in child.end():
        told[kind].append(set(numbers))
    _check_ended(child)
    outcome = Outcome(killed=child.was_killed, acknowledged=sum(map(len, told["committed"])))
    before = len(cluster.stored(topic))
    with Producer(config) as producer:
        producer.init_transactions(SECONDS)
    records = cluster.read(topic)
    _check_once_and_in_order(records)
    visible = {record.number for record in records}
    for numbers in told["begun"]:
        if numbers & visible not in (set(), numbers):
            raise ChaosError(f"a transaction is visible in part: {sorted(numbers & visible)} of {sorted(numbers)}")
    if missing := set[int]().union(*told["committed"]) - visible:
        raise ChaosError(f"committed records are not in the topic: {sorted(missing)}")
    if extra := set[int]().union(*told["aborted"]) & visible:
        raise ChaosError(f"aborted records are in the topic: {sorted(extra)}")
    _count_payloads(cluster, topic, before, outcome)
    outcome.records = len(records)
    return outcome


def _fenced_producer(cluster: Cluster, seed: int) -> Outcome:
    """A producer is fenced by another one of its transactional id, wherever it is just then."""
    source = random.Random(seed)
    topic = cluster.new_topic()
    config = cluster.config(topic, **{"transactional.id": topic, "linger.ms": source.choice([0, 50])})
    child = Child(children.produce_until_fenced, config, topic, seed, _UNFENCED, source.randrange(2, 12))
    while not child.told and child.listen(0.1):
        pass
    child.listen(source.random())
    with Producer(config) as second:
        second.init_transactions(SECONDS)
        second.begin_transaction()
        second.produce(topic, payload(seed, _UNFENCED, large=True), b"second")
        second.commit_transaction(SECONDS)
    told = child.end()
    _check_ended(child)
    [(name, *last)] = [facts for kind, *facts in told if kind == "fenced"]
    if name != "_FENCED":
        raise ChaosError(f"the producer was told {name}")
    begun = {numbers[0] for kind, *numbers in told if kind == "begun"}
    reports = Counter(numbers[0] for kind, *numbers in told if kind in {"delivered", "failed"})
    unclear = {number for number in begun if reports[number] != 1}
    # The record whose `produce` raised, if one did, has no report.
    if unclear and (unclear != {max(begun)} or reports[max(begun)]):
        raise ChaosError(f"records were not reported once: {sorted(unclear)}")
    committed = {number for kind, *numbers in told if kind == "committed" for number in numbers}
    records = cluster.read(topic)
    _check_once_and_in_order(records)
    visible = {record.number for record in records} - {_UNFENCED}
    if len(visible) == len(records):
        raise ChaosError("the second producer's record is not in the topic")
    if missing := committed - visible:
        raise ChaosError(f"committed records are not in the topic: {sorted(missing)}")
    if (extra := visible - committed) and extra != set(last):
        raise ChaosError(f"a transaction is visible in part: {sorted(extra)} of {last}")
    outcome = Outcome(records=len(records), acknowledged=len(committed))
    _count_payloads(cluster, topic, len(cluster.stored(topic)), outcome)
    return outcome


def _interrupted_producer(cluster: Cluster, seed: int) -> Outcome:
    """A producer is interrupted again and again, and goes on."""
    topic = cluster.new_topic()
    child = Child(children.produce_interrupted, cluster.config(topic), topic, seed, _RECORDS)
    told = Counter(child.end())
    _check_ended(child)
    records = cluster.read(topic)
    _check_once_and_in_order(records)
    visible = {record.number for record in records}
    for number in range(_RECORDS):
        reports = told["delivered", number] + told["failed", number]
        if reports > 1:
            raise ChaosError(f"record {number} was reported {reports} times")
        if told["returned", number] and not reports:
            raise ChaosError(f"record {number} was taken and not reported")
        if told["delivered", number] and number not in visible:
            raise ChaosError(f"record {number} was reported as delivered, and is not in the topic")
    outcome = Outcome(records=len(records), acknowledged=sum(told["delivered", number] for number in range(_RECORDS)))
    _count_payloads(cluster, topic, len(cluster.stored(topic)), outcome)
    if outcome.leftovers:
        raise ChaosError(f"{outcome.leftovers} payloads have no record, though nothing was killed")
    return outcome


def _interrupted_consumer(cluster: Cluster, seed: int) -> Outcome:
    """A consumer is interrupted again and again, and goes on."""
    topic = cluster.new_topic()
    _fill(cluster, topic, seed, _RECORDS)
    config = cluster.config(topic, **{"group.id": topic, "enable.auto.commit": False})
    child = Child(children.consume_interrupted, config, topic, seed, _RECORDS)
    handed_over: list[int] = []
    for kind, *facts in child.end():
        if kind == "got":
            offset, number = facts
            if offset != number:
                raise ChaosError(f"the record at offset {offset} came as number {number}")
            handed_over.append(number)
        elif facts[0] > len(handed_over):
            raise ChaosError(f"offset {facts[0]} was committed when {len(handed_over)} records were handed over")
    _check_ended(child)
    if handed_over != list(range(_RECORDS)):
        raise ChaosError(f"records came as {handed_over}")
    return Outcome(records=_RECORDS, acknowledged=len(handed_over))


def _signalled_consumer(cluster: Cluster, seed: int) -> Outcome:
    """A consumer gets real signals while it waits for records that come one by one, and goes on."""
    source = random.Random(seed)
    topic = cluster.new_topic(2)
    config = cluster.config(topic, **{"group.id": topic, "enable.auto.commit": False})
    child = Child(children.consume_signalled, config, topic, seed, _RECORDS)
    with Producer(cluster.config(topic)) as producer:
        for number in range(_RECORDS):
            value = payload(seed, number, large=source.random() < 0.3)
            producer.produce(topic, value, partition=number % 2)
            producer.flush(SECONDS)
            child.listen(source.random() / 5)
    told = child.end()
    _check_ended(child)
    got = [tuple(facts) for kind, *facts in told if kind == "got"]
    for partition in range(2):
        numbers = [number for place, _, number in got if place == partition]
        if numbers != list(range(partition, _RECORDS, 2)):
            raise ChaosError(f"the records of partition {partition} came as {numbers}")
    if told[-1] != ("committed", _RECORDS // 2, _RECORDS // 2):
        raise ChaosError(f"at the end was committed: {told[-1]}")
    return Outcome(records=_RECORDS, acknowledged=len(got))


def _killed_relay(cluster: Cluster, seed: int) -> Outcome:
    """A relay is killed; the next one goes on where its last transaction ended."""
    source = random.Random(seed)
    partitions = 2
    topic, target = cluster.new_topic(partitions), cluster.new_topic(partitions)
    numbers = _fill(cluster, topic, seed, _RECORDS, partitions=partitions)
    child = Child(children.relay, {**cluster.client}, topic, target, source.randrange(1, _RELAY_POINTS))
    child.end()
    _check_ended(child)
    # Twice: a commit returns before its marks are in all partitions, and the next relay of the name waits for these.
    for _ in range(2):
        stamp(cluster.client, topic, target, until_end=True)
    report = check(cluster.client, target)
    if report.counts or report.records != _RECORDS:
        raise ChaosError(f"{report.records} of {_RECORDS} records were stamped: {dict(report.counts)}")
    stamped: dict[str, Any] = {
        "value.deserializers": "entry-metadata, large-message, bytes",
        "local.path": cluster.config(topic)["local.path"],
    }
    records = cluster.read(target, partitions, **stamped)
    for partition in range(partitions):
        found = [record.number for record in records if record.place.partition == partition]
        if found != [number for (place, _), number in sorted(numbers.items()) if place == partition]:
            raise ChaosError(f"the records of partition {partition} came as {found}")
    return Outcome(records=len(records), acknowledged=len(records), killed=child.was_killed)


def _killed_offload_server(cluster: Cluster, seed: int) -> Outcome:
    """An offload server is killed while payloads are on their way, and comes back."""
    source = random.Random(seed)
    topic = cluster.new_topic()
    with OffloadServer() as server:
        user, password = next(iter(server.users.items()))
        hop: dict[str, Any] = {
            "large.message.payload.store.class": "hop",
            "hop.offload.url": server.url,
            "hop.allow.http": True,
            "hop.username": user,
            "hop.password": password,
            "large.message.store.timeout.ms": 10_000,
        }
        child = Child(children.produce, cluster.config(topic, **hop), topic, seed, _RECORDS, _NEVER)
        child.listen(source.random() / 2)
        server.kill()
        child.listen(source.random() / 2)
        server.restart()
        told = Counter(child.end())
        _check_ended(child)
        if unclear := [number for number in range(_RECORDS) if told["delivered", number] + told["failed", number] != 1]:
            raise ChaosError(f"records were not reported once: {unclear}")
        records = cluster.read(topic, **hop)
        stored = sum(path.is_file() for path in (server.folder / "payloads" / topic).rglob("*"))
    _check_once_and_in_order(records)
    delivered = {number for kind, number in told if kind == "delivered"}
    if delivered != {record.number for record in records}:
        raise ChaosError(f"{len(delivered)} records were delivered, and {len(records)} are in the topic")
    return Outcome(records=len(records), acknowledged=len(delivered), leftovers=stored - len(cluster.references(topic)))


def _group(cluster: Cluster, seed: int, *, kill: bool) -> Outcome:
    """Members of a group are killed or leave, and others take their partitions over."""
    source = random.Random(seed)
    topic = cluster.new_topic(3)
    numbers = _fill(cluster, topic, seed, 3 * _RECORDS, partitions=3)
    config = cluster.config(
        topic,
        **{"group.id": topic, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500},
        **{"auto.commit.interval.ms": 50},
    )
    if source.random() < 0.5:
        config["partition.assignment.strategy"] = "cooperative-sticky"
    point = source.randrange(500, _MEMBER_POINTS) if kill else 0
    first = Child(children.member, config, topic, seed, point, source.randrange(5, 40))
    # Where the second joins alone, it reads all that the first waits for.
    while not first.told and first.listen(0.1):
        pass
    first.listen(source.random())
    second = Child(children.member, config, topic, seed + 1, 0, 10**9)
    told = first.end()
    _check_ended(first)
    got: dict[tuple[int, int], int] = {}
    _note(got, told, {})
    position: dict[int, int] = {}
    for _ in range(int(SECONDS)):
        second.listen(1)
        _note(got, second.told, position)
        if got.keys() == numbers.keys():
            break
    second.kill()
    if got.keys() != numbers.keys():
        raise ChaosError(f"{len(numbers.keys() - got.keys())} of {len(numbers)} records were handed to no member")
    if wrong := [place for place, number in got.items() if numbers[place] != number]:
        raise ChaosError(f"other records came at {wrong}")
    if not first.was_killed:
        (once, twice) = ({fact[1:3] for fact in facts if fact[0] == "got"} for facts in (told, second.told))
        if again := once & twice:
            raise ChaosError(f"records of a member that left came again: {sorted(again)}")
    return Outcome(records=len(numbers), acknowledged=len(got), killed=first.was_killed)


def _note(got: dict[tuple[int, int], int], told: Iterable[Any], position: dict[int, int]) -> None:
    """Note what a member got; within an assignment the offsets of a partition go up."""
    position.clear()
    for kind, *facts in told:
        if kind == "assigned":
            for partition in facts:
                position.pop(partition, None)
        elif kind == "got":
            partition, offset, number = facts
            if offset <= position.get(partition, -1):
                raise ChaosError(f"offset {offset} of partition {partition} came after {position[partition]}")
            position[partition] = offset
            got[partition, offset] = number


def _fill(cluster: Cluster, topic: str, seed: int, count: int, *, partitions: int = 1) -> Mapping[tuple[int, int], int]:
    """Produce records; returns their numbers by partition and offset."""
    source = random.Random(seed)
    numbers: dict[tuple[int, int], int] = {}

    def note(number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                raise ChaosError(f"record {number} was not delivered: {error}")
            numbers[message.partition(), message.offset()] = number

        return delivered

    with Producer(cluster.config(topic)) as producer:
        for number in range(count):
            value = payload(seed, number, large=source.random() < 0.5)
            producer.produce(topic, value, partition=number % partitions, on_delivery=note(number))
        producer.flush(SECONDS)
    if len(numbers) != count:
        raise ChaosError(f"{len(numbers)} of {count} records were delivered")
    return numbers


def _check_once_and_in_order(records: Iterable[Record]) -> None:
    last: dict[bytes | None, int] = {}
    for record in records:
        if record.number <= last.get(record.key, -1):
            raise ChaosError(f"record {record.number} comes after {last[record.key]} of the same key")
        last[record.key] = record.number


def _check_ended(child: Child) -> None:
    if child.process.exitcode != 0 and not child.was_killed:
        raise ChaosError(f"a process ended with {child.process.exitcode}")


def _count_payloads(cluster: Cluster, topic: str, before: int, outcome: Outcome) -> None:
    """Count payloads, all of which have to be whole."""
    stored = cluster.stored(topic)
    outcome.deleted = before - len(stored)
    outcome.leftovers = len(stored.keys() - cluster.references(topic))


def _told(kind: str, play: Round) -> Round:
    def play_once(cluster: Cluster, seed: int) -> Outcome:
        try:
            return play(cluster, seed)
        except ChaosError as error:
            raise ChaosError(error.message, kind, seed) from error
        except SerializationError as error:
            raise ChaosError(f"a record cannot be read: {error}", kind, seed) from error

    play_once.__doc__ = play.__doc__
    return play_once


ROUNDS: Final[Mapping[str, Round]] = {
    kind: _told(kind, play)
    for kind, play in {
        "killed producer": _killed_producer,
        "killed transactions": _killed_transactions,
        "fenced producer": _fenced_producer,
        "interrupted producer": _interrupted_producer,
        "interrupted consumer": _interrupted_consumer,
        "signalled consumer": _signalled_consumer,
        "changing limit": _changing_limit,
        "killed broker": _killed_broker,
        "killed relay": _killed_relay,
        "killed offload server": _killed_offload_server,
        "member leaves": lambda cluster, seed: _group(cluster, seed, kill=False),
        "member killed": lambda cluster, seed: _group(cluster, seed, kill=True),
    }.items()
}
"""The rounds by their kinds."""
