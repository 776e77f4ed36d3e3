"""The server's metrics for ``GET /metrics`` (OpenMetrics, by prometheus_client), without names of users or topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payload_stores.offload_server.errors import RefusedError

METRICS: Final = "/metrics"

# Labels must not contain text from requests: each value would be kept forever.
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
_ENDPOINTS: Final = frozenset({"topic", "msg", "health", "live", "metrics"})
_OTHER: Final = "other"
_NO_ANSWER: Final = "none"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "offload_requests",
            "Requests by method, endpoint and status; the status none is that of connections cut before an answer.",
            ("method", "endpoint", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "offload_request_seconds",
            "Time from a request's header fields to the end of its answer.",
            ("endpoint",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.bytes = Counter(
            "offload_bytes",
            "Bytes of uploads and downloads, as they pass.",
            ("direction",),
            registry=self._registry,
        )
        self.refused_logins = Counter(
            "offload_refused_logins", "Proofs and tokens that were refused.", registry=self._registry
        )
        self.transfers = Gauge(
            "offload_transfers",
            "Uploads and downloads under way.",
            ("direction",),
            registry=self._registry,
        )
        self.store_errors = Counter(
            "offload_store_errors",
            "Calls of the payload store that failed, or took too long.",
            ("operation",),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        for direction in ("upload", "download"):
            # Initialize labels, so that events not yet seen are zero, not missing.
            self.bytes.labels(direction)
            self.transfers.labels(direction)
        for operation in ("upload", "download"):
            self.store_errors.labels(operation)

    async def show(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with all metrics."""
        content = generate_latest(self._registry)  # type: ignore[no-untyped-call]
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode()), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    @contextmanager
    def store(self, operation: str) -> Iterator[None]:
        """Count the errors of a store call, except those caused by the request."""
        try:
            yield
        except RefusedError:
            raise
        except Exception:
            self.store_errors.labels(operation).inc()
            raise


class Metered:
    """ASGI middleware that counts requests.

    Args:
        app: The inner application.
        metrics: The counters.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = _NO_ANSWER

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        first = scope["path"].lstrip("/").partition("/")[0]
        endpoint = first if first in _ENDPOINTS else _OTHER
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        began = time.perf_counter()
        try:
            await self._app(scope, receive, noting)
        finally:
            self._metrics.requests.labels(method, endpoint, status).inc()
            self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - began)
