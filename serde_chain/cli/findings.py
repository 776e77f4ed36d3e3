"""What ``check-config`` and ``doctor`` find, and its two forms: text and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

from rich.table import Table

from serde_chain.cli.output import iso_time, number, plain
from serde_chain.errors import ContextualError, MissingDependencyError

_ROWS: Final = 20
# Shown elsewhere: before the text, or in columns of their own.
_APART: Final = frozenset({"line", "topic", "partition", "offset", "timestamp_ms", "reference"})


class Level(StrEnum):
    """The severity."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes:
        name: Name of the check, for scripts.
        level: The severity.
        message: The finding, with its numbers.
        change: The remedy; None if there is nothing to do.
        topic: The topic concerned; None for all.
        records: The records concerned, if the check reads records.
        facts: The finding's parts for scripts, such as a schema's subject and id.
        where: What it is about: ``line`` and ``key`` of a configuration's file, or ``partition``, ``offset``,
            ``timestamp_ms`` and ``reference`` of a record.

    Example:
        >>> print(Finding("threshold", Level.ERROR, "it is above the topic's limit", "Set it to 900000", "images"))
        error    threshold (images): it is above the topic's limit. Set it to 900000
    """

    name: str
    level: Level
    message: str
    change: str | None = None
    topic: str | None = None
    records: tuple[Finding, ...] = ()
    facts: Mapping[str, str | int | None] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def mistake(cls, error: ContextualError, line: int | None = None) -> Self:
        """A mistake in a configuration.

        Args:
            error: The mistake.
            line: Its line in the file, counted from 1; None if it has none, such as a missing key.
        """
        name = "extras" if isinstance(error, MissingDependencyError) else "configuration"
        return cls(name, Level.ERROR, error.message, error.hint, where={"line": line, **error.context})

    @property
    def text(self) -> str:
        """What and where it is, and what to do."""
        line = self.where.get("line")
        place = ", ".join(f"{name}={value}" for name, value in self.where.items() if name not in _APART)
        start = f"line {line}: {self.message}" if line else self.message
        start += f" [{place}]" if place else ""
        return f"{start}. {self.change}" if self.change else start

    def __str__(self) -> str:
        about = f" ({self.topic})" if self.topic else ""
        return f"{self.level:<8} {self.name}{about}: {self.text}"

    @property
    def content(self) -> dict[str, Any]:
        """The finding for scripts."""
        common = {"name": self.name, "level": self.level, "message": self.message, "change": self.change}
        records = [record.content for record in self.records]
        return {
            **common, "hint": self.change, "topic": self.topic, "records": records, "facts": dict(self.facts),
            **self.where,
        }  # fmt: skip


def rows(findings: Sequence[Finding]) -> Table:
    """A table of findings about records; equal ones are a row.

    Args:
        findings: In the order of their offsets.
    """
    layout = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    layout.add_column("partition", justify="right", no_wrap=True)
    layout.add_column("offset", justify="right", no_wrap=True)
    layout.add_column("time", no_wrap=True)
    layout.add_column("problem, and what to do")
    groups: dict[str, list[Finding]] = {}
    for each in findings:
        groups.setdefault(each.text, []).append(each)
    for equal in list(groups.values())[:_ROWS]:
        first, last = equal[0].where, equal[-1].where
        parts = [equal[0].text, f"Its reference: {first['reference']}" if first["reference"] else ""]
        if len(equal) > 1:
            more = number(len(equal) - 1, "more record")
            parts.append(f"The same with {more}, up to offset {last['offset']} of partition {last['partition']}")
        text = " ".join(part if part.endswith((".", "?")) else f"{part}." for part in parts if part)
        layout.add_row(str(first["partition"]), str(first["offset"]), iso_time(first["timestamp_ms"]), plain(text))
    if len(groups) > _ROWS:
        layout.add_row("", "", "", f"{len(groups) - _ROWS:,} more problems: --json shows all")
    return layout
