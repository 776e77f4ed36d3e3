"""The pages: requests, and their responses."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import click
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from payload_stores.errors import ContextualError
from serde_chain.catalogue import DESERIALIZE
from serde_chain.cli.browse.payloads import Payloads, blocks
from serde_chain.cli.browse.preview import MOST_BYTES, Image, Preview, Previews, hex_dump
from serde_chain.cli.browse.topic import AbandonedError, Patience, Row, Topic, asked
from serde_chain.cli.records import RecordUnavailableError
from serde_chain.cli.values import as_json, file_name, images_in, suffix_of
from serde_chain.clients.client_chains import MAX_POLL_INTERVAL
from serde_chain.clients.event_loop import in_daemon_thread
from serde_chain.config import resolve, with_settings
from serde_chain.errors import SerializationError
from serde_chain.stages.large_message.options import TIMEOUT
from serde_chain.wire.large_fields import split

__all__ = ["Pages", "Seen"]

_log = logging.getLogger("serde_chain")

T = TypeVar("T")

# Concurrent readers of the topic; further requests wait.
_AT_ONCE: Final = 4
_HEAD: Final = 1024
_SUFFIX_HEAD: Final = 16
_MOST_FIELDS: Final = 100
_CLOSING_S: Final = 3.0
_NUMBER: Final = re.compile("[0-9]{1,19}")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Seen(NamedTuple):
    """Whether a reference leads to its payload.

    Attributes:
        text: The text to show.
        kind: ``good``, ``bad`` or ``unknown``.
    """

    text: str
    kind: str


class _Record(NamedTuple):
    """A fetched and decoded record.

    Attributes:
        message: The raw record.
        seen: The result of :meth:`Topic.describe`.
        preview: Its value; None if undecodable.
        problem: The reason if it is undecodable.
    """

    message: Any
    seen: dict[str, Any]
    preview: Preview | None
    problem: str | None


class Pages:
    """The application, without its guard.

    Args:
        config: Flat configuration.
        topic: The topic.
        timeout_s: Maximum wait for the broker, a store, or a page's data from either, in seconds.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: The extra of a stage or store is not installed.
    """

    def __init__(self, config: Mapping[str, object], topic: str, timeout_s: float = 10.0) -> None:
        limits = TIMEOUT.read(config), int(timeout_s * 1000), MAX_POLL_INTERVAL.read(config) // 2
        config = with_settings(config, {TIMEOUT.name: min(limits)})
        self._topic = Topic(config, topic, timeout_s)
        self._timeout_s = timeout_s
        self._chains = {
            "key": [item.label for item in resolve(config).of(DESERIALIZE, is_key=True)],
            "value": [item.label for item in resolve(config).of(DESERIALIZE, is_key=False)],
        }
        self._templates = Environment(
            loader=PackageLoader("serde_chain.cli.browse"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters |= {"time": _time, "cut": _cut, "stored": _stored_bytes}
        self._style = files("serde_chain.cli.browse").joinpath("style.css").read_text(encoding="utf-8")
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._busy = 0
        self._changed = threading.Condition()
        self._payloads = Payloads(config)
        try:
            self._previews = Previews(config)
        except BaseException:
            self._payloads.close()
            raise
        record = "/records/{partition}/{offset}"
        self.app = Starlette(
            routes=[
                Route("/", self._list),
                Route("/style.css", self._style_sheet),
                Route("/favicon.ico", _no_icon),
                Route(record, self._show),
                Route(f"{record}/image", self._image),
                Route(f"{record}/field", self._field),
                Route(f"{record}/value", self._value),
                Route(f"{record}/stored", self._stored),
                Route(f"{record}/payload", self._payload),
            ],
            exception_handlers={
                ContextualError: self._failed,
                click.UsageError: self._misused,
                AbandonedError: _abandoned,
                HTTPException: self._absent,
                Exception: self._broken,
            },
        )

    def check(self) -> None:
        """Check that the topic exists; errors as in :meth:`Topic.check`."""
        self._topic.check()

    def close(self) -> None:
        """Wait a few seconds at most for running work, and close the stores."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, _CLOSING_S)
        self._previews.close()
        self._payloads.close()

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        wanted = asked(query)
        newer = {"newer": True, "older": False}.get(query.get("to", ""))
        page = await self._do(
            request, lambda patience: self._topic.page(wanted, patience, at=query.get("at", ""), newer=newer)
        )
        is_checked = "check" in query
        seen = await self._see_all(page.rows) if is_checked else {}
        asked_for = {name: query[name] for name in ("partition", "offsets", "from", "key") if query.get(name)}
        here = {**asked_for, **{name: query[name] for name in ("at", "to") if query.get(name)}}
        checked = {"check": "1"} if is_checked else {}

        def link(**more: str) -> str:
            return f"/?{urlencode({**asked_for, **checked, **more})}"

        return self._render(
            "list.html",
            page=page,
            seen=seen,
            form={name: query.get(name, "") for name in ("partition", "offsets", "from", "key")},
            older=link(at=page.older, to="older") if page.older else None,
            newer=link(at=page.newer, to="newer") if page.newer else None,
            check=None if is_checked else f"/?{urlencode({**here, 'check': '1'})}",
        )

    async def _show(self, request: Request) -> Response:
        partition, offset = _place(request)
        record = await self._do(request, lambda patience: self._read(partition, offset, patience))
        value = record.seen["value"]
        reference, size = value.get("reference"), value.get("payload bytes")
        head, presence = None, None
        if reference is not None:
            head, presence = await asyncio.gather(self._head(reference), self._see(reference, size))
        stored = record.message.value()
        return self._render(
            "record.html",
            seen=record.seen,
            fields=_fields(value),
            presence=presence,
            chains=self._chains,
            preview=record.preview,
            problem=record.problem,
            stored=None if stored is None else hex_dump(stored),
            payload=None if head is None else hex_dump(head),
        )

    async def _image(self, request: Request) -> Response:
        partition, offset = _place(request)
        record = await self._do(request, lambda patience: self._read(partition, offset, patience))
        field = request.query_params.get("field", "")
        images = [] if record.preview is None else record.preview.images
        for image in images:
            if image.name == field:
                if image.media_type is not None and "save" not in request.query_params:
                    return Response(image.shown, media_type=image.media_type)
                return _download(image.data, file_name(record.message, image.suffix))
        raise HTTPException(404, record.problem or "the value has no such image")

    async def _field(self, request: Request) -> Response:
        partition, offset = _place(request)
        try:
            path = split(request.query_params.get("path", ""))
        except ValueError:
            raise HTTPException(404, "the value has no such field") from None

        def opened(patience: Patience) -> tuple[Any, bytes | None]:
            message = self._topic.record(partition, offset, patience)
            key = message.key()
            content = self._previews.field(message, path, patience)
            message.set_key(key)
            return message, content

        message, content = await self._do(request, opened)
        if content is None:
            raise HTTPException(404, "the value has no such field")
        image = next((Image(*found) for found in images_in(content)), None)
        if image is not None and image.media_type is not None and "save" not in request.query_params:
            return Response(content, media_type=image.media_type)
        return _download(content, file_name(message, suffix_of(content[:_SUFFIX_HEAD])))

    async def _value(self, request: Request) -> Response:
        partition, offset = _place(request)

        def saved(patience: Patience) -> tuple[bytes, str]:
            record = self._read(partition, offset, patience, fields=True)
            if record.preview is None:
                raise HTTPException(404, record.problem or "")
            return _as_file(record.message, record.preview.value)

        return _download(*await self._do(request, saved))

    async def _stored(self, request: Request) -> Response:
        partition, offset = _place(request)
        message = await self._do(request, lambda patience: self._topic.record(partition, offset, patience))
        data = message.value() or b""
        return _download(data, file_name(message, suffix_of(data[:_SUFFIX_HEAD])))

    async def _payload(self, request: Request) -> Response:
        partition, offset = _place(request)
        message = await self._do(request, lambda patience: self._topic.record(partition, offset, patience))
        reference = self._topic.describe(message)["value"].get("reference")
        if reference is None:
            raise HTTPException(404, "the record refers to no payload")
        file = await in_daemon_thread(self._payloads.open, self._topic.name, reference)
        try:
            head = await in_daemon_thread(file.read, _SUFFIX_HEAD)
        except BaseException:
            file.close()
            raise
        headers = _attached(file_name(message, suffix_of(head)))
        if request.method == "HEAD":  # the body is not needed
            await in_daemon_thread(file.close)
            return Response(media_type="application/octet-stream", headers=headers)
        return StreamingResponse(blocks(head, file), media_type="application/octet-stream", headers=headers)

    async def _style_sheet(self, _request: Request) -> Response:
        return Response(self._style, media_type="text/css")

    async def _do(self, request: Request, work: Callable[[Patience], T]) -> T:
        """Read the topic in a thread, while the client waits for it."""
        patience = Patience(self._timeout_s)
        watching = asyncio.ensure_future(_watch(request, patience))
        try:
            async with self._turns:
                patience.check()  # the browser may have disconnected while it was queued
                return await in_daemon_thread(self._counted, work, patience)
        finally:
            patience.is_over = True
            watching.cancel()

    def _counted(self, work: Callable[[Patience], T], patience: Patience) -> T:
        with self._changed:
            self._busy += 1
        try:
            return work(patience)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _read(self, partition: int, offset: int, patience: Patience, *, fields: bool = False) -> _Record:
        message = self._topic.record(partition, offset, patience)
        seen = self._topic.describe(message)
        stored, key = message.value(), message.key()
        preview, problem = None, None
        size = max(seen["value"].get("payload bytes", 0), seen["value"].get("bytes", 0))
        if size > MOST_BYTES:
            problem = f"the value has {size:,} bytes, but only up to {MOST_BYTES:,} are decoded here"
        else:
            try:
                preview = self._previews.read(message, patience, fields=fields)
            except SerializationError as error:
                problem = error.message
            except RecursionError:
                problem = "the value is nested too deeply to be shown"
        message.set_value(stored)
        message.set_key(key)
        return _Record(message, seen, preview, problem)

    async def _head(self, reference: str) -> bytes | None:
        try:
            return await in_daemon_thread(self._payloads.head, self._topic.name, reference, _HEAD)
        except ContextualError as error:
            _log.debug("the beginning of a payload cannot be shown: %s", error)  # the result of `_see` is shown
            return None

    async def _see_all(self, rows: list[Row]) -> dict[str, Seen]:
        sizes = {row.value["reference"]: row.value.get("payload bytes") for row in rows if "reference" in row.value}
        seen = await asyncio.gather(*(self._see(reference, size) for reference, size in sizes.items()))
        return dict(zip(sizes, seen, strict=True))

    async def _see(self, reference: str, size: int | None) -> Seen:
        try:
            is_there = await in_daemon_thread(self._payloads.see, self._topic.name, reference, size)
        except ContextualError as error:
            return Seen(error.message, "bad")
        return Seen("yes", "good") if is_there else Seen("not asked: only a download would tell", "unknown")

    def _render(self, template: str, status: int = 200, **facts: Any) -> Response:
        text = self._templates.get_template(template).render(topic=self._topic.name, **facts)
        return Response(text.encode("utf-8", "replace"), status, media_type="text/html")

    async def _failed(self, _request: Request, error: Any) -> Response:
        is_absent = isinstance(error, RecordUnavailableError) and not error.transient
        return self._render("message.html", 404 if is_absent else 502, text=str(error))

    async def _misused(self, _request: Request, error: Any) -> Response:
        return self._render("message.html", 400, text=error.format_message())

    async def _absent(self, _request: Request, error: Any) -> Response:
        return self._render("message.html", error.status_code, text=error.detail)

    async def _broken(self, request: Request, error: Any) -> Response:
        # Texts of foreign errors may contain anything.
        _log.error("the page %s failed: %s", request.url.path, type(error).__name__)
        return self._render("message.html", 500, text=f"This page failed: {type(error).__name__}")


