"""Checks that a topic's frames are complete: each index once and in order, and times never going backwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.config import Config
from serde_chain.errors import StampError
from serde_chain.wire.entry_metadata import EntryMetadataError, peek

GAP: Final = "gap"
REPEAT: Final = "repeat"
TIME: Final = "time"
UNFRAMED: Final = "unframed"
MALFORMED: Final = "malformed"

_MOST_FINDINGS: Final = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """A record's fault.

    Attributes:
        kind: ``gap`` (indexes before it are missing), ``repeat`` (its index occurred before), ``time`` (its time is
            before the preceding record's), ``unframed`` or ``malformed``.
        partition: Its partition.
        offset: Its offset.
        expected: The expected index, or the minimum time in ms.
        found: The index or time found.

    Example:
        >>> print(Finding(GAP, partition=0, offset=8, expected=42, found=43))
        partition 0, offset 8: the index is 43, expected 42
    """

    kind: str
    partition: int
    offset: int
    expected: int | None = None
    found: int | None = None

    def __str__(self) -> str:
        where = f"partition {self.partition}, offset {self.offset}"
        what = {
            GAP: f"the index is {self.found}, expected {self.expected}",
            REPEAT: f"the index {self.found} is a repeat, expected {self.expected}",
            TIME: f"the time is {self.found} ms, after {self.expected} ms",
            UNFRAMED: "the record has no entry metadata",
            MALFORMED: "the entry metadata is malformed",
        }
        return f"{where}: {what[self.kind]}"


class FrameChecker:
    """Checks records as a consumer gets them; each partition in order.

    The first index of a partition may be any: retention may have removed the records before it.

    Example:
        >>> from serde_chain.wire.entry_metadata import frame
        >>> checker = FrameChecker()
        >>> checker.look(partition=0, offset=7, value=frame(b"", index=41))
        []
        >>> print(*checker.look(partition=0, offset=8, value=frame(b"", index=43)))
        partition 0, offset 8: the index is 43, expected 42
    """

    def __init__(self) -> None:
        self._due: dict[int, int] = {}
        self._latest_ms: dict[int, int] = {}

    def look(self, partition: int, offset: int, value: bytes | None) -> list[Finding]:
        """Check one record.

        Args:
            partition: Its partition.
            offset: Its offset.
            value: Its value as stored in the topic; tombstones have no frame and are skipped.

        Returns:
            Its faults; usually none.
        """
        if value is None:
            return []
        try:
            metadata = peek(value)
        except EntryMetadataError:
            return [Finding(MALFORMED, partition, offset)]
        if metadata is None:
            return [Finding(UNFRAMED, partition, offset)]
        findings = []
        if metadata.index is not None:
            due = self._due.get(partition, metadata.index)
            if metadata.index != due:
                kind = GAP if metadata.index > due else REPEAT
                findings.append(Finding(kind, partition, offset, due, metadata.index))
            self._due[partition] = max(due, metadata.index + 1)
        if metadata.broker_timestamp is not None:
            latest = self._latest_ms.get(partition, 0)
            if metadata.broker_timestamp < latest:
                findings.append(Finding(TIME, partition, offset, latest, metadata.broker_timestamp))
            self._latest_ms[partition] = max(latest, metadata.broker_timestamp)
        return findings


@dataclass(slots=True)
class Report:
    """The result of a check.

    Attributes:
        records: Number of records checked.
        counts: Number of findings of each kind.
        findings: The first thousand findings.

    Example:
        >>> report = Report()
        >>> report.add([Finding(UNFRAMED, partition=0, offset=8)])
        >>> report.records, dict(report.counts)
        (1, {'unframed': 1})
    """

    records: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, findings: list[Finding]) -> None:
        """Count one record and its faults."""
        self.records += 1
        self.counts.update(finding.kind for finding in findings)
        self.findings += findings[: _MOST_FINDINGS - len(self.findings)]


def check(
    config: Config | str | Path,
    topic: str,
    *,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check all records of a topic, up to its current end.

    Args:
        config: Client configuration: a mapping, or the path of a file.
        topic: The topic.
        timeout_s: Maximum wait for the broker, in seconds. By default 60, and 8 for the first answer.
        progress: Called regularly with the number of records read.

    Raises:
        StampError: The topic is unreadable.

    Example:
        >>> report = check({"bootstrap.servers": "localhost:9092"}, "events-stamped")  # doctest: +SKIP
        >>> report.records, dict(report.counts)  # doctest: +SKIP
        (1000, {})
    """
    report, checker = Report(), FrameChecker()
    with PartitionReader(config, "serde-chain-check", failure=StampError, timeout_s=timeout_s) as reader:
        for partition in range(reader.count(topic)):
            for message in reader.read(topic, partition, *reader.bounds(topic, partition)):
                report.add(checker.look(partition, message.offset(), message.value()))
                if progress is not None and report.records % 1000 == 0:
                    progress(report.records)
    return report
