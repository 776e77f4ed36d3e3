"""Programs that use OpenTelemetry: its providers are set once per process. Each prints what the exporters got.

Run as ``python -m tests.telemetry.program NAME BOOTSTRAP TOPIC``.
"""

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from opentelemetry import metrics, propagate, trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.propagators.textmap import Setter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from payload_stores import PayloadAccessDeniedError, PayloadNotFoundError
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import Consumer, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.clients.aiokafka import Consumer as Reader
from serde_chain.clients.aiokafka import Producer as Adapter
from serde_chain.record import header_pairs
from serde_chain.telemetry import client_telemetry

LARGE = bytes(2_000_000)
SECONDS = 60.0

SPANS = InMemorySpanExporter()
READER = InMemoryMetricReader()


def set_up() -> trace.Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([READER]))
    return trace.get_tracer("program")


def settings(store: object) -> dict[str, object]:
    return {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message",
        "large.message.payload.store.class": store,
    }


def chains(tracer: trace.Tracer, *_: str) -> dict[str, Any]:
    """Payloads go up and down in another thread; one upload and one download fail."""
    store = FaultyStore(MemoryStore())
    store.configure({})
    writer, reader = SerializerChain.from_config(settings(store)), DeserializerChain.from_config(settings(store))
    headers: list[Any] = []
    with tracer.start_as_current_span("origin"):
        propagate.inject(headers, setter=Headers())
    with tracer.start_as_current_span("caller"):
        ctx = RecordContext("alerts", "value", list(headers), b"key")
        value = elsewhere(writer.begin(LARGE, ctx))
        written = list(header_pairs(ctx))
        reading = RecordContext("alerts", "value", [*written], b"key", 3, None, 17)
        elsewhere(reader.begin(value, reading))
        plain = RecordContext("alerts", "value", [])
        elsewhere(writer.begin(LARGE, plain))
        writer(b"small", RecordContext("alerts", "value", []))
        store.fail(PayloadNotFoundError("there is no s3://bucket/secret", reference="s3://bucket/secret"))
        missing = reader.begin(value, RecordContext("alerts", "value", [*written], b"key"))
        with suppress(PayloadNotFoundError):
            elsewhere(missing)
    return {"reference": bytes(value).decode()}


