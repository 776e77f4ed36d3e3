"""Alert-like records of a sky survey: nested Avro with light curves and image cut-outs, from 1 KB to 20 MB.

For the demo, the benchmarks and tests. Everything follows from a seed; pixels are noise, as real ones nearly are, so
compression does not shrink them away.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

__all__ = ["ALERT_SCHEMA", "alert", "demo_sizes"]

_CUTOUT: Final = {
    "type": "record",
    "name": "Cutout",
    "fields": [
        {"name": "width", "type": "int"},
        {"name": "height", "type": "int"},
        {"name": "format", "type": {"type": "enum", "name": "PixelFormat", "symbols": ["UINT8", "UINT16", "FLOAT32"]}},
        {"name": "pixels", "type": "bytes"},
    ],
}

ALERT_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Alert",
    "namespace": "survey.example",
    "fields": [
        {"name": "alert_id", "type": "long"},
        {"name": "object_id", "type": "string"},
        {"name": "observed_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "position",
            "type": {
                "type": "record",
                "name": "Position",
                "fields": [{"name": "ra", "type": "double"}, {"name": "dec", "type": "double"}],
            },
        },
        {"name": "magnitude", "type": ["null", "float"], "default": None},
        {"name": "host_galaxy", "type": ["null", "string"], "default": None},
        {
            "name": "light_curve",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Detection",
                    "fields": [
                        {"name": "mjd", "type": "double"},
                        {"name": "flux", "type": "float"},
                        {"name": "flux_error", "type": "float"},
                        {
                            "name": "band",
                            "type": {"type": "enum", "name": "Band", "symbols": ["u", "g", "r", "i", "z"]},
                        },
                    ],
                },
            },
        },
        {"name": "scores", "type": {"type": "map", "values": "float"}},
        {"name": "science", "type": ["null", _CUTOUT], "default": None},
        {"name": "template", "type": ["null", "Cutout"], "default": None},
        {"name": "difference", "type": ["null", "Cutout"], "default": None},
    ],
}

_FIRST_NIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_BYTES_PER_DETECTION: Final = 17


def alert(number: int, size: int) -> dict[str, Any]:
    """Make one alert.

    Args:
        number: Which one; the same number and size make the same alert.
        size: About how many bytes it takes in Avro.

    Returns:
        A record of :data:`ALERT_SCHEMA`.
    """
    source = random.Random(number)  # noqa: S311, reproducible test data
    detections = min(size // 3, 3000) // _BYTES_PER_DETECTION
    pixels = max(size - detections * _BYTES_PER_DETECTION - 150, 0) // 3
    has_images = size > 4096
    return {
        "alert_id": 10_000_000 + number,
        "object_id": f"SRV26{source.randrange(36**5):07d}",
        "observed_at": _FIRST_NIGHT + timedelta(seconds=39 * number, microseconds=source.randrange(10**6)),
        "position": {"ra": source.uniform(0, 360), "dec": source.uniform(-90, 90)},
        "magnitude": _single(source.gauss(20, 2)),
        "host_galaxy": source.choice([None, "NGC 4993", "M 51"]),
        "light_curve": [_detection(source, night) for night in range(max(detections, 1))],
        "scores": {name: _single(source.random()) for name in ("real", "supernova", "variable")},
        "science": _cutout(source, pixels) if has_images else None,
        "template": _cutout(source, pixels) if has_images else None,
        "difference": _cutout(source, pixels) if has_images else None,
    }


def demo_sizes(count: int, seed: int = 1159) -> Iterator[int]:
    """Sizes in bytes of a stream of alerts: most small, some far above a broker's limit of a megabyte.

    Args:
        count: How many; from 100 on, one in a hundred has more than 8 MB, and the largest has 20 MB.
        seed: Which stream.

    Yields:
        Sizes from 1,000 to 20,000,000. 300 of them sum up to some 160 MB.
    """
    source = random.Random(seed)  # noqa: S311, reproducible test data
    for number in range(count):
        if number % 100 == 50:
            yield 20_000_000 if number < 100 else source.randrange(8_000_000, 14_000_000)
        elif number % 12 == 5:
            yield source.randrange(1_200_000, 6_000_000)
        else:
            yield int(10 ** source.uniform(3, 5.3))


def _detection(source: random.Random, night: int) -> dict[str, Any]:
    return {
        "mjd": 61041.0 + night + source.random() / 10,
        "flux": _single(source.gauss(500, 100)),
        "flux_error": _single(abs(source.gauss(0, 10))),
        "band": source.choice("ugriz"),
    }


def _cutout(source: random.Random, pixels: int) -> dict[str, Any]:
    width = max(int((pixels // 2) ** 0.5), 1)
    height = max(pixels // 2 // width, 1)
    return {"width": width, "height": height, "format": "UINT16", "pixels": source.randbytes(2 * width * height)}


def _single(number: float) -> float:
    """Rounded to what a 32-bit float keeps, so that a record equals itself after a round trip."""
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded
