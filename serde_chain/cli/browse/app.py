"""The pages: requests, and their responses."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import click
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from payload_stores.errors import ContextualError
from serde_chain.catalogue import DESERIALIZE
from serde_chain.cli.browse.payloads import Payloads, blocks
from serde_chain.cli.browse.preview import MOST_BYTES, Image, Preview, Previews, Shown, hex_dump, images_in
from serde_chain.cli.browse.rendering import pieces, templates
from serde_chain.cli.browse.search import Search
from serde_chain.cli.browse.sizes import Sizes, stored_bytes
from serde_chain.cli.browse.steps import in_steps
from serde_chain.cli.browse.topic import AbandonedError, Page, Patience, Readers, Row, Scan, Topic, asked
from serde_chain.cli.browse.topics import Topics
from serde_chain.cli.files import as_file, file_name, suffix_of
from serde_chain.cli.inspect_topic import formats_of
from serde_chain.cli.outline import tree
from serde_chain.cli.records import RecordUnavailableError
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
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FORM: Final = ("partition", "offsets", "from", "key", "contains")


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
        has_older: Whether its partition has the offset before.
        has_newer: Whether its partition has the next offset.
    """

    message: Any
    seen: dict[str, Any]
    preview: Preview | None
    problem: str | None
    has_older: bool
    has_newer: bool


