"""Checks of the topics' records: are the newest ones readable here?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from serde_chain.catalogue import DESERIALIZE, DESERIALIZERS, SERIALIZE, SERIALIZERS, Side, StageItem
from serde_chain.cli.decoding import Decoding
from serde_chain.cli.doctor.base import Check, Finding, Level, Look
from serde_chain.cli.doctor.topics import newest_records
from serde_chain.cli.inspect_topic import describe, formats_of
from serde_chain.cli.output import are, number
from serde_chain.errors import SerializationError
from serde_chain.record import KEY, VALUE
from serde_chain.stages.avro import native
from serde_chain.stages.avro.reader import CONTAINER
from serde_chain.stages.avro.stage import FRAMING

__all__ = ["compiled", "readers"]

_LISTED: Final = re.compile(rb"\d+:([A-Za-z0-9._,-]+)")
# Codecs, each of which reads the others, and stages that leave the bytes unchanged. Only zlib's own reader reads zlib.
_CODECS: Final = frozenset({"zstd", "lz4", "gzip", "snappy"})
_COMPRESS: Final = "compress"
_AUTO: Final = "auto"
_LOOK: Final = "Look at it with serde-chain inspect, and make the deserializers match"
_IDLE: Final = frozenset({"bytes", "describe"})


def compiled(look: Look) -> Iterator[Check]:
    """What reads and writes Avro."""
    if not any("avro" in (_names(look, side) or ()) for side in (SERIALIZE, DESERIALIZE)):
        return
    settings = StageItem("avro", {}).settings(look.config.settings, is_key=False)
    if native.native(settings) is None:
        off = native.NATIVE.read(settings) == "off"
        why = f"{native.NATIVE.name} = off" if off else f"serde-chain is {native.absence()}"
        slower = "several times slower than compiled"
        yield Check("avro", Level.OK, f"by fastavro, record by record, {slower}: {why}", "" if off else native.remedy())
    else:
        # fastavro writes container files, and reads them one by one.
        where = " for batches; container files otherwise by fastavro" if FRAMING.read(settings) == CONTAINER else ""
        yield Check("avro", Level.OK, f"compiled{where}")


def readers(look: Look) -> Iterator[Check]:
    """Whether the deserializers undo the configuration's serializers, and read the newest records."""
    of_writer, of_reader = (_names(look, side) for side in (SERIALIZE, DESERIALIZE))
    words = [*(of_reader or ()), *(of_writer or ())]
    if of_writer and of_reader and _AUTO not in of_reader:
        yield _compared("value.serializers", of_writer, of_reader, words)
    if not look.reads:
        return
    with look.reader() as reader, closing(Decoding(look.config.settings, lazy=True)) as decoding:
        for topic in look.topics:
            newest = _Newest(formats_of(look.config.settings))
            try:
                for messages in newest_records(reader, topic):
                    newest.add(messages, decoding)
            except SerializationError as error:  # a store or a registry that is down
                yield Check(
                    "records", Level.ERROR, f"the newest records cannot be read: {error.message}", error.hint, topic
                )
                continue
            named = _LISTED.fullmatch(newest.listed or b"")
            if named is not None and of_reader and _AUTO not in of_reader:
                yield _compared("the newest record", _busy(named[1].decode().split(",")), of_reader, words, topic)
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
        read = decoding.read(messages)
        self._findings += [_finding(message, error) for message, error in read if error is not None]

    def check(self, topic: str) -> Check:
        """The result: an error if a partition's newest record or each payload is unreadable, otherwise a warning."""
        if not self._count:
            return Check("records", Level.OK, "there are no records to read", topic=topic)
        if not self._findings:
            read = f"the newest {number(self._count, 'record')} of {number(len(self._partitions), 'partition')} "
            return Check("records", Level.OK, f"{read}{are(self._count)} readable", topic=topic)
        ends = {(partition, offset) for (partition, _), offset in self._ends.items()}
        is_newest = any((each.partition, each.offset) in ends for each in self._findings)
        wrong = len(self._findings)
        message = f"{wrong:,} of the newest {number(self._count, 'record')} {are(wrong)} unreadable"
        without = [each for each in self._findings if each.reference is not None]
        reasons = {(each.message, each.change) for each in without}
        # A single payload may just have been deleted.
        is_store = len(reasons) == 1 and 1 < len(without) == self._moved
        if is_store:
            message += f": each whose payload is in the store ({self._moved:,})" if wrong < self._count else ""
        elif not is_newest:
            message += ", but not the last one of a partition"
        level = Level.ERROR if is_newest or is_store else Level.WARNING
        return Check("records", level, message, None, topic, tuple(sorted(self._findings, key=_order)))


def _order(finding: Finding) -> tuple[int, int]:
    return finding.partition, finding.offset


def _finding(message: Any, error: SerializationError) -> Finding:
    where = " of ".join(part for part in (error.stage, error.field) if part)
    return Finding(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        f"{error.message} ({where})" if where else error.message,
        error.hint or _LOOK,
        error.context.get("reference"),
    )


def _is_moved(seen: Mapping[str, Any]) -> bool:
    return any("reference" in field or isinstance(field.get("fields"), list) for field in (seen[KEY], seen[VALUE]))


def _compared(what: str, written: list[str], read: list[str], words: list[str], topic: str | None = None) -> Check:
    """Compare two lists of stages.

    Args:
        what: The writer.
        written: Its stages.
        read: The stages of value.deserializers.
        words: The names of stages in the configuration: the advice says zstd, not compress, if the user does.
        topic: The topic concerned.
    """
    if _plain(written) == _plain(read)[::-1]:
        return Check(
            "deserializers", Level.OK, f"value.deserializers reverses {what}: {', '.join(written)}", topic=topic
        )
    return Check(
        "deserializers",
        Level.ERROR,
        f"{what} has {', '.join(written)}, and value.deserializers reverses {', '.join(read[::-1])}",
        f"Set value.deserializers = {', '.join(_in_words(written[::-1], words))}",
        topic,
    )


def _names(look: Look, side: Side) -> list[str] | None:
    """The names of a value chain's stages; None without a chain, or if a stage has no name."""
    items = look.config.of(side, is_key=False)
    names = [item.target for item in items if isinstance(item.target, str)]
    catalogue = SERIALIZERS if side is SERIALIZE else DESERIALIZERS
    short = [catalogue.aliases.get(name, name) for name in names]
    return _busy(short) if items and len(names) == len(items) and set(short) <= set(catalogue.names()) else None


def _busy(names: list[str]) -> list[str]:
    return [name for name in names if name not in _IDLE]


def _plain(names: list[str]) -> list[str]:
    """The names with one for all codecs."""
    return [_COMPRESS if name in _CODECS else name for name in names]


def _in_words(names: list[str], words: list[str]) -> list[str]:
    codec = next((word for word in words if word in _CODECS), _COMPRESS)
    return [codec if name == _COMPRESS else name for name in names]
