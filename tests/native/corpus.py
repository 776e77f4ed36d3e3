"""Which schemas of a folder the compiled part reads: ``python -m tests.native.corpus FOLDER...``.

Schemas are files ``*.avsc``, and those in the headers of container files ``*.avro``; names of other files are looked
up beside a file, then in the whole folder. Equal schemas count once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

from serde_chain.errors import ConfigError
from serde_chain.schemas.part_budget import FREE_PARTS, PARTS_PER_BYTE
from serde_chain.stages.avro.arrow.batch import refusal
from serde_chain.stages.avro.arrow.types import arrow_type
from serde_chain.stages.avro.decimal import logical_readers
from serde_chain.stages.avro.native import Native, library
from serde_chain.stages.avro.schema import AvroSchema

__all__ = ["Verdict", "schemas_of", "verdict"]

compiled_part: Any = library()


class Verdict(NamedTuple):
    """What the compiled part does with a schema.

    Attributes:
        objects: Why records are read by fastavro; None if they are compiled.
        columns: The same for columns; of a schema without an Arrow type, the error.
        has_columns: Whether Arrow has a type for it.
    """

    objects: str | None
    columns: str | None
    has_columns: bool


def verdict(schema: AvroSchema) -> Verdict:
    """Compile a schema for reading."""
    try:
        columns, has_columns = refusal(schema, Native(compiled_part)), arrow_type(schema) is not None
    except ConfigError as error:
        columns, has_columns = error.message, False
    parts = (FREE_PARTS, PARTS_PER_BYTE) if schema.unbounded else None
    try:
        compiled_part.Decoder(schema.readable, None, logical_readers(), _leave, None, parts)
    except ValueError as error:
        return Verdict(str(error), columns, has_columns)
    return Verdict(None, columns, has_columns)


def _leave(data: Any, start: int) -> Any:
    raise NotImplementedError


def schemas_of(folder: Path) -> Iterator[tuple[Path, AvroSchema | str]]:
    """The different schemas of a folder, or why a file has none that is read."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in {".avsc", ".avro"} and path.is_file())
    known: dict[str, Any] = {}
    for path in files:
        if path.suffix == ".avsc":
            try:
                loaded = json.loads(path.read_bytes())
            except ValueError:
                continue
            for part in loaded if isinstance(loaded, list) else [loaded]:
                if isinstance(part, dict) and isinstance(part.get("name"), str):
                    name, space = part["name"], part.get("namespace")
                    known.setdefault(f"{space}.{name}" if space and "." not in name else name, part)
    seen: set[str] = set()
    for path in files:
        try:
            schema = AvroSchema.parse(*_source(path), look_up=partial(_beside, path, known))
        except Exception as error:  # noqa: BLE001  reported
            yield path, f"{type(error).__name__}: {str(error)[:150]}"
            continue
        text = json.dumps(schema.parsed, sort_keys=True, default=str)
        if text not in seen:
            seen.add(text)
            yield path, schema


def _source(path: Path) -> tuple[Any]:
    if path.suffix == ".avro" and path.read_bytes()[:4] == b"Obj\1":  # others are JSON too
        with path.open("rb") as file:
            return (json.dumps(fastavro.reader(file).writer_schema, default=str),)
    return (path.read_text(encoding="utf-8-sig"),)


def _beside(path: Path, known: dict[str, Any], name: str) -> Any:
    for file in (f"{name}.avsc", f"{name.rpartition('.')[2]}.avsc"):
        if (path.parent / file).is_file():
            return json.loads((path.parent / file).read_bytes())
    return known.get(name)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--refused", action="store_true", help="list the refused schemas")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    why: dict[str, Counter[str]] = {"objects": Counter(), "columns": Counter()}
    _say("| folder | schemas | objects compiled | columns compiled | without an Arrow type | no schema |")
    _say("|---|--:|--:|--:|--:|--:|")
    for folder in arguments.folders:
        counts: Counter[str] = Counter()
        for path, schema in schemas_of(folder):
            if isinstance(schema, str):
                counts["broken"] += 1
                reasons = {"no schema": schema}
            else:
                found = verdict(schema)
                told = {"objects": found.objects, "columns": found.columns}
                reasons = {name: reason for name, reason in told.items() if reason is not None}
                counts["all"] += 1
                counts["objects"] += found.objects is None
                counts["columns"] += found.columns is None
                counts["no type"] += not found.has_columns
            for name, reason in reasons.items():
                if name in why:
                    why[name][reason.partition(":")[0]] += 1
                if arguments.refused:
                    _say(f"    {path}: {name}: {reason}")
        total += counts
        _row(folder.name, counts)
    _row("**all**", total)
    for name, counted in why.items():
        for reason, count in counted.most_common():
            _say(f"{name}: {count} times: {reason}")


def _row(name: str, counts: Counter[str]) -> None:
    figures = (str(counts[key]) for key in ("all", "objects", "columns", "no type", "broken"))
    _say(f"| {name} | {' | '.join(figures)} |")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