async def _no_icon(_request: Request) -> Response:
    return Response(status_code=204)  # browsers request one


async def _abandoned(_request: Request, _error: Exception) -> Response:
    return Response(status_code=503)  # the client is gone


async def _watch(request: Request, patience: Patience) -> None:
    """Stop the work when the browser disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    patience.is_over = True


def _place(request: Request) -> tuple[int, int]:
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    if not (_NUMBER.fullmatch(partition) and _NUMBER.fullmatch(offset)):
        raise HTTPException(404)
    return int(partition), int(offset)


def _as_file(message: Any, value: Any) -> tuple[bytes, str]:
    """A value as a file: its content, and its name."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return data, file_name(message, suffix_of(data[:_SUFFIX_HEAD]))
    if isinstance(value, str):
        return value.encode(), file_name(message, ".txt")
    return json.dumps(as_json(value)).encode(), file_name(message, ".json")


def _fields(seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a value that are in the store, as many as are shown."""
    fields = seen.get("fields", [])
    return fields[:_MOST_FIELDS] if isinstance(fields, list) else []


def _stored_bytes(seen: Mapping[str, Any]) -> int | None:
    """The size of a value's payloads, of the whole or of its fields; None if there are none."""
    sizes = [field["payload bytes"] for field in seen["fields"]] if isinstance(seen.get("fields"), list) else []
    if "payload bytes" in seen:
        sizes.append(seen["payload bytes"])
    return sum(sizes) if sizes else None


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _download(data: bytes, name: str) -> Response:
    return Response(data, media_type="application/octet-stream", headers=_attached(name))


def _time(timestamp_ms: int) -> str:
    """A time in UTC; a time out of the calendar's range as a number."""
    if timestamp_ms < 0:
        return "none"
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(" ", "milliseconds").removesuffix("+00:00")
    except OverflowError:
        return f"{timestamp_ms} ms"


def _cut(value: object, length: int = 300) -> str:
    text = str(value)
    return text if len(text) <= length else f"{text[:length]}…"