def elsewhere(step: Any) -> Any:
    """Run a transfer in a thread that knows nothing of the caller's context."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(step.run())
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(SECONDS)
    if errors:
        raise errors[0]
    return step.resume(results[0])


class Headers(Setter[list[Any]]):
    """How OpenTelemetry writes Kafka's headers."""

    def set(self, carrier: list[Any], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


def cache(_tracer: trace.Tracer, *_: str) -> dict[str, Any]:
    """A payload is read three times, by way of a cache."""
    config = {**settings("memory"), "large.message.store.cache.bytes": 10_000_000}
    writer, reader = SerializerChain.from_config(config), DeserializerChain.from_config(config)
    ctx = RecordContext("alerts", "value", [])
    value = writer(LARGE, ctx)
    for _time in range(3):
        reader(value, RecordContext("alerts", "value", list(header_pairs(ctx))))
    return {}


def calls(_tracer: trace.Tracer, *_: str) -> dict[str, Any]:
    """What a client tells of its records."""
    client = client_telemetry()
    client.sent("alerts")
    client.sent("alerts", 2)
    client.consumed("alerts", 5)
    client.retried("alerts")
    client.failed("alerts", PayloadNotFoundError("gone"))
    client.skipped("alerts", PayloadNotFoundError("gone"))
    client.dead_lettered("alerts", None)
    return {"is_on": client.is_on}


def clients(tracer: trace.Tracer, bootstrap: str, topic: str) -> dict[str, Any]:
    """Producer and Consumer, as they are."""
    return travel(tracer, bootstrap, topic)


def instrumented(tracer: trace.Tracer, bootstrap: str, topic: str) -> dict[str, Any]:
    """The same beside OpenTelemetry's instrumentation of confluent_kafka."""
    ConfluentKafkaInstrumentor().instrument()
    return travel(tracer, bootstrap, topic)


def proxied(tracer: trace.Tracer, bootstrap: str, topic: str) -> dict[str, Any]:
    """The same with single clients instrumented."""
    return travel(
        tracer,
        bootstrap,
        topic,
        ConfluentKafkaInstrumentor.instrument_producer,
        ConfluentKafkaInstrumentor.instrument_consumer,
    )


def beside_aiokafkas(tracer: trace.Tracer, bootstrap: str, topic: str) -> dict[str, Any]:
    """The adapter around aiokafka's clients, beside their instrumentation."""
    AIOKafkaInstrumentor().instrument()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a young broker has no coordinator yet

    async def main() -> list[Any]:
        config = settings("memory")
        async with Adapter(AIOKafkaProducer(bootstrap_servers=bootstrap), config) as producer:
            with tracer.start_as_current_span("program"):
                deliveries = [await producer.send(topic, value) for value in (LARGE, b"small")]
                for delivery in deliveries:
                    await delivery
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
        async with Reader(consumer, config) as reader:
            records = [await reader.getone() for _ in range(2)]
        return [([name for name, _ in record.headers], len(record.value or b"")) for record in records]

    return {"came": asyncio.run(main())}


def troubles(_tracer: trace.Tracer, bootstrap: str, topic: str) -> dict[str, Any]:
    """An upload fails, a payload is damaged and passed over, and a store is not there for a moment."""
    logging.getLogger("serde_chain").setLevel(logging.ERROR)  # what is passed over is logged
    store = FaultyStore(MemoryStore())
    store.configure({})
    config = {"bootstrap.servers": bootstrap, "log_level": 0, **settings(store)}
    store.fail(PayloadAccessDeniedError("no"))
    with Producer(config) as producer:
        for _ in range(4):
            producer.produce(topic, LARGE, on_delivery=lambda _error, _message: None)
    groups = {"group.id": topic, "auto.offset.reset": "earliest", "serde.error.policy": "skip"}
    with Consumer({**config, **groups, "large.message.downloads.in.flight": 1}) as consumer:
        consumer.subscribe([topic])
        store.damage()
        came, until = 0, time.monotonic() + SECONDS
        while came < 2 and time.monotonic() < until:
            message = consumer.poll(1.0)
            came += message is not None
        return {"came": came, "skipped": consumer.skipped}


def same(client: Any) -> Any:
    return client


def travel(
    tracer: trace.Tracer,
    bootstrap: str,
    topic: str,
    of_producer: Callable[[Any], Any] = same,
    of_consumer: Callable[[Any], Any] = same,
) -> dict[str, Any]:
    """A large record, a small one, and one with a header go to the broker and come back."""
    config = {"bootstrap.servers": bootstrap, "log_level": 0, **settings("memory")}
    delivered: list[Any] = []
    own = Producer(config)
    producer = of_producer(own)
    with tracer.start_as_current_span("program"):
        for value, headers in ((LARGE, None), (b"small", None), (LARGE, [("band", b"g")])):
            producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error), headers=headers)
        producer.flush(SECONDS)
    own.close()
    reader = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer = of_consumer(reader)
    consumer.subscribe([topic])
    came: list[Any] = []
    until = time.monotonic() + SECONDS
    while len(came) < 3 and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None:
            came.append(([name for name, _ in message.headers() or ()], len(message.value())))
    reader.close()
    return {"delivered": [str(error) for error in delivered], "came": came}


def plain(span: ReadableSpan) -> dict[str, Any]:
    context, parent = span.get_span_context(), span.parent
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": context.trace_id if context else None,
        "id": context.span_id if context else None,
        "parent": parent.span_id if parent else None,
        "links": [link.context.span_id for link in span.links],
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
        "description": span.status.description,
        "events": [event.name for event in span.events],
    }


def point(data: Any) -> dict[str, Any]:
    if isinstance(data, HistogramDataPoint):
        return {"attributes": dict(data.attributes or {}), "count": data.count, "sum": data.sum}
    assert isinstance(data, NumberDataPoint)
    return {"attributes": dict(data.attributes or {}), "value": data.value}


def collected() -> Mapping[str, Any]:
    data = READER.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    return {
        metric.name: {
            "scope": scope.scope.name,
            "unit": metric.unit,
            "points": [point(each) for each in metric.data.data_points],
        }
        for scope in scopes
        for metric in scope.metrics
    }


def main(name: str, *arguments: str) -> None:
    programs = {
        each.__name__: each
        for each in (cache, chains, calls, clients, instrumented, proxied, beside_aiokafkas, troubles)
    }
    facts = programs[name](set_up(), *arguments)
    print(json.dumps({**facts, "spans": [plain(span) for span in SPANS.get_finished_spans()], "metrics": collected()}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
