"""The child of a fork: clients of the parent refuse to work there, and the parent's go on.

Each case is a program, since the child is to end as programs do: librdkafka kills a process that destroys a client
without its threads.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic

SECONDS = 60

# Run in the child: each must raise at once, and `close` return at once.
PROGRAM = """
import asyncio, gc, json, multiprocessing, os, sys, time
from pathlib import Path
import serde_chain
from serde_chain import ForkedClientError

config, topic, way, journal = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])


def refused(*calls):
    for call in calls:
        begun = time.monotonic()
        try:
            step = call()
            if hasattr(step, "__await__"):
                asyncio.run(step)
        except ForkedClientError as error:
            assert isinstance(error, RuntimeError)
            assert f"process {PARENT}" in str(error) and f"process {os.getpid()}" in str(error), error
            assert "spawn" in str(error), error
        else:
            raise AssertionError(f"{call} was not refused")
        assert time.monotonic() - begun < 1


def closed(call):
    begun = time.monotonic()
    step = call()
    if hasattr(step, "__await__"):
        asyncio.run(step)
    assert time.monotonic() - begun < 1


def in_child(work):
    # It ends as programs do.
    if way == "multiprocessing":
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join(30)
        assert child.exitcode == 0, child.exitcode
        return
    child = os.fork()
    if not child:
        work()
        sys.exit(0)  # with all that an interpreter does at its end
    until = time.monotonic() + 30
    while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
        assert time.monotonic() < until, "the child hangs"
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(status[1]) == 0, os.waitstatus_to_exitcode(status[1])


def leave_loop():
    # At its end an interpreter closes the parent's event loop, whose selector both processes share.
    gc.collect()
    os._exit(0)


PARENT = os.getpid()
{body}
print("done")
"""

# Threads of librdkafka draw their first random numbers while they connect, under a lock of OpenSSL's. A fork meanwhile
# copies the lock as taken, and the child's own client waits for it forever (docs/confluent-kafka.md). After a delivery,
# all threads have done so, while the next record is still under way.
PRODUCER = """
reports = []
producer = serde_chain.Producer(config)
producer.produce(topic, {"n": 0}, on_delivery=lambda error, _message: reports.append(error))
assert producer.flush(30) == 0
producer.produce(topic, {"n": 1}, on_delivery=lambda error, _message: reports.append(error))

def use():
    global producer
    assert isinstance(producer, serde_chain.Producer)
    refused(lambda: producer.produce(topic, {"n": 2}), lambda: producer.poll(0), lambda: producer.flush(20),
            lambda: producer.list_topics(), lambda: len(producer), lambda: producer.__enter__())
    closed(producer.close)
    with serde_chain.Producer({**config, "large.message.journal.path": ""}) as own:
        own.produce(topic, {"n": 3})
    del producer
    gc.collect()

in_child(use)
producer.produce(topic, {"n": 4}, on_delivery=lambda error, _message: reports.append(error))
assert producer.flush(30) == 0
assert reports == [None, None, None]
producer.close()
"""

CONSUMER = """
with serde_chain.Producer(config) as producer:
    for number in range(4):
        producer.produce(topic, {"n": number})
consumer = serde_chain.Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
assert consumer.poll(30).value() == {"n": 0}

def use():
    global consumer
    refused(lambda: consumer.poll(1), lambda: consumer.consume(1, 1), lambda: consumer.commit(),
            lambda: consumer.assignment())
    with serde_chain.Consumer({**config, "group.id": topic + "-child", "auto.offset.reset": "earliest"}) as own:
        own.subscribe([topic])
        assert own.poll(30).value() == {"n": 0}
    closed(consumer.close)
    del consumer
    gc.collect()

in_child(use)
assert [consumer.poll(30).value()["n"] for _ in range(3)] == [1, 2, 3]
consumer.commit(asynchronous=False)
consumer.close()
"""

DEAD_LETTERS = """
import confluent_kafka
config = {**config, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": topic + ".dead",
          "group.id": topic, "auto.offset.reset": "earliest"}
raw = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
for value in (b"junk", b'{"n":1}', b"junk", b'{"n":2}'):
    raw.produce(topic, value)
