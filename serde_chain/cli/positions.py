"""The positions of a configuration's keys in its file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from payload_stores.plugins import require
from serde_chain.bakdata_config import SOURCES


def lines_of(path: Path, text: str) -> dict[str, int]:
    """The line of each key in a file, counted from 1.

    Args:
        path: A ``.toml`` or ``.properties`` file.
        text: Its content, in valid syntax.

    Returns:
        By dotted key; keys within lists and inline tables also by their own names, and those of bakdata's library
        also by ours. For a duplicate key, the effective one.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = dict(_of_toml(text) if path.suffix == ".toml" else _of_properties(text))
    return {ours: lines[theirs] for ours, theirs in SOURCES.items() if theirs in lines} | lines


def _of_properties(text: str) -> Iterator[tuple[str, int]]:
    properties: Any = require("javaproperties", "config")
    line = 1
    for element in properties.parse(text):
        if isinstance(element, properties.KeyValue):
            yield element.key, line
        line += element.source.count("\n")


def _of_toml(text: str) -> Iterator[tuple[str, int]]:
    """A statement ends where the lines since the last one are valid TOML; its keys belong to the current table."""
    known: set[str] = set()
    lines = [f"{line}\n" for line in text.split("\n")]  # Python's other line ends are none in TOML
    begin, table = 0, ""
    for end in range(1, len(lines) + 1):
        statement = "".join(lines[begin:end])
        is_table = statement.lstrip().startswith("[")
        with suppress(tomllib.TOMLDecodeError):
            names = set(_names(tomllib.loads(statement if is_table else table + statement)))
            yield from ((name, begin + 1) for name in names - known)
            known |= names
            begin, table = end, statement if is_table else table


def _names(value: object, prefix: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from (prefix + key, key)
            yield from _names(item, f"{prefix}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)
