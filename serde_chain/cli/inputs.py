"""The input of ``serde-chain produce``: files, lines, and records as printed by ``consume --json``."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from payload_stores.errors import ContextualError
from serde_chain.base import Data, Serializer
from serde_chain.catalogue import SERIALIZE
from serde_chain.cli.outline import as_text, from_json
from serde_chain.config import Resolved
from serde_chain.record import Header
from serde_chain.stages.primitives import BytesSerializer, StringSerializer

STDIN: Final = Path("-")
# The allowed fields of a record; its position belongs to the topic that it came from.
_FIELDS: Final = frozenset({"key", "value", "headers", "partition", "timestamp_ms", "topic", "offset"})


class InputError(ContextualError):
    """The input is malformed."""

    context_fields = ("file", "line")


class StandardInput(io.RawIOBase):
    """Standard input, read during an upload: its size is known afterwards.

    Attributes:
        count: Number of bytes read; those read again count once.
    """

    name = "<stdin>"

    def __init__(self) -> None:
        super().__init__()
        self._file: Any = sys.stdin.buffer
        self.count = self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """Whether it is a file."""
        return bool(self._file.seekable())

    def fileno(self) -> int:
        """Its descriptor."""
        return int(self._file.fileno())

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, as far as there are bytes."""
        size: int = self._file.readinto(buffer)
        self._at += size
        self.count = max(self.count, self._at)
        return size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, if it is a file."""
        before = self._file.tell()
        after: int = self._file.seek(offset, whence)
        self._at += after - before
        return after


@dataclass(frozen=True)
class InputRecord:
    """A record to send.

    Attributes:
        place: The file, and the line in it.
        value: Object for the value chain.
        size: Bytes of its content, or the standard input that counts them while it is read.
        key: Object for the key chain.
        headers: Headers.
        timestamp_ms: Timestamp in ms since the epoch; 0 for now.
    """

    place: str
    value: Any
    size: int | StandardInput = 0
    key: Any = None
    headers: Sequence[Header] = field(default=())
    timestamp_ms: int = 0


class ChainInput:
    """The chain's input for some content: JSON objects, text, or the bytes themselves, depending on its first stage.

    Args:
        config: The configuration.
        is_key: Whether it is the key chain.

    Attributes:
        streams: Whether the chain accepts files, which are read during the upload.
    """

    def __init__(self, config: Resolved, *, is_key: bool = False) -> None:
        stages = [stage for stage in config.of(SERIALIZE, is_key=is_key) if stage.item.target != "describe"]
        kinds = [stage.kind for stage in stages]
        first: Any = kinds[0] if kinds else BytesSerializer
        is_ours = isinstance(first, type) and issubclass(first, Serializer)
        self._takes_bytes = is_ours and (issubclass(first, BytesSerializer) or first.takes is Data.BYTES)
        self._takes_text = is_ours and issubclass(first, StringSerializer)
        second = next((kind for kind in kinds if kind is not BytesSerializer), None)
        self.streams = isinstance(second, type) and issubclass(second, Serializer) and second.takes_streams

    def of_content(self, content: bytes) -> Any:
        """The chain's input for the content of a file or line.

        Raises:
            InputError: The chain does not accept the content.
        """
        if self._takes_bytes:
            return content
        if self._takes_text:
            return _text(content)
        try:
            value = json.loads(content)
        except ValueError as error:
            raise InputError(
                f"the content is not JSON, which the chain's first stage requires: {error}",
                hint="Begin the chain with bytes or string for other content",
            ) from None
        except RecursionError:
            raise InputError("the content is nested too deeply") from None
        return self.of_json(value)

    def of_json(self, value: Any) -> Any:
        """The chain's input for a field of a JSON record."""
        try:
            value = from_json(value)
            return value.encode() if self._takes_bytes and isinstance(value, str) else value
        except (ValueError, RecursionError) as error:
            raise InputError(f"a field cannot be read: {error}") from None