raw.flush(30)
raw.close()
del raw
consumer = serde_chain.Consumer(config)
consumer.subscribe([topic])
assert consumer.poll(30).value() == {"n": 1}
assert consumer._dead_letters._producer is not None

def use():
    refused(lambda: consumer.poll(1))

in_child(use)
assert consumer.poll(30).value() == {"n": 2}
assert consumer.skipped == 2
consumer.close()
"""

SHARE = """
consumer = serde_chain.ShareConsumer({**config, "group.id": topic})
consumer.subscribe([topic])
consumer.poll(0.1)

def use():
    refused(lambda: consumer.poll(1), lambda: consumer.commit_sync(1), lambda: consumer.subscription())
    closed(consumer.close)

in_child(use)
assert consumer.subscription() == [topic]
consumer.close()
"""

ASYNC = """
async def begin():
    producer = serde_chain.AsyncProducer(config)
    consumer = serde_chain.AsyncConsumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    await (await producer.produce(topic, {"n": 1}))
    await consumer.subscribe([topic])
    assert (await consumer.poll(30)).value() == {"n": 1}
    return producer, consumer

def use():
    refused(lambda: producer.produce(topic, {"n": 2}), lambda: producer.flush(1), lambda: consumer.poll(1),
            lambda: consumer.__anext__(), lambda: produce(topic, {"n": 2}), lambda: poll(1))
    closed(producer.close)
    closed(consumer.close)
    leave_loop()

async def end():
    await (await producer.produce(topic, {"n": 3}))
    assert (await consumer.poll(30)).value() == {"n": 3}
    await producer.close()
    await consumer.close()

with asyncio.Runner() as runner:
    producer, consumer = runner.run(begin())
    produce, poll = producer.produce, consumer.poll  # taken before the fork
    in_child(use)
    runner.run(end())
"""

AIOKAFKA = """
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from serde_chain.clients.aiokafka import Consumer, Producer

async def begin():
    server = config["bootstrap.servers"]
    chains = {name: value for name, value in config.items() if name.startswith("value.")}
    producer = Producer(AIOKafkaProducer(bootstrap_servers=server), chains)
    consumer = Consumer(AIOKafkaConsumer(topic, bootstrap_servers=server, auto_offset_reset="earliest"), chains)
    await producer.start()
    await consumer.start()
    await producer.send_and_wait(topic, {"n": 1})
    assert (await consumer.getone()).value == {"n": 1}
    return producer, consumer

def use():
    refused(lambda: producer.send(topic, {"n": 2}), lambda: producer.flush(), lambda: consumer.getone(),
            lambda: consumer.__aenter__(), lambda: produce(topic, {"n": 2}), lambda: poll())
    closed(producer.stop)
    closed(consumer.stop)
    leave_loop()

async def end():
    await producer.send_and_wait(topic, {"n": 3})
    assert (await consumer.getone()).value == {"n": 3}
    await producer.stop()
    await consumer.stop()

with asyncio.Runner() as runner:
    producer, consumer = runner.run(begin())
    produce, poll = producer.send, consumer.getone  # taken before the fork
    in_child(use)
    runner.run(end())
"""

JOURNAL = """
config = {**config, "value.serializers": "json, large-message", "large.message.threshold.bytes": 100,
          "large.message.payload.store.class": "local", "local.path": str(journal.parent / "payloads"),
          "large.message.journal.path": str(journal)}
producer = serde_chain.Producer(config)
producer.produce(topic, {"n": "x" * 1000})

def use():
    before = journal.read_bytes()
    refused(lambda: producer.produce(topic, {"n": "y" * 1000}), lambda: producer.flush(1))
    closed(producer.close)
    assert journal.read_bytes() == before

in_child(use)
producer.produce(topic, {"n": "z" * 1000})
assert producer.flush(30) == 0
producer.close()
from serde_chain.clients.journal import Journal
with Journal(journal) as again:
    assert again.left == ()
"""

AUTO = """
config = {**config, "value.serializers": "json, large-message", "large.message.threshold.bytes": "auto",
          "large.message.payload.store.class": "kafka"}
producer = serde_chain.Producer(config)
producer.produce(topic, {"n": "x" * 3_000_000})
assert producer.flush(30) == 0

def use():
    refused(lambda: producer.produce(topic, {"n": 1}))

