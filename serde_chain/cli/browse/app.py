"""The pages: requests, and their responses."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import click
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from payload_stores.errors import ContextualError
from serde_chain.catalogue import DESERIALIZE
from serde_chain.cli.browse.blocking_iterators import in_steps
from serde_chain.cli.browse.filters import Filter, FilteredList
from serde_chain.cli.browse.formats import Formats
from serde_chain.cli.browse.large_fields import Seen, stored_fields
from serde_chain.cli.browse.looks import look, misfit
from serde_chain.cli.browse.payloads import Payloads, blocks
from serde_chain.cli.browse.preview import (
    MOST_BYTES,
    Preview,
    Shown,
    fetched_bytes,
    hex_dump,
    images_in,
)
from serde_chain.cli.browse.questions import Questions
from serde_chain.cli.browse.rendering import pieces, templates, topic_summary
from serde_chain.cli.browse.responses import attached, displayed, download, no_icon, saved, static
from serde_chain.cli.browse.sizes import Sizes, stored_bytes
from serde_chain.cli.browse.topic import AbandonedError, ListedRecord, Page, Patience, Readers, Scan, Topic, asked
from serde_chain.cli.browse.topic_queries import TopicFacts, TopicQueries
from serde_chain.cli.files import as_file, file_name, suffix_of
from serde_chain.cli.inspect_topic import formats_of
from serde_chain.cli.outline import tree
from serde_chain.cli.records import RecordUnavailableError
from serde_chain.clients.client_chains import MAX_POLL_INTERVAL
from serde_chain.clients.event_loop import in_daemon_thread
from serde_chain.config import resolve, with_settings
from serde_chain.errors import SerializationError
from serde_chain.record import KEY, VALUE
from serde_chain.stages.large_message.options import TIMEOUT
from serde_chain.wire.large_fields import split

_log = logging.getLogger("serde_chain")

T = TypeVar("T")

# Concurrent readers of the topic; further requests wait.
_AT_ONCE: Final = 4
_SUFFIX_HEAD: Final = 16
# References of a record, and of a list, that are asked about.
_MOST_ASKED: Final = 20
_MOST_CHECKED: Final = 200
_CLOSING_S: Final = 3.0
_NUMBER: Final = re.compile("[0-9]{1,19}")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FORM: Final = ("partition", "offsets", "from", "key", "where", "contains")


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
        self._topics = TopicQueries(self._config, timeout_s, self._readers)
        self._references = formats_of(self._config)
        self._timeout_s = timeout_s
        resolved = resolve(config)
        self._chains = {
            name: [stage.label for stage in resolved.of(DESERIALIZE, is_key=name == KEY)] for name in (KEY, VALUE)
        }
        self._templates = templates()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._busy = 0
        self._changed = threading.Condition()
        self._payloads = Payloads(self._config)
        self._questions = Questions(self._payloads)
        try:
            self._formats = Formats(self._config)
        except BaseException:
            self._payloads.close()
            raise
        topic = "/topics/{topic}"
        record = f"{topic}/records/{{partition}}/{{offset}}"
        self.app = Starlette(
            routes=[
                Route("/", self._overview),
                Route("/style.css", partial(static, "style.css", "text/css")),
                Route("/script.js", partial(static, "script.js", "text/javascript")),
                Route("/favicon.ico", no_icon),
                Route(topic, self._list),
                Route(f"{topic}/newer", self._newer),
                Route(f"{topic}/search", self._search),
                Route(f"{topic}/sizes", self._sizes),
                Route(record, self._show),
                Route(f"{record}/tree", self._tree),
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
        self._formats.close()
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
        asked_for = _form(query)
        base = f"/topics/{topic.name}"
        await self._choose(topic, query)
        if _filter(query):  # of the same form; a field that is filled in counts
            return RedirectResponse(f"{base}/search?{urlencode(asked_for)}", 303)

        def read(patience: Patience) -> tuple[Page, list[Shown], dict[str, int | None], TopicFacts]:
            page = self._page(topic, request, patience)
            shown = [*self._decoded(topic, page.rows, patience, fetch="fetch" in query)]
            return page, shown, _references(shown), self._topics.one(topic.name)

        page, shown, references, facts = await self._do(request, read)
        is_checked = "check" in query
        here = {**asked_for, **{name: query[name] for name in ("at", "to") if query.get(name)}}
        kept = {name: "1" for name in ("check", "fetch") if name in query}

        def link(path: str = "", **more: str) -> str:
            return f"{base}{path}?{urlencode({**asked_for, **more})}"

        def again(**more: str) -> str:
            return f"{base}?{urlencode({**here, **kept, **more})}"

        rows = _fitted(shown)
        misfit_too = {"misfit": "1"} if rows["misfit"] is not None and rows["misfit"].stages else {}
        fetched = sum(fetched_bytes(row.value) for row in page.rows)
        return await self._drawn(
            request,
            "list.html",
            **self._common(topic, query),
            facts=facts,
            page=page,
            **rows,
            seen=await self._do(request, partial(self._see_all, topic, references)) if is_checked else {},
            most=_bytes_of(page.rows),
            older=link(at=page.older, to="older", **kept) if page.older else None,
            newer=link(at=page.newer, to="newer", **kept) if page.newer else None,
            check=again(check="1") if references and not is_checked else None,
            fetch=again(fetch="1") if fetched and "fetch" not in query else None,
            fetched=fetched,
            whole=any("reference" in row.value for row in page.rows),
            reread=lambda stages: again(format=stages),
            tail=None if page.newer else link("/newer", at=page.end, most=str(_bytes_of(page.rows)), **misfit_too),
        )

    def _common(self, topic: Topic, query: Mapping[str, str]) -> dict[str, Any]:
        """What all pages with the form show."""
        chosen = query.get("format", self._formats.of(topic.name))  # as it was filled in, also if it is wrong
        form = {**dict.fromkeys(_FORM, ""), **_form(query), "format": chosen}
        return {"topic": topic.name, "form": form}

    async def _choose(self, topic: Topic, query: Mapping[str, str]) -> None:
        """Remember the format that a form names, or the configured one if it names none."""
        if query.get("format", self._formats.of(topic.name)) != self._formats.of(topic.name):
            await in_daemon_thread(self._formats.choose, topic.name, query["format"])

    async def _newer(self, request: Request) -> Response:
        """The rows after a position, for a list that is kept up to date by the script."""
        topic = self._topic(request)

        def read(patience: Patience) -> tuple[Page, list[Shown], TopicFacts]:
            page = self._page(topic, request, patience, newer=True)
            return page, [*self._decoded(topic, page.rows, patience)], self._topics.one(topic.name)

        page, shown, facts = await self._do(request, read)
        most = request.query_params.get("most", "")
        largest = int(most) if _NUMBER.fullmatch(most) else 0
        rows = _fitted(shown, is_misfit="misfit" in request.query_params)
        answer = await self._drawn(request, "newer.html", topic=topic.name, **rows, seen={}, most=largest)
        answer.headers["x-position"] = page.end
        if facts.records is not None:
            answer.headers["x-topic"] = topic_summary(facts)
        return answer

    def _page(self, topic: Topic, request: Request, patience: Patience, *, newer: bool | None = None) -> Page:
        query = request.query_params
        newer = {"newer": True, "older": False}.get(query.get("to", "")) if newer is None else newer
        return topic.page(asked(query), patience, at=query.get("at", ""), newer=newer)

    async def _search(self, request: Request) -> Response:
        """The matches, sent as they are found."""
        topic, query = self._topic(request), request.query_params
        wanted = _filter(query)
        if not wanted:
            return RedirectResponse(f"/topics/{topic.name}?{urlencode(_form(query))}", 303)
        await self._choose(topic, query)
        patience = Patience(self._timeout_s)
        scan = topic.scan(asked(query), patience, query.get("at", ""))
        found = FilteredList(scan, partial(self._decoded, topic, patience=patience), wanted)
        page = self._templates.get_template("search.html").generate(
            **self._common(topic, query),
            found=found,
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
        await self._choose(topic, query)

        def read(patience: Patience) -> tuple[Sizes, Scan, TopicFacts]:
            sizes, scan, wanted = Sizes(), topic.scan(asked(query), patience), _filter(query)
            for rows in scan.windows():
                for shown in self._decoded(topic, rows, patience) if wanted else map(Shown, rows):
                    if wanted.takes(shown):
                        sizes.add(shown.row.timestamp_ms, shown.row.key, shown.row.value)
                    else:
                        sizes.undecided += shown.preview is None
            return sizes, scan, self._topics.one(topic.name)

        sizes, scan, facts = await self._do(request, read)
        return await self._drawn(
            request,
            "sizes.html",
            **self._common(topic, query),
            facts=facts,
            sizes=sizes,
            scan=scan,
        )

    def _topic(self, request: Request) -> Topic:
        name = request.path_params["topic"]
        if not _NAME.fullmatch(name):
            raise HTTPException(404, "no such topic")
        return Topic(self._readers, name, self._references)

    def _decoded(
        self, topic: Topic, rows: Iterable[ListedRecord], patience: Patience, *, fetch: bool = False
    ) -> Iterator[Shown]:
        """The rows with their values, if these are small; an error that is not theirs is told once."""
        failed, previews = False, self._formats.previews(topic.name)
        for row in rows:
            if failed or not previews.is_listed(row.key, row.value, fetch=fetch):
                yield Shown(row)
                continue
            fields = fetch and "fields" in row.value and fetched_bytes(row.value) > 0
            data = row.message.value()
            try:
                yield Shown(row, previews.read(row.message, patience, fields=fields))
            except SerializationError as error:
                failed = not error.about_record
                is_here = error.about_record and "reference" not in row.value and data is not None
                yield Shown(row, None, error.message, look(data) if is_here else None)
            except RecursionError:
                yield Shown(row, None, "the value is nested too deeply to be shown")

    async def _show(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)
        record = await self._do(request, lambda patience: self._read(topic, partition, offset, patience))
        value = record.seen["value"]
        reference, size = value.get("reference"), value.get("payload bytes")
        fields = stored_fields(value, None if record.preview is None else record.preview.value)
        known = [each for each in fields if each.reference is not None][:_MOST_ASKED]
        sizes = {} if reference is None else {reference: size}
        sizes |= {str(each.reference): each.size for each in known}
        found = await self._do(request, partial(self._questions.asked, topic.name, sizes, heads=True))
        begun = {each.path: each.with_head(found[str(each.reference)].head) for each in known}
        whole = None if reference is None else found[reference]
        stored = record.message.value()

        def drawn(patience: Patience) -> Response:
            return self._render(
                "record.html",
                patience=patience,
                topic=topic.name,
                tree=None if record.preview is None else tree(record.preview.value),
                seen=record.seen,
                fields=[begun.get(each.path, each) for each in fields],
                checked={each: answer.seen for each, answer in found.items()},
                look=look(stored) if stored is not None and reference is None and record.problem else None,
                presence=None if whole is None else whole.seen,
                chains=self._chains | ({"value": [chosen]} if (chosen := self._formats.of(topic.name)) else {}),
                preview=record.preview,
                problem=record.problem,
                has_older=record.has_older,
                has_newer=record.has_newer,
                stored=None if stored is None else hex_dump(stored),
                payload=None if whole is None or whole.head is None else hex_dump(whole.head),
            )

        return await self._do(request, drawn)

    async def _tree(self, request: Request) -> Response:
        """The value's parts, for a row of a list that is expanded in place."""
        topic, (partition, offset) = self._topic(request), _place(request)

        def drawn(patience: Patience) -> Response:
            record = self._read(topic, partition, offset, patience)
            outline = None if record.preview is None else tree(record.preview.value)
            return self._render("tree.html", patience=patience, tree=outline, problem=record.problem)

        return await self._do(request, drawn)

    async def _image(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)
        query = request.query_params
        field, is_shown, fields = _raw(request, "field"), "save" not in query, "fields" in query

        def drawn(patience: Patience) -> Response:
            record = self._read(topic, partition, offset, patience, fields=fields)
            images = [] if record.preview is None else record.preview.images
            for image in images:
                if image.name.encode("utf-8", "surrogatepass") == field:
                    patience.check()
                    return displayed(image, record.message) if is_shown else saved(image, record.message)
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
            content = self._formats.previews(topic.name).field(message, path, patience)
            message.set_key(key)
            if content is None:
                raise HTTPException(404, "the value has no such field")
            image = next(images_in(content), None)
            patience.check()
            if image is None:
                return download(content, file_name(message, suffix_of(content[:_SUFFIX_HEAD])))
            return displayed(image, message) if is_shown else saved(image, message)

        return await self._do(request, opened)

    async def _value(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)

        def whole(patience: Patience) -> Response:
            record = self._read(topic, partition, offset, patience, fields=True)
            if record.preview is None:
                raise HTTPException(404, record.problem or "")
            content, suffix = as_file(record.preview.value)
            return download(content, file_name(record.message, suffix))

        return await self._do(request, whole)

    async def _stored(self, request: Request) -> Response:
        topic, (partition, offset) = self._topic(request), _place(request)

        def stored(patience: Patience) -> Response:
            message = topic.record(partition, offset, patience)
            data = message.value() or b""
            return download(data, file_name(message, suffix_of(data[:_SUFFIX_HEAD])))

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
        headers = attached(file_name(message, suffix_of(head)))
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
                preview = self._formats.previews(topic.name).read(message, patience, fields=fields)
            except SerializationError as error:
                problem = error.message
            except RecursionError:
                problem = "the value is nested too deeply to be shown"
        message.set_value(stored)
        message.set_key(key)
        return _Record(message, seen, preview, problem, offset - 1 in offsets, offset + 1 in offsets)

    def _see_all(self, topic: Topic, references: Mapping[str, int | None], patience: Patience) -> dict[str, Seen]:
        found = self._questions.asked(topic.name, dict(islice(references.items(), _MOST_CHECKED)), patience)
        return {reference: answer.seen for reference, answer in found.items()}

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

    async def _misused(self, request: Request, error: Any) -> Response:
        """The form as it was filled in, with what is wrong."""
        common = self._common(self._topic(request), request.query_params)
        option = error.param.opts[0].lstrip("-") if isinstance(error, click.BadParameter) and error.param else ""
        text = f"{option.capitalize()}: {error.message}" if option else error.format_message().replace("--", "")
        return self._render("misused.html", 400, text=text, **common)

    async def _absent(self, _request: Request, error: Any) -> Response:
        return self._render("message.html", error.status_code, text=error.detail)

    async def _broken(self, request: Request, error: Any) -> Response:
        # Texts of foreign errors may contain anything.
        _log.error("the page %s failed: %s", request.url.path, type(error).__name__)
        return self._render("message.html", 500, text=f"This page failed: {type(error).__name__}")


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