def files(paths: Iterable[Path], chain: ChainInput, *, names: ChainInput | None) -> Iterator[InputRecord]:
    """Each file as a record; a folder stands for all files in it.

    Args:
        paths: Files, folders, and ``-`` for standard input.
        chain: The value chain.
        names: The key chain, whose input is the files' names; None for no keys.
    """
    for path in paths:
        found = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in found:
            name = str(file.relative_to(path)) if path.is_dir() else file.name
            with _at(str(file)):
                key = None if names is None else names.of_content(name.encode())
                if file == STDIN:
                    item = _standard_input(chain)
                else:
                    value = file if chain.streams else chain.of_content(file.read_bytes())
                    item = InputRecord(str(file), value, file.stat().st_size)
            yield replace(item, key=key)


def _standard_input(chain: ChainInput) -> InputRecord:
    if chain.streams:
        stream = StandardInput()
        return InputRecord("-", stream, stream)
    content = sys.stdin.buffer.read()
    return InputRecord("-", chain.of_content(content), len(content))


def lines(paths: Iterable[Path], chain: ChainInput, keys: ChainInput, separator: str | None) -> Iterator[InputRecord]:
    """Each line as a record; empty lines are skipped.

    Args:
        paths: Files, or ``-`` for standard input.
        chain: The value chain.
        keys: The key chain.
        separator: The text between key and value; None for no keys.
    """
    for place, number, line in _lines(paths):
        with _at(place, number):
            key: Any = None
            content = line
            if separator is not None:
                name, found, content = line.partition(separator.encode())
                if not found:
                    raise InputError(f"the line has no {separator!r} between key and value")
                key = keys.of_content(name)
            item = InputRecord(f"{place}, line {number}", chain.of_content(content), len(content), key)
        yield item


def records(paths: Iterable[Path], chain: ChainInput, keys: ChainInput) -> Iterator[InputRecord]:
    """Each line as a JSON record: an object with ``value``, and optionally ``key``, ``headers`` and ``timestamp_ms``.

    Args:
        paths: Files, or ``-`` for standard input.
        chain: The value chain.
        keys: The key chain.
    """
    for place, number, line in _lines(paths):
        with _at(place, number):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise InputError(f"the line is not JSON: {error}") from None
            except RecursionError:
                raise InputError("the line is nested too deeply") from None
            if not isinstance(record, dict) or "value" not in record or not record.keys() <= _FIELDS:
                raise InputError(
                    "the line is not a record as printed by consume --json: an object with a value",
                    hint=f"It may have {', '.join(sorted(_FIELDS))}; its position in the old topic is ignored",
                )
            item = InputRecord(
                f"{place}, line {number}",
                chain.of_json(record["value"]),
                len(line),
                keys.of_json(record.get("key")),
                _headers(record.get("headers") or []),
                timestamp_ms=_milliseconds(record.get("timestamp_ms")),
            )
        yield item


def _headers(pairs: Any) -> list[Header]:
    try:
        headers = [(name, from_json(value)) for name, value in pairs]
    except (TypeError, ValueError, RecursionError):
        headers = [(None, None)]
    if not all(isinstance(name, str) and isinstance(value, (str, bytes, type(None))) for name, value in headers):
        raise InputError("its headers are not pairs of a name and a value")
    return headers


def _milliseconds(value: Any) -> int:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63):
        return value or 0
    raise InputError("its timestamp_ms is not a whole number of 64 bits")


def _lines(paths: Iterable[Path]) -> Iterator[tuple[str, int, bytes]]:
    for path in paths or (STDIN,):
        with _at(str(path)), _opened(path) as file:
            for number, line in enumerate(file, 1):
                if content := line.removesuffix(b"\n"):
                    yield str(path), number, content


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


@contextmanager
def _at(place: str, line: int | None = None) -> Iterator[None]:
    """Add the position in the input to errors."""
    try:
        yield
    except InputError as error:
        error.add_context(file=place, line=line)
        raise
    except OSError as error:
        raise InputError(f"it is unreadable: {error.strerror}", file=place) from error


def _text(content: bytes) -> str:
    text = as_text(content)
    if text is None:
        raise InputError("the content is not text, which the chain's first stage requires")
    return text