in_child(use)
producer.produce(topic, {"n": "x" * 3_000_000})
assert producer.flush(30) == 0
producer.close()
"""

STORE = """
from payload_stores import open_store
store = open_store("kafka", {"bootstrap.servers": config["bootstrap.servers"]})
reference = store.publish(topic, b"payload")
assert store.download(reference) == b"payload"

def use():
    assert store.download(reference) == b"payload", "by a client that the child makes"
    assert store.download(store.publish(topic, b"another")) == b"another"
    store.close()

in_child(use)
assert store.download(store.publish(topic, b"third")) == b"third"
store.close()
"""

# Methods taken before the fork, as by atexit.register(producer.flush).
TAKEN = """
import atexit
settings = {**config, "group.id": topic, "auto.offset.reset": "earliest"}

class Counting(serde_chain.Producer):
    def __init__(self, config):
        super().__init__(config)
        self._count = 1

    def count(self):
        return self._count

def made():
    yield serde_chain.Producer(config)
    yield serde_chain.Producer({**config, "enable.idempotence": True})
    yield serde_chain.Producer({**config, "value.serializers": "json, large-message", "local.path": str(journal.parent),
                                "large.message.payload.store.class": "local"})
    yield Counting(config)

producers = list(made())
for producer in producers:
    producer.produce(topic, {"n": 1})
    assert producer.flush(30) == 0
consumer = serde_chain.Consumer(settings)
consumer.subscribe([topic])
for _ in range(3):
    assert consumer.poll(30).value() == {"n": 1}  # the fourth may be in hand
produces = [producer.produce for producer in producers]
flushes = [producer.flush for producer in producers]
closes = [producer.close for producer in producers] + [consumer.close]
poll, consume = consumer.poll, consumer.consume
for flush in flushes:
    atexit.register(flush)

def use():
    refused(*[lambda f=f: f(topic, {"n": 2}) for f in produces], *[lambda f=f: f(20) for f in flushes],
            *[lambda f=f: f() for f in closes], lambda: poll(1), lambda: consume(1, 1))
    assert producers[-1].count() == 1
    assert not hasattr(producers[-1], "other")

    def grandchild():
        refused(lambda: produces[0](topic, {"n": 2}), lambda: producers[0].flush(1))

    in_child(grandchild)

in_child(use)
assert poll(30).value() == {"n": 1}
for produce, flush in zip(produces, flushes):
    produce(topic, {"n": 3})
    assert flush(30) == 0
for close in closes:
    close()
"""

GARBAGE = """
import confluent_kafka
assert serde_chain.Producer, "whose module is loaded now"
servers = {"bootstrap.servers": config["bootstrap.servers"]}
gc.disable()
for client in (confluent_kafka.Producer(servers), confluent_kafka.Consumer({**servers, "group.id": topic})):
    client.list_topics(timeout=30)
    circle = [client]
    circle.append(circle)
del circle, client

def use():
    assert not gc.isenabled()
    gc.enable()
    gc.collect()

in_child(use)
gc.enable()
gc.collect()
"""

CASES = {
    "producer": PRODUCER,
    "consumer": CONSUMER,
    "dead letters": DEAD_LETTERS,
    "share consumer": SHARE,
    "asyncio": ASYNC,
    "aiokafka": AIOKAFKA,
    "journal": JOURNAL,
    "limits of topics": AUTO,
    "store kafka": STORE,
    "methods taken before": TAKEN,
    "garbage": GARBAGE,
}


@pytest.mark.parametrize("way", ["os.fork", pytest.param("multiprocessing", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", CASES)
def test_the_child_of_a_fork(  # noqa: PLR0917, fixtures
    request: pytest.FixtureRequest, broker: KafkaBroker, new_topic: NewTopic, tmp_path: Path, name: str, way: str
) -> None:
    topic = new_topic()
    if name == "dead letters":
        broker.create_topic(f"{topic}.dead")
    if name == "share consumer":
        broker = request.getfixturevalue("share_broker")
    config: dict[str, Any] = {
        **broker.client_config(),
        "value.serializers": "json",
        "value.deserializers": "json",
        "log_level": 0,
        "linger.ms": 0,
    }
    program = PROGRAM.replace("{body}", CASES[name])
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(config), topic, way, str(tmp_path / "journal")],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"
