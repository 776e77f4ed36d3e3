"""Finds references to missing or different payloads, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Final

from serde_chain import config as configuration
from serde_chain.codec import Record
from serde_chain.config import Config
from serde_chain.jobs.auditing import AuditReport, Problem, plan_audit
from serde_chain.jobs.finding import ReferenceFinder
from serde_chain.jobs.local.topic_records import is_marked, read_records
from serde_chain.jobs.reference_plan import open_readers
from serde_chain.jobs.scratch import Scratch
from serde_chain.jobs.topic_bounds import READ_COMMITTED, TopicBounds

# Records whose payloads are checked together.
_MOST: Final = 500
_MOST_BYTES: Final = 4 << 20
_COLUMNS: Final = ", ".join(f'"{field.name}"' for field in fields(Problem))
# The columns of topic, partition and offset.
_PLAIN: Final = 3


class Problems(Iterable[Problem]):
    """The problems of an audit, in a temporary file while this object exists.

    They are sorted by topic, partition, offset and reference.

    Example:
        >>> problems = Problems([Problem("t", 0, 7, "s3://b/t/1", "PayloadNotFoundError", "gone")])
        >>> len(problems), [problem.offset for problem in problems]
        (1, [7])
    """

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self._scratch = Scratch(f"CREATE TABLE problems ({_COLUMNS})")
        self.add(problems)

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems.

        Raises:
            JobError: The temporary file cannot be written.
        """
        places = ", ".join("?" * len(fields(Problem)))
        # As JSON, because a writer can put half of a surrogate pair into a reference, which SQLite refuses.
        rows = (
            (each.topic, each.partition, each.offset, *map(json.dumps, (each.reference, each.kind, each.message)))
            for each in problems
        )
        self._scratch.add(f"INSERT INTO problems VALUES ({places})", rows)  # noqa: S608, fixed names

    def __len__(self) -> int:
        return int(self._scratch.value("SELECT count(*) FROM problems"))

    def __iter__(self) -> Iterator[Problem]:
        for row in self._scratch.rows(f"SELECT * FROM problems ORDER BY {_COLUMNS}"):  # noqa: S608, fixed names
            yield Problem(*row[:_PLAIN], *map(json.loads, row[_PLAIN:]))


def audit(config: Config | str | Path, topics: str | Sequence[str], *, payloads: bool = True) -> AuditReport[Problems]:
    """Check that every reference in some topics leads to its payload.

    Reads committed records, up to the first open transaction. Downloads up to ``large.message.downloads.in.flight``
    payloads concurrently, and holds up to ``large.message.downloads.max.bytes`` of them, or a single larger one.
    :func:`serde_chain.spark.jobs.audit` does the same with Spark.

    Args:
        config: As in :func:`~serde_chain.jobs.sweep`.
        topics: The topics.
        payloads: Download each payload, and compare its size and digest with those in the record, if present;
            otherwise read only the last byte, which shows whether the payload exists and has the right size.

    Raises:
        ConfigError: The configuration is wrong.
        JobError: A topic does not exist, or is not readable to its end; or the temporary file failed.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = audit("consumer.toml", "alerts")  # doctest: +SKIP
        >>> [problem.kind for problem in report.problems]  # doctest: +SKIP
        ['PayloadNotFoundError']
    """
    loaded = configuration.load(config)
    plan = plan_audit(loaded, topics, payloads=payloads)
    references, problems = 0, Problems()
    with ExitStack() as stack:
        bounds = stack.enter_context(TopicBounds(loaded, plan.topics, READ_COMMITTED))
        first, ends = bounds.bounds()
        readers = open_readers(plan.config)
        for reader in readers.values():
            stack.callback(reader.close)
        finder = ReferenceFinder(plan, readers)
        records = read_records(loaded, first, ends, READ_COMMITTED)
        for batch in _batches(record for record in records if is_marked(record, plan.markers)):
            for record, entries in zip(batch, finder.find(batch), strict=True):
                references += sum(entry.reference is not None for entry in entries)
                problems.add(
                    Problem(
                        record.topic,
                        record.partition or 0,
                        record.offset or 0,
                        None if entry.reference is None else entry.reference.url,
                        entry.kind,
                        entry.message or "",
                    )
                    for entry in entries
                    if entry.kind is not None
                )
        bounds.check_ends(ends)
    return AuditReport(references, problems)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records, up to a number and size at a time, or a single larger one."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.value or b"") + len(record.key or b"")
        if len(batch) == _MOST or size >= _MOST_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