def _raw(request: Request, name: str) -> bytes:
    """A parameter's bytes: names in values may have surrogates, which the framework's parameters lose."""
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    return str(dict(query).get(name, "")).encode("utf-8", "surrogateescape")


def _form(query: Mapping[str, str]) -> dict[str, str]:
    """The fields of the form that are filled in."""
    return {name: query[name] for name in _FORM if query.get(name)}


def _filter(query: Mapping[str, str]) -> Filter:
    return Filter(query.get("contains", ""), query.get("where", ""))


def _references(rows: Iterable[Shown]) -> dict[str, int | None]:
    """The references of a list, of values and of fields that are not fetched, with the payloads' sizes."""
    sizes: dict[str, int | None] = {}
    for row, preview, *_ in rows:
        if "reference" in row.value:
            sizes[row.value["reference"]] = row.value.get("payload bytes")
        fields = stored_fields(row.value, None if preview is None else preview.value)
        sizes |= {each.reference: each.size for each in fields if each.reference is not None}
    return sizes


def _fitted(shown: Iterable[Shown], *, is_misfit: bool = False) -> dict[str, Any]:
    """Rows, and the sentence about the values of another chain: in the place of their errors if it names the chain."""
    rows = [*shown]
    sentence = misfit([row.look for row in rows if row.look is not None], sum(row.preview is not None for row in rows))
    if is_misfit or (sentence is not None and sentence.stages):
        rows = [row if row.look is None else row._replace(problem=None) for row in rows]
    return {"shown": rows, "misfit": sentence}


def _bytes(row: ListedRecord) -> int:
    """The size of a record's value, with its payloads."""
    return int(row.value.get("bytes", 0)) + (stored_bytes(row.value) or 0)


def _bytes_of(rows: Iterable[ListedRecord]) -> int:
    return max(map(_bytes, rows), default=0)
