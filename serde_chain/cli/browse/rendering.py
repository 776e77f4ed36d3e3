"""Templates, and their filters."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from serde_chain.cli.browse.large_fields import stored_fields
from serde_chain.cli.browse.sizes import stored_bytes
from serde_chain.cli.browse.topic_queries import TopicFacts
from serde_chain.cli.outline import as_size, cut, summary
from serde_chain.cli.output import number

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_KIB: Final = 1024
_PIECE_S: Final = 0.1


def templates() -> Environment:
    """The templates of all pages; they escape whatever they show."""
    made = Environment(
        loader=PackageLoader("serde_chain.cli.browse"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters |= {
        "time": _time, "cut": _cut, "stored": stored_bytes, "summary": summary, "bar": _bar, "size": _size,
        "megabytes": _megabytes, "as_size": as_size, "stored_fields": stored_fields, "urlencode": _quoted,
        "topic_summary": topic_summary,
    }  # fmt: skip
    return made


def pieces(page: Iterable[str]) -> Generator[bytes, None, None]:
    """A page as it is rendered, in pieces of what has come in a tenth of a second."""
    parts: list[str] = []
    sent = time.monotonic()
    for part in page:
        parts.append(part)
        if time.monotonic() - sent > _PIECE_S:
            yield "".join(parts).encode("utf-8", "replace")
            parts.clear()
            sent = time.monotonic()
    yield "".join(parts).encode("utf-8", "replace")


def topic_summary(topic: TopicFacts) -> str:
    """A topic's partitions, records and times, as far as they are known."""
    parts = [number(topic.count, "partition")]
    if topic.records is not None:
        parts.append(number(topic.records, "record"))
    if topic.oldest_ms is not None:
        parts.append(f"{_time(topic.oldest_ms)} to {_time(topic.newest_ms)}")
    return ", ".join(parts)


def _time(timestamp_ms: int | None) -> str:
    """A time in UTC; a time out of the calendar's range as a number."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "none"
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(" ", "milliseconds").removesuffix("+00:00")
    except OverflowError:
        return f"{timestamp_ms} ms"


def _quoted(text: str) -> str:
    """A text in a link; names of fields may have surrogates, which Jinja's own filter refuses."""
    return quote(text, errors="surrogatepass")


def _cut(value: object, length: int = 300) -> str:
    return cut(str(value), length)


def _bar(count: int, most: int) -> float:
    """The length of a bar in percent, on a logarithmic scale."""
    return round(100 * math.log1p(count) / math.log1p(max(most, count, 1)), 1)


def _megabytes(count: int) -> str:
    return f"{count:,} bytes" if count < 100_000 else f"{count / 1e6:,.1f} MB"


def _size(count: int) -> str:
    """A number of bytes, for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIB:
            return f"{size:,.{0 if unit == 'B' else 1}f} {unit}"
        size /= _KIB
    return f"{size:,.1f} TiB"
