"""Checks of the topics' records: are the newest ones readable here?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from serde_chain.cli.decoding import Decoding
from serde_chain.cli.doctor.base import CheckContext
from serde_chain.cli.doctor.offline import compared
from serde_chain.cli.doctor.topic_checks import newest_records
from serde_chain.cli.findings import Finding, Level
from serde_chain.cli.inspect_topic import describe, formats_of
from serde_chain.cli.output import are, number, position
from serde_chain.errors import SerializationError
from serde_chain.handles import PayloadHandle
from serde_chain.record import KEY, VALUE

_LISTED: Final = re.compile(rb"\d+:([A-Za-z0-9._,-]+)")
_LOOK: Final = "Look at it with serde-chain inspect, and make the deserializers match"


def readers(context: CheckContext) -> Iterator[Finding]:
    """Whether the deserializers read the newest records."""
    if not context.reads:
        return
    with context.reader() as reader, closing(Decoding(context.config.settings, lazy=True)) as decoding:
        for topic in context.topics:
            newest = _Newest(formats_of(context.config.settings))
            try:
                for messages in newest_records(reader, topic):
                    newest.add(messages, decoding)
            except SerializationError as error:  # a store or a registry that is down
                yield Finding(
                    "records", Level.ERROR, f"the newest records cannot be read: {error.message}", error.hint, topic
                )
                continue
            named = _LISTED.fullmatch(newest.listed or b"")
            if named is not None:
                yield from compared(context.config, "the newest record", named[1].decode().split(","), topic)
            yield newest.check(topic)


class _Newest:
    """What reading the newest records of a topic shows.

    Args:
        formats: The formats of references.

    Attributes:
        listed: The stages that the newest value lists.
    """

    def __init__(self, formats: Iterable[str]) -> None:
        self.listed: bytes | None = None
        self._formats = tuple(formats)
        # Records whose payload, or a part of it, is in a store.
        self._moved = 0
        self._findings: list[Finding] = []
        self._partitions: set[int] = set()
        # The offset of the newest record of each partition, and of the newest one with a value.
        self._ends: dict[tuple[int, bool], int] = {}
        self._at = -1
        self._count = 0

    def add(self, messages: list[Any], decoding: Decoding) -> None:
        """Read some records, in the order of their offsets.

        Raises:
            SerializationError: They cannot be read through no fault of their own.
        """
        for message in messages:
            partition, has_value = message.partition(), message.value() is not None
            self._partitions.add(partition)
            for kind in {False, has_value}:
                self._ends[partition, kind] = message.offset()
            if has_value and message.timestamp()[1] >= self._at:
                self._at = message.timestamp()[1]
                self.listed = dict(message.headers() or ()).get("serde-chain")
            self._moved += _is_moved(describe(message, self._formats))
        self._count += len(messages)
        for message, error in decoding.read(messages):
            error = error or _missing(message.value())  # noqa: PLW2901
            if error is not None:
                self._findings.append(_finding(message, error))

    def check(self, topic: str) -> Finding:
        """The result: an error if a partition's newest record or each payload is unreadable, otherwise a warning."""
        if not self._count:
            return Finding("records", Level.OK, "there are no records to read", topic=topic)
        newest = f"the newest {number(self._count, 'record') if self._count > 1 else 'record'}"
        if not self._findings:
            read = f"{newest} of {number(len(self._partitions), 'partition')} {are(self._count)} readable"
            return Finding("records", Level.OK, read, topic=topic)
        ends = {(partition, offset) for (partition, _), offset in self._ends.items()}
        is_newest = any((each.where["partition"], each.where["offset"]) in ends for each in self._findings)
        wrong = len(self._findings)
        message = f"{f'{wrong:,} of ' if wrong < self._count else ''}{newest} {are(wrong)} unreadable"
        without = [each for each in self._findings if each.where["reference"] is not None]
        reasons = {(each.message, each.change) for each in without}
        # A single payload may just have been deleted.
        is_store = len(reasons) == 1 and 1 < len(without) == self._moved
        if is_store:
            message += f": each whose payload is in the store ({self._moved:,})" if wrong < self._count else ""
        elif not is_newest:
            message += ", but not the last one of a partition"
        level = Level.ERROR if is_newest or is_store else Level.WARNING
        return Finding("records", level, message, None, topic, tuple(sorted(self._findings, key=_order)))


def _missing(value: object) -> SerializationError | None:
    """Why the payload of a handle cannot be fetched, by its first bytes; None for other values."""
    if not isinstance(value, PayloadHandle):
        return None
    try:
        with value.open() as file:
            file.read(1)
    except SerializationError as error:
        if not error.about_record:
            raise
        return error
    return None


def _order(finding: Finding) -> tuple[int, int]:
    return finding.where["partition"], finding.where["offset"]


def _finding(message: Any, error: SerializationError) -> Finding:
    stage = " of ".join(part for part in (error.stage, error.field) if part)
    where = {**position(message), "reference": error.context.get("reference")}
    problem = f"{error.message} ({stage})" if stage else error.message
    return Finding("record", Level.ERROR, problem, error.hint or _LOOK, where=where)


def _is_moved(seen: Mapping[str, Any]) -> bool:
    return any("reference" in field or isinstance(field.get("fields"), list) for field in (seen[KEY], seen[VALUE]))
