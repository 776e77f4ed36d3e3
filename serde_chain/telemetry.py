"""OpenTelemetry traces and metrics, for programs that use it.

A program that sets up OpenTelemetry has imported its API. For all others, the cost is one dictionary lookup per large
message, and nothing is imported. Spans and metrics follow the semantic conventions for messaging; names that these do
not define begin with ``serde_chain.``.

=====================================  =================================================================================
span ``offload TOPIC``                 upload of a payload, in the trace of its record
span ``fetch TOPIC``                   download and verification of a payload, likewise
serde_chain.payload.duration           seconds of both; the count is that of payloads, failures included
serde_chain.payload.size               bytes of both
serde_chain.payload.active             uploads and downloads in flight
serde_chain.cache.requests             payloads requested from a cache, by outcome: hit or miss
messaging.client.sent.messages         records passed to the Kafka client
messaging.client.consumed.messages     records passed to the program
serde_chain.record.retries             retried records: refused for their size, or temporarily unreadable
serde_chain.record.failures            records that could not be sent or read, by the kind of error
serde_chain.record.skipped             skipped records among these
serde_chain.record.dead_letters        dead-lettered records among these
=====================================  =================================================================================

References are secret if readers may follow those of others, so no span contains them. Neither does a span contain
payloads, keys or error messages, which may name a reference; the logs have these.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from serde_chain.record import Context, RecordContext, get_header

if TYPE_CHECKING:
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.trace import Link

T = TypeVar("T")
Attributes: TypeAlias = dict[str, str | int]

# W3C Trace Context, section 3.3.1.5: the least that a vendor should propagate; longer values are ignored.
_MOST_BYTES: Final = 512
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
# The semantic conventions' advice for messaging.client.operation.duration, and minutes for large payloads.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
_BYTES: Final = tuple(1 << power for power in range(10, 33, 2))


class Observer(Protocol):
    """Observes one upload or download. Made in the record's thread, called in the thread of the work."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> T:
        """Do the work and return its result."""


def _unobserved(work: Callable[..., T], /, *args: Any) -> T:
    return work(*args)


def observer(
    operation: Literal["offload", "fetch"], ctx: Context | None, size: int | None, **facts: str | None
) -> Observer:
    """Make the observer of an upload or download, in the thread of the record, whose trace it joins.

    Args:
        operation: Upload or download.
        ctx: The record around the payload. The W3C trace context in its headers takes precedence over the current one.
        size: Bytes of the payload; None if unknown in advance.
        **facts: Further attributes, by the last part of their names: ``store``, ``id``.

    Example:
        >>> observer("fetch", None, 7, store="memory")(str.encode, "payload")
        b'payload'
    """
    if not _is_in_use():
        return _unobserved
    telemetry = _open_telemetry()
    attributes: Attributes = {"messaging.system": "kafka", "messaging.operation.name": operation}
    attributes |= {f"serde_chain.{name}": fact for name, fact in facts.items() if fact is not None}
    if ctx is not None:
        attributes |= {"messaging.destination.name": str(ctx.topic), "serde_chain.field": str(ctx.field)}
    return partial(_observed, telemetry, attributes, _place(ctx), size, *telemetry.trace_of(ctx))


class ClientTelemetry:
    """Counts the records of a client. This class does nothing.

    Attributes:
        is_on: Whether the calls have an effect. If not, a client may use a faster path without them.

    Example:
        >>> ClientTelemetry().sent("alerts")
    """

    is_on = False

    def sent(self, topic: str, count: int = 1) -> None:
        """Records were passed to the Kafka client."""

    def consumed(self, topic: str, count: int = 1) -> None:
        """Records were passed to the program."""

    def retried(self, topic: str) -> None:
        """A record is sent or read again."""

    def failed(self, topic: str, error: BaseException | None) -> None:
        """A record could not be sent or read; counts each attempt."""

    def skipped(self, topic: str, error: BaseException | None) -> None:
        """An undecodable record was skipped."""

    def dead_lettered(self, topic: str, error: BaseException | None) -> None:
        """An undecodable record is in the dead-letter topic."""


_SILENT: Final = ClientTelemetry()


def client_telemetry() -> ClientTelemetry:
    """The counters of records; a client gets them when it is made.

    Returns:
        One object for all clients.

    Example:
        >>> client_telemetry().retried("alerts")
    """
    return _open_telemetry().client if _is_in_use() else _SILENT


def count_cache(store: str, outcome: str) -> None:
    """Count a payload requested from a cache.

    Args:
        store: Scheme of the store behind it.
        outcome: ``hit`` or ``miss``.

    Example:
        >>> count_cache("memory", "hit")
    """
    if _is_in_use():
        _open_telemetry().cache.add(1, {"serde_chain.store": store, "serde_chain.outcome": outcome})


def _is_in_use() -> bool:
    return "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules


