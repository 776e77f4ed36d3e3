"""Filters of decoded records: a text that they contain, and a comparison of a field; and the search for matches."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, NamedTuple

import click

from payload_stores.errors import ContextualError
from serde_chain.cli.browse.preview import Preview, Shown
from serde_chain.cli.browse.topic import Scan
from serde_chain.cli.outline import as_json, as_size, field_json
from serde_chain.handles import PayloadHandle
from serde_chain.record import KEY, VALUE
from serde_chain.stages.large_fields.paths import MISSING, look_up
from serde_chain.wire.large_fields import Path, split

_OPERATOR: Final = re.compile("!=|<=|>=|=|<|>")
_MOST_TEXT: Final = 1000
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
# It ends after the window with this match.
_MOST_FOUND: Final = 200


class _Comparison(NamedTuple):
    """A field, compared with a value; as numbers if both are."""

    path: Path
    compare: Callable[[Any, Any], bool]
    text: str

    def takes(self, shown: Shown) -> bool:
        """Whether a record's field is such; false without the field."""
        found = MISSING if shown.preview is None else self._found(shown.preview)
        if found is MISSING or isinstance(found, PayloadHandle):
            return False
        try:
            pair: tuple[Any, Any] = _number(found), _number(json.loads(self.text))
        except (ValueError, RecursionError):
            pair = None, None
        if None in pair:
            pair = _text(_without_payloads(found)), _text_of_literal(self.text)
        try:
            return self.compare(*pair)
        except ArithmeticError:  # not a number
            return False

    def _found(self, preview: Preview) -> Any:
        """The field: of the value, whose name before it may be left out, or of the key."""
        found = look_up(preview.value, self.path)
        roots = {VALUE: preview.value, KEY: preview.key_value}
        if found is MISSING and (root := str(self.path[0])) in roots:
            found = look_up(roots[root], self.path[1:])
        return found


class Filter:
    """The records that a form asks for, beyond their position: key, value or reference contain a text, a field is such.

    Args:
        contains: The text, in upper or lower case; empty for any.
        where: A comparison, such as ``value.band = r`` or ``magnitude < 20``; empty for none.

    Raises:
        click.UsageError: The comparison is malformed.
    """

    def __init__(self, contains: str = "", where: str = "") -> None:
        self._text = contains.casefold()
        self._comparison = _parsed(where) if where.strip() else None

    def __bool__(self) -> bool:
        """Whether it leaves out any record."""
        return bool(self._text or self._comparison)

    def takes(self, shown: Shown) -> bool:
        """Whether a record is asked for; those that are not decoded have no fields.

        Args:
            shown: The record.
        """
        return self._contains(shown) and (self._comparison is None or self._comparison.takes(shown))

    def _contains(self, shown: Shown) -> bool:
        if not self._text:
            return True
        row, preview = shown.row, shown.preview
        texts = [field.get(name, "") for field in (row.key, row.value) for name in ("begins with", "reference")]
        if preview is not None:
            texts += [preview.key, preview.text]
        return any(self._text in text.casefold() for text in texts if text)


def _parsed(where: str) -> _Comparison:
    if len(where) > _MOST_TEXT:
        raise click.UsageError(f"Where: it has {len(where):,} characters, more than {_MOST_TEXT:,}")
    match = _OPERATOR.search(where)
    if match is not None:
        with suppress(ValueError):
            path = split(where[: match.start()].strip())
            return _Comparison(path, _OPERATORS[match[0]], where[match.end() :].strip())
    raise click.UsageError(f"Where: {where!r} is not a comparison of a field, such as value.band = r or magnitude < 20")


def _number(value: Any) -> Decimal | None:
    """A number as a decimal, which compares exactly: 0.1 in a text equals the float."""
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return Decimal(str(value)) if is_number else None


def _without_payloads(value: Any) -> Any:
    """A field as JSON. Of the fields in it that are in the store, the size: a filter downloads nothing."""
    return field_json(value) if isinstance(value, (bytes, bytearray, memoryview)) else as_json(value, as_size)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _text_of_literal(text: str) -> str:
    """A text in quotes without them."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if isinstance(found, str) else text


class FilteredList:
    """The records that match a filter, as they are found.

    Args:
        scan: The records.
        show: Decodes some of them.
        wanted: Which of them are matches.

    Attributes:
        scan: The records; says how far it has read.
        count: Number of matches so far.
        problem: The reason if the search could not go on.
    """

    def __init__(self, scan: Scan, show: Callable[..., Iterable[Shown]], wanted: Filter) -> None:
        self.scan = scan
        self.count = 0
        self.problem: str | None = None
        self._show, self._wanted = show, wanted

    def __iter__(self) -> Iterator[list[Shown]]:
        """The matches, some at a time."""
        try:
            for rows in self.scan.windows(self._is_enough):
                found = [shown for shown in self._show(rows) if self._wanted.takes(shown)]
                self.count += len(found)
                yield sorted(found, key=_order, reverse=not self.scan.is_forward)
        except ContextualError as error:
            self.problem = str(error)

    def _is_enough(self) -> bool:
        return self.count >= _MOST_FOUND


def _order(shown: Shown) -> tuple[int, int]:
    return shown.row.timestamp_ms, shown.row.offset
