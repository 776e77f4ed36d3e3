"""The cost of a chain by record size, from 100 bytes to 1 MB, against the same library calls by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Final

from benchmarks.chain import compared
from benchmarks.harness import Table

SIZES: Final = {"100 B": 100, "1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}
SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Cutout",
        "fields": [{"name": "name", "type": "string"}, {"name": "pixels", "type": "bytes"}],
    }
)


def run(*, quick: bool) -> Iterator[Table]:
    """Incompressible bytes, so that output is as large as input."""
    rows = []
    for at, size in SIZES.items():
        rows += compared(SCHEMA, {"name": "SRV26-alert", "pixels": os.urandom(size)}, quick=quick, at=at)
    yield Table(
        "sizes", "Chain avro → zstd → large-message by size, kept in the record", "µs a record", rows, axis="size"
    )