class _OpenTelemetry:
    """The API and the instruments; a provider that is set later takes effect then."""

    def __init__(self) -> None:
        from importlib.metadata import version

        from opentelemetry import context, metrics, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.context = context
        self.trace = trace
        scope = "serde_chain", version("serde-chain")
        self.tracer = trace.get_tracer(*scope)
        self._propagator = TraceContextTextMapPropagator()
        meter = metrics.get_meter(*scope)
        self.duration = meter.create_histogram(
            "serde_chain.payload.duration",
            unit="s",
            description="Time to publish or to download a payload",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self.size = meter.create_histogram(
            "serde_chain.payload.size",
            unit="By",
            description="Sizes of payloads that were published or downloaded",
            explicit_bucket_boundaries_advisory=_BYTES,
        )
        self.active = meter.create_up_down_counter(
            "serde_chain.payload.active", unit="{payload}", description="Uploads and downloads in flight"
        )
        self.cache = meter.create_counter(
            "serde_chain.cache.requests", unit="{payload}", description="Payloads requested from a cache"
        )
        self.client: ClientTelemetry = _Counters(meter)

    def trace_of(self, ctx: Context | None) -> tuple[TraceContext, Sequence[Link]]:
        """The context of the work, and links to others.

        The span joins the record's own trace, which then shows the whole life of the record; the caller's is linked.
        """
        current = self.context.get_current()
        values = {name: get_header(ctx, name) or b"" for name in _TRACE_HEADERS}
        carrier = {
            name: value.decode("ascii", "replace") for name, value in values.items() if 0 < len(value) <= _MOST_BYTES
        }
        joined = self._propagator.extract(carrier, current) if carrier else current
        mine, other = (self.trace.get_current_span(each).get_span_context() for each in (joined, current))
        return joined, [self.trace.Link(other)] if other.is_valid and other != mine else []


@cache
def _open_telemetry() -> _OpenTelemetry:
    return _OpenTelemetry()


def _observed(  # noqa: PLR0917, the facts, then the call
    telemetry: _OpenTelemetry,
    attributes: Attributes,
    place: Attributes,
    size: int | None,
    joined: TraceContext,
    links: Sequence[Link],
    work: Callable[..., T],
    /,
    *args: Any,
) -> T:
    """An upload or download within a span."""
    topic = attributes.get("messaging.destination.name", "")
    known: Attributes = {} if size is None else {"messaging.message.body.size": size}
    span = telemetry.tracer.start_span(
        f"{attributes['messaging.operation.name']} {topic}".strip(),
        context=joined,
        attributes={**attributes, **place, **known},
        links=links,
    )
    # Not only the span: the working thread may lack the caller's context.
    token = telemetry.context.attach(telemetry.trace.set_span_in_context(span, joined))
    began = time.monotonic()
    failure: Attributes = {}
    telemetry.active.add(1, attributes)
    try:
        result = work(*args)
    except BaseException as error:
        failure = _kind(error)
        span.set_attributes(failure)
        span.set_status(telemetry.trace.StatusCode.ERROR)
        raise
    else:
        if size is None and (size := _size_of(result)) is not None:
            span.set_attribute("messaging.message.body.size", size)
        return result
    finally:
        telemetry.active.add(-1, attributes)
        telemetry.duration.record(time.monotonic() - began, {**attributes, **failure})
        if size is not None:
            telemetry.size.record(size, {**attributes, **failure})
        telemetry.context.detach(token)
        span.end()


class _Counters(ClientTelemetry):
    """Counts the records of all clients."""

    is_on = True

    def __init__(self, meter: Any) -> None:
        def counter(name: str, description: str) -> Any:
            return meter.create_counter(name, unit="{message}", description=description)

        self._sent = counter("messaging.client.sent.messages", "Records handed to the Kafka client")
        self._consumed = counter("messaging.client.consumed.messages", "Records handed to the program")
        self._retries = counter("serde_chain.record.retries", "Records that are sent or read again")
        self._failures = counter("serde_chain.record.failures", "Records that could not be sent or read")
        self._skipped = counter("serde_chain.record.skipped", "Skipped records")
        self._dead_letters = counter("serde_chain.record.dead_letters", "Records in the dead-letter topic")

    def sent(self, topic: str, count: int = 1) -> None:
        self._sent.add(count, {**_of(topic), "messaging.operation.name": "send"})

    def consumed(self, topic: str, count: int = 1) -> None:
        self._consumed.add(count, {**_of(topic), "messaging.operation.name": "poll"})

    def retried(self, topic: str) -> None:
        self._retries.add(1, _of(topic))

    def failed(self, topic: str, error: BaseException | None) -> None:
        self._failures.add(1, {**_of(topic), **_kind(error)})

    def skipped(self, topic: str, error: BaseException | None) -> None:
        self._skipped.add(1, {**_of(topic), **_kind(error)})

    def dead_lettered(self, topic: str, error: BaseException | None) -> None:
        self._dead_letters.add(1, {**_of(topic), **_kind(error)})


def _of(topic: str) -> Attributes:
    return {"messaging.system": "kafka", "messaging.destination.name": topic}


def _place(ctx: Context | None) -> Attributes:
    """The record's position, for spans; it has too many values for metrics."""
    if not isinstance(ctx, RecordContext) or ctx.partition is None:
        return {}
    partition: Attributes = {"messaging.destination.partition.id": str(ctx.partition)}
    return partition if ctx.offset is None else {**partition, "messaging.kafka.offset": ctx.offset}


def _size_of(result: object) -> int | None:
    from payload_stores.records import StoredRecord  # most programs have neither records in stores nor OpenTelemetry

    payload = result.value if isinstance(result, StoredRecord) else result
    return len(payload) if isinstance(payload, (bytes, bytearray, memoryview)) else None


def _kind(error: BaseException | None) -> Attributes:
    # In a chain, an error's class has the name of the store's own class, which users search for.
    return {"error.type": "_OTHER" if error is None else type(error).__qualname__}