class Pages:
    """The application, without its guard.

    Args:
        config: Flat configuration.
        timeout_s: Maximum wait for the broker, a store, or a page's data from either, in seconds.

    Raises:
        ConfigError: The configuration is wrong.
        MissingDependencyError: The extra of a stage or store is not installed.
    """

    def __init__(self, config: Mapping[str, object], timeout_s: float = 10.0) -> None:
        limits = TIMEOUT.read(config), int(timeout_s * 1000), MAX_POLL_INTERVAL.read(config) // 2
        self._config = with_settings(config, {TIMEOUT.name: min(limits)})
        self._readers = Readers(self._config, timeout_s)
        self._topics = Topics(self._config, timeout_s, self._readers)
        self._formats = formats_of(self._config)
        self._timeout_s = timeout_s
        self._chains = {
            "key": [item.label for item in resolve(config).of(DESERIALIZE, is_key=True)],
            "value": [item.label for item in resolve(config).of(DESERIALIZE, is_key=False)],
        }
        self._templates = templates()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._busy = 0
        self._changed = threading.Condition()
        self._payloads = Payloads(self._config)
        try:
            self._previews = Previews(self._config)
        except BaseException:
            self._payloads.close()
            raise
        topic = "/topics/{topic}"
        record = f"{topic}/records/{{partition}}/{{offset}}"
        self.app = Starlette(
            routes=[
                Route("/", self._overview),
                Route("/style.css", partial(_file, "style.css", "text/css")),
                Route("/script.js", partial(_file, "script.js", "text/javascript")),
                Route("/favicon.ico", _no_icon),
                Route(topic, self._list),
                Route(f"{topic}/newer", self._newer),
                Route(f"{topic}/search", self._search),
                Route(f"{topic}/sizes", self._sizes),
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

    def check(self, topic: str | None) -> str:
        """Check that a topic exists, or that the broker answers.

        Args:
            topic: The topic to show first; None for all.

        Returns:
            The path of its page.

        Raises:
            ConfigError: The Kafka client refuses its configuration.
            RecordUnavailableError: The topic does not exist, or the broker does not answer.
        """
        if topic is None:
            self._topics.all()
            return "/"
        self._topics.one(topic)
        return f"/topics/{quote(topic)}"

    def close(self) -> None:
        """Wait a few seconds at most for running work, and close the stores."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, _CLOSING_S)
        self._previews.close()
        self._payloads.close()
        self._readers.close()

    async def _overview(self, request: Request) -> Response:
        containing = request.query_params.get("name", "")

        def shown(patience: Patience) -> Response:
            topics = self._topics.all(containing)
            return self._render("topics.html", patience=patience, topics=topics, containing=containing)

        return await self._do(request, shown)

    async def _list(self, request: Request) -> Response:
        topic, query = self._topic(request), request.query_params

        def read(patience: Patience) -> tuple[Page, list[Shown], Any]:
            page = self._page(topic, request, patience)
            shown = [*self._decoded(page.rows, patience, fetch="fetch" in query)]
            return page, shown, self._topics.one(topic.name)

        page, shown, facts = await self._do(request, read)
        is_checked = "check" in query
        asked_for = _form(query)
        here = {**asked_for, **{name: query[name] for name in ("at", "to") if query.get(name)}}
        kept = {name: "1" for name in ("check", "fetch") if name in query}
        base = f"/topics/{topic.name}"

        def link(path: str = "", **more: str) -> str:
            return f"{base}{path}?{urlencode({**asked_for, **more})}"

        refers = any("reference" in row.value for row in page.rows)

        def again(**more: str) -> str:
            return f"{base}?{urlencode({**here, **kept, **more})}"

        return await self._drawn(
            request,
            "list.html",
            topic=topic.name,
            facts=facts,
            page=page,
            shown=shown,
            seen=await self._see_all(topic, page.rows) if is_checked else {},
            most=_bytes_of(page.rows),
            form=dict.fromkeys(_FORM, "") | _form(query),
            older=link(at=page.older, to="older", **kept) if page.older else None,
            newer=link(at=page.newer, to="newer", **kept) if page.newer else None,
            check=again(check="1") if refers and not is_checked else None,
            fetch=again(fetch="1") if refers and "fetch" not in query else None,
            tail=None if page.newer else link("/newer", at=page.end, most=str(_bytes_of(page.rows))),
        )

    async def _newer(self, request: Request) -> Response:
        """The rows after a position, for a list that is kept up to date by the script."""
        topic = self._topic(request)

        def read(patience: Patience) -> tuple[Page, list[Shown]]:
            page = self._page(topic, request, patience, newer=True)
            return page, [*self._decoded(page.rows, patience)]

        page, shown = await self._do(request, read)
        most = request.query_params.get("most", "")
        largest = int(most) if _NUMBER.fullmatch(most) else 0
        answer = await self._drawn(request, "newer.html", topic=topic.name, shown=shown, seen={}, most=largest)
        answer.headers["x-position"] = page.end
        return answer

    def _page(self, topic: Topic, request: Request, patience: Patience, *, newer: bool | None = None) -> Page:
        query = request.query_params
        newer = {"newer": True, "older": False}.get(query.get("to", "")) if newer is None else newer
        return topic.page(asked(query), patience, at=query.get("at", ""), newer=newer)

    async def _search(self, request: Request) -> Response:
        """The matches, sent as they are found."""
        topic, query = self._topic(request), request.query_params
        text = query.get("contains", "")
        if not text:
            return RedirectResponse(f"/topics/{topic.name}?{urlencode(_form(query))}", 303)
        patience = Patience(self._timeout_s)
        scan = topic.scan(asked(query), patience, query.get("at", ""))
        found = Search(scan, partial(self._decoded, patience=patience), text)
        page = self._templates.get_template("search.html").generate(
            topic=topic.name,
            found=found,
            form=dict.fromkeys(_FORM, "") | _form(query),
            onward=lambda: f"/topics/{topic.name}/search?{urlencode({**_form(query), 'at': scan.rest})}",
            most=0,
            seen={},
        )
        return StreamingResponse(self._sent(pieces(page), patience), media_type="text/html")

    async def _sent(self, page: Generator[bytes, None, None], patience: Patience) -> AsyncIterator[bytes]:
        """The pieces of a page, while its reader has a turn."""

        def leave() -> None:
            patience.is_over = True

        async with self._turns:
            self._count(1)
            try:
                async for piece in in_steps(page, leave):
                    yield piece
            finally:
                self._count(-1)

    async def _sizes(self, request: Request) -> Response:
        topic, query = self._topic(request), request.query_params

        def read(patience: Patience) -> tuple[Sizes, Scan, Any]:
            sizes, scan = Sizes(), topic.scan(asked(query), patience)
            for rows in scan.windows():
                for row in rows:
                    sizes.add(row.timestamp_ms, row.key, row.value)
            return sizes, scan, self._topics.one(topic.name)

        sizes, scan, facts = await self._do(request, read)
        return await self._drawn(
            request,
            "sizes.html",
            topic=topic.name,
            facts=facts,
            sizes=sizes,
            scan=scan,
            form=dict.fromkeys(_FORM, "") | _form(query),
        )

    def _topic(self, request: Request) -> Topic:
        name = request.path_params["topic"]
        if not _NAME.fullmatch(name):
            raise HTTPException(404, "no such topic")
        return Topic(self._readers, name, self._formats)

    def _decoded(self, rows: Iterable[Row], patience: Patience, *, fetch: bool = False) -> Iterator[Shown]:
        """The rows with their values, if these are small; an error that is not theirs is told once."""
        failed = False
        for row in rows:
            if failed or not self._previews.is_listed(row.key, row.value, fetch=fetch):
                yield Shown(row)
                continue
            try:
                yield Shown(row, self._previews.read(row.message, patience))
            except SerializationError as error:
                failed = not error.about_record
                yield Shown(row, None, error.message)
            except RecursionError:
                yield Shown(row, None, "the value is nested too deeply to be shown")

    async def _show(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)
        record = await self._do(request, lambda patience: self._read(topic, partition, offset, patience))
        value = record.seen["value"]
        reference, size = value.get("reference"), value.get("payload bytes")
        head, presence = None, None
        if reference is not None:
            head, presence = await asyncio.gather(
                self._head(topic.name, reference), self._see(topic.name, reference, size)
            )
        stored = record.message.value()

        def drawn(patience: Patience) -> Response:
            return self._render(
                "record.html",
                patience=patience,
                topic=topic.name,
                tree=None if record.preview is None else tree(record.preview.value),
                seen=record.seen,
                fields=_fields(value),
                presence=presence,
                chains=self._chains,
                preview=record.preview,
                problem=record.problem,
                has_older=record.has_older,
                has_newer=record.has_newer,
                stored=None if stored is None else hex_dump(stored),
                payload=None if head is None else hex_dump(head),
            )

        return await self._do(request, drawn)

    async def _image(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)
        query = request.query_params
        field, is_shown = query.get("field", ""), "save" not in query

        def drawn(patience: Patience) -> Response:
            record = self._read(topic, partition, offset, patience)
            images = [] if record.preview is None else record.preview.images
            for image in images:
                if image.name == field:
                    patience.check()
                    return _image_of(image, record.message) if is_shown else _saved(image, record.message)
            raise HTTPException(404, record.problem or "the value has no such image")

        return await self._do(request, drawn)

    async def _field(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)
        try:
            path = split(request.query_params.get("path", ""))
        except ValueError:
            raise HTTPException(404, "the value has no such field") from None

        is_shown = "save" not in request.query_params

        def opened(patience: Patience) -> Response:
            message = topic.record(partition, offset, patience)
            key = message.key()
            content = self._previews.field(message, path, patience)
            message.set_key(key)
            if content is None:
                raise HTTPException(404, "the value has no such field")
            image = next(images_in(content), None)
            patience.check()
            if image is None:
                return _download(content, file_name(message, suffix_of(content[:_SUFFIX_HEAD])))
            return _image_of(image, message) if is_shown else _saved(image, message)

        return await self._do(request, opened)

    async def _value(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)

        def saved(patience: Patience) -> Response:
            record = self._read(topic, partition, offset, patience, fields=True)
            if record.preview is None:
                raise HTTPException(404, record.problem or "")
            content, suffix = as_file(record.preview.value)
            return _download(content, file_name(record.message, suffix))

        return await self._do(request, saved)

    async def _stored(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)

        def stored(patience: Patience) -> Response:
            message = topic.record(partition, offset, patience)
            data = message.value() or b""
            return _download(data, file_name(message, suffix_of(data[:_SUFFIX_HEAD])))

        return await self._do(request, stored)

    async def _payload(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)

        def described(patience: Patience) -> tuple[Any, Mapping[str, Any]]:
            message = topic.record(partition, offset, patience)
            return message, topic.describe(message)["value"]

        message, seen = await self._do(request, described)
        reference = seen.get("reference")
        if reference is None:
            raise HTTPException(404, "the record refers to no payload")
        file = await in_daemon_thread(self._payloads.open, topic.name, reference, seen.get("payload bytes"))
        try:
            head = await in_daemon_thread(file.read, _SUFFIX_HEAD)
        except BaseException:
            file.close()
            raise
        headers = _attached(file_name(message, suffix_of(head)))
        if request.method == "HEAD":  # the body is not needed
            await in_daemon_thread(file.close)
            return Response(media_type="application/octet-stream", headers=headers)
        return StreamingResponse(in_steps(blocks(head, file)), media_type="application/octet-stream", headers=headers)

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
        self._count(1)
        try:
            return work(patience)
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        with self._changed:
            self._busy += step
            self._changed.notify_all()

    def _read(self, topic: Topic, partition: int, offset: int, patience: Patience, *, fields: bool = False) -> _Record:
        message, offsets = topic.neighbourhood(partition, offset, patience)
        seen = topic.describe(message)
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
        return _Record(message, seen, preview, problem, offset - 1 in offsets, offset + 1 in offsets)

    async def _head(self, topic: str, reference: str) -> bytes | None:
        try:
            return await in_daemon_thread(self._payloads.head, topic, reference, _HEAD)
        except ContextualError as error:
            _log.debug("the beginning of a payload cannot be shown: %s", error)  # the result of `_see` is shown
            return None

    async def _see_all(self, topic: Topic, rows: list[Row]) -> dict[str, Seen]:
        sizes = {row.value["reference"]: row.value.get("payload bytes") for row in rows if "reference" in row.value}
        seen = await asyncio.gather(*(self._see(topic.name, reference, size) for reference, size in sizes.items()))
        return dict(zip(sizes, seen, strict=True))

    async def _see(self, topic: str, reference: str, size: int | None) -> Seen:
        try:
            is_there = await in_daemon_thread(self._payloads.see, topic, reference, size)
        except ContextualError as error:
            return Seen(error.message, "bad")
        return Seen("yes", "good") if is_there else Seen("not asked: only a download would tell", "unknown")

    async def _drawn(self, request: Request, template: str, **facts: Any) -> Response:
        """A page rendered in a thread, like all that computes: it contains values of any record."""
        return await self._do(request, lambda patience: self._render(template, patience=patience, **facts))

    def _render(self, template: str, status: int = 200, *, patience: Patience | None = None, **facts: Any) -> Response:
        parts = []
        for part in self._templates.get_template(template).generate(facts):
            parts.append(part)
            if patience is not None:
                patience.check()
        return Response("".join(parts).encode("utf-8", "replace"), status, media_type="text/html")

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


def _image_of(image: Image, message: Any) -> Response:
    """An image to display, or to save where browsers cannot display it."""
    shown = None if image.media_type is None else image.shown
    return _saved(image, message) if shown is None else Response(shown, media_type=image.media_type)


def _saved(image: Image, message: Any) -> Response:
    return _download(image.data, file_name(message, image.suffix))


async def _file(name: str, media_type: str, _request: Request) -> Response:
    text = files("serde_chain.cli.browse").joinpath(name).read_text(encoding="utf-8")
    return Response(text, media_type=media_type)


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


def _fields(seen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a value that are in the store, as many as are shown."""
    fields = seen.get("fields", [])
    return fields[:_MOST_FIELDS] if isinstance(fields, list) else []


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _download(data: bytes, name: str) -> Response:
    return Response(data, media_type="application/octet-stream", headers=_attached(name))


def _form(query: Mapping[str, str]) -> dict[str, str]:
    """The fields of the form that are filled in."""
    return {name: query[name] for name in _FORM if query.get(name)}


def _bytes(row: Row) -> int:
    """The size of a record's value, with its payloads."""
    return int(row.value.get("bytes", 0)) + (stored_bytes(row.value) or 0)


def _bytes_of(rows: Iterable[Row]) -> int:
    return max(map(_bytes, rows), default=0)
