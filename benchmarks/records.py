"""The records that benchmarks use: one of 20 fields (273 bytes of Avro) and one of 3 fields (about 20 bytes)."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["BIG", "BIG_SCHEMA", "SMALL", "SMALL_SCHEMA"]

_TYPES: Final = ("long", "double", "string", "boolean", "int")

SMALL_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Small",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "score", "type": "double"},
        ],
    }
)
SMALL: Final[dict[str, Any]] = {"id": 123456, "name": "SRV26-alert", "score": 0.25}

BIG_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Big",
        "fields": [
            *({"name": f"field_{n}", "type": _TYPES[n % 5]} for n in range(15)),
            {"name": "comment", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "flux", "type": {"type": "array", "items": "double"}},
            {"name": "scores", "type": {"type": "map", "values": "float"}},
            {
                "name": "position",
                "type": {
                    "type": "record",
                    "name": "Position",
                    "fields": [{"name": "ra", "type": "double"}, {"name": "dec", "type": "double"}],
                },
            },
        ],
    }
)
_VALUES: Final = (1234567890, 3.14159, "a string of some length", True, 42)
BIG: Final[dict[str, Any]] = {
    **{f"field_{n}": _VALUES[n % 5] for n in range(15)},
    "comment": None,
    "tags": ["transient", "supernova", "near a galaxy"],
    "flux": [500.0 + n for n in range(6)],
    "scores": {"real": 0.5, "variable": 0.25},
    "position": {"ra": 197.45, "dec": -23.38},
}
